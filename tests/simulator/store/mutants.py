"""One-line bugs in the store and in the node around it, and what notices them: a directed test, or seeds.

Not here, because nobody can notice: that an answer to an old primary check is ignored (the view it was sent in is
over, so none comes), and that green messages which were applied already are skipped (none is reported twice)."""

from __future__ import annotations

from corel.adaptive_wait import AdaptiveWait
from kvstore.node.back_off import BackOff
from kvstore.store import green_state, red_state, state
from kvstore.store.green_state import GreenState
from kvstore.store.pending_writes import PendingWrites
from kvstore.store.red_state import RedState
from kvstore.store.store import Store
from kvstore.store.waiters import Waiters
from tests.kvstore.node import test_back_off
from tests.kvstore.store import test_expiry, test_store
from tests.simulator.mutation import Edit, Mutant, what_breaks
from tests.simulator.store.plan import draw_store_plan
from tests.simulator.store.run import StoreRun
from tests.simulator.store.test_directed import (
    test_outside_a_primary_component_a_write_is_accepted_when_it_is_logged_not_before,
)

SEEDS_MAX = 6
"""A test run looks at so many seeds for each."""

MUTANTS = [
    # Linearizable reads
    Mutant(
        "a linearizable read does not check the primary component",
        ("linearizable", "read_levels"),
        (
            Edit(
                Waiters,
                "begin_check",
                "self._check_primary(self._check_number)",
                "self.confirmed(self._check_number, self._log.queue.green)",
            ),
        ),
        first_seed=12,
    ),
    Mutant(
        "a linearizable read does not wait for what is open",
        ("linearizable",),
        (Edit(Waiters, "begin_check", "last = self._last_open()", "last = None"),),
        test=test_store.test_a_linearizable_read_waits_for_everybody_and_for_what_is_open,
    ),
    Mutant(
        "a linearizable read does not wait for what is green to be applied",
        ("linearizable",),
        (Edit(Waiters, "release_readers", "if green_line < reader.line:", "if False:"),),
        first_seed=1,
    ),
    Mutant(
        "a linearizable read joins the check under way",
        ("linearizable",),
        (
            Edit(
                Waiters,
                "add_linearizable",
                "self._unchecked.append(_Reader(waiter))",
                "(self._checking or self._unchecked).append(_Reader(waiter))",
            ),
        ),
        test=test_store.test_readers_who_come_while_one_asks_wait_for_the_next_question,
    ),
    Mutant(
        "readers are confirmed by a check of a view that is over",
        (),
        (Edit(Waiters, "stage_changed", "if self._log.stage is not Stage.PRIMARY:", "if False:"),),
    ),
    Mutant(
        "a linearizable read is served outside a primary component",
        ("linearizable",),
        (Edit(Waiters, "begin_check", "reader.waiter.answer(Trouble.NO_PRIMARY)", "reader.waiter.answer(None)"),),
    ),
    # What a write is told
    Mutant(
        "a write is called done when it is logged",
        (),
        (
            Edit(
                PendingWrites,
                "logged",
                "self._accept(write)",
                "from kvstore.store.state import Outcome; done = Applied(Outcome('applied', 1), {}); "
                "self._answer(write, Done(write.write_id, done))",
            ),
        ),
    ),
    Mutant(
        "a write is accepted when it is sent",
        ("acknowledged_writes",),
        (Edit(PendingWrites, "sent", "_Progress.SENT", "_Progress.LOGGED"),),
        first_seed=11,
    ),
    Mutant(
        "outside a primary component a write is accepted that is not logged",
        ("acknowledged_writes",),
        (Edit(PendingWrites, "accept_red", "write.progress is _Progress.LOGGED and ", ""),),
        test=test_outside_a_primary_component_a_write_is_accepted_when_it_is_logged_not_before,
    ),
    Mutant(
        "a withdrawn write is sent",
        ("refused", "answered", "WriteError"),
        (Edit(PendingWrites, "next_batch", "if write.progress is _Progress.ANSWERED:", "if False:"),),
    ),
    Mutant(
        "a write that is refused for want of a primary component is sent",
        ("refused",),
        (
            Edit(
                PendingWrites,
                "next_batch",
                "self._answer(write, Failed(Trouble.NO_PRIMARY))\n            continue",
                "self._answer(write, Failed(Trouble.NO_PRIMARY))",
            ),
        ),
    ),
    Mutant(
        "writes of one message get each other's outcomes",
        ("acknowledged_writes",),
        (Edit(PendingWrites, "answer_green", "applied[write.index]", "applied[-1 - write.index]"),),
    ),
    Mutant(
        "a write that the log had no room for is sent twice",
        (),
        (Edit(PendingWrites, "hold_again", "extendleft(reversed(batch))", "extendleft(reversed(batch + batch))"),),
        first_seed=46,
    ),
    Mutant(
        "who waits for a revision is told one too early",
        ("read_levels",),
        (Edit(Waiters, "reached_revision", "<= revision", "<= revision + 1"),),
    ),
    # State on disk
    Mutant(
        "a start replays from one message too late",
        (),
        (Edit(Store, "_replay", "self.green.line, _REPLAY", "self.green.line + 1, _REPLAY"),),
    ),
    Mutant(
        "a checkpoint goes beyond the green line on disk",
        ("durable_tree",),
        (Edit(GreenState, "take_checkpoint", "checkpoint.line > line_max or ", ""),),
    ),
    Mutant(
        "idempotency keys do not reach the tree",
        ("durable_tree",),
        (
            Edit(
                GreenState,
                "take_checkpoint",
                "self._taken = checkpoint",
                "self._taken = checkpoint; checkpoint.memories = {}",
            ),
        ),
    ),
    Mutant(
        "a checkpoint on its way still grows",
        ("durable_tree",),
        (Edit(GreenState, "_growing", " or self._checkpoints[-1] is self._taken", ""),),
    ),
    Mutant(
        "a checkpoint that is written takes later changes with it",
        (),
        (Edit(GreenState, "written", "if self._items[key][1] is checkpoint:", "if True:"),),
    ),
    # What writes do
    Mutant(
        "a rejected write gets a revision",
        ("equal_states", "durable_tree"),
        (Edit(GreenState, "_absorb", "if done.changes:", "if True:"),),
    ),
    Mutant(
        "a fate is one position off",
        ("equal_states",),
        (Edit(GreenState, "apply", "Fate(self.line, ", "Fate(self.line + 1, "),),
    ),
    Mutant(
        "an idempotency key may be used again for another write",
        ("equal_states", "idempotency"),
        (
            Edit(green_state, "apply", "if known.digest != digest:", "if False:"),
            Edit(red_state, "apply", "if known.digest != digest:", "if False:"),
        ),
    ),
    Mutant(
        "a copy past its expiry is applied",
        ("idempotency", "durable_tree", "equal_states", "read_levels"),
        (
            Edit(green_state, "apply", "position > expires", "False"),
            Edit(red_state, "apply", "position > expires", "False"),
        ),
    ),
    Mutant(
        "a copy never expires",
        ("idempotency",),
        (Edit(Store, "_send_batch", "expiry_of(batch[0].line)", "10**9"),),
    ),
    Mutant(
        "a copy expires by when it was sent, not by when it came",
        (),
        (Edit(Store, "_send_batch", "batch[0].line", "self._log.queue.green"),),
        test=test_expiry.test_a_copy_expires_by_what_its_node_knew_when_it_came_not_when_it_was_sent,
    ),
    Mutant(
        "red messages count for when a copy expires",
        (),
        (
            Edit(
                Store,
                "write",
                "self._log.queue.green",
                "self._log.queue.green + len(list(self._log.queue))",
            ),
        ),
        test=test_expiry.test_a_copy_that_waited_behind_many_red_messages_is_not_applied_again,
    ),
    Mutant(
        "idempotency keys of green writes are forgotten",
        ("durable_tree", "equal_states"),
        (Edit(GreenState, "_absorb", "if done.remembered is not None", "if not done.remembered"),),
    ),
    Mutant(
        "a write whose conditions fail is applied",
        (),
        (Edit(state, "_apply_new", "if failed is not None and write.otherwise is None:", "if False:"),),
    ),
    # The red state
    Mutant(
        "the red state is not made anew when the order changes",
        ("read_levels",),
        (Edit(RedState, "refresh", "self._entries != list(entries[:known])", "False"),),
        first_seed=3,
    ),
    Mutant(
        "the red state knows nothing of idempotency keys that are not green",
        ("read_levels",),
        (Edit(RedState, "remembered", "known if known is not None else ", ""),),
        first_seed=39,
    ),
    # The node
    Mutant(
        "the back-off does not grow",
        (),
        (Edit(BackOff, "failed", "2.0 if", "1.0 if"),),
        test=test_back_off.test_a_pause_doubles_when_a_return_is_soon_followed_by_a_failure,
    ),
    Mutant(
        "the back-off never shrinks",
        (),
        (Edit(BackOff, "failed", "2.0 if good_times == 0 else", "2.0 if True else"),),
        test=test_back_off.test_it_is_halved_for_each_good_time,
    ),
    Mutant(
        "a round without an end",
        (),
        (Edit(AdaptiveWait, "tick", "self.is_over = True", "pass"),),
        test=test_store.test_it_waits_so_for_round_ms_at_the_most,
    ),
    Mutant(
        "the red state lacks what is green and not applied",
        ("read_levels",),
        (Edit(Store, "_refresh_red", "entries = [*self._backlog, *queue]", "entries = [*queue]"),),
        test=test_store.test_many_green_messages_are_applied_in_turns,
    ),
]


def broken_property(seed: int, nodes: tuple[int, int]) -> str | None:
    return what_breaks(lambda: StoreRun(draw_store_plan(seed, *nodes)).run())
