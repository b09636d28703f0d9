"""One-line bugs in the store, and what notices them: a directed test, or seeds.

Not here, because nobody can notice: that an answer to an old probe is ignored (the view it was sent in is over, so
none comes), and that green messages which were applied already are skipped (none is reported twice)."""

from __future__ import annotations

from kvstore import green_state, red_state, state
from kvstore.green_state import GreenState
from kvstore.machine import Machine
from kvstore.red_state import RedState
from kvstore.rounds import Rounds
from tests.kvstore import test_machine
from tests.simulator.mutation import Edit, Mutant, what_breaks
from tests.simulator.store_layer import StoreRun
from tests.simulator.store_plan import draw_store_plan
from tests.simulator.test_store_directed import (
    test_outside_a_primary_component_a_write_is_accepted_when_it_is_logged_not_before,
)

MUTANTS = [
    # Linearizable reads
    Mutant(
        "a linearizable read does not probe",
        ("linearizable",),
        (Edit(Machine, "_begin_probe", "self._probe(self._probe_number)", "self.proven(self._probe_number)"),),
        first_seed=55,
    ),
    Mutant(
        "a linearizable read does not wait for what is open",
        ("linearizable",),
        (Edit(Machine, "_begin_probe", "last = self._last_open()", "last = None"),),
        test=test_machine.test_a_linearizable_read_waits_for_everybody_and_for_what_is_open,
    ),
    Mutant(
        "a linearizable read does not wait for what is green to be applied",
        ("linearizable",),
        (Edit(Machine, "_release_readers", "if self.green.line < reader.line:", "if False:"),),
        first_seed=48,
    ),
    Mutant(
        "a linearizable read joins the probe under way",
        ("linearizable",),
        (
            Edit(
                Machine,
                "when_linearizable",
                "self._readers.append(_Reader(once))",
                "(self._probed or self._readers).append(_Reader(once))",
            ),
        ),
        test=test_machine.test_readers_who_come_while_one_asks_wait_for_the_next_question,
    ),
    Mutant(
        "readers are proven by a probe of a view that is over",
        (),
        (Edit(Machine, "stage_changed", "if stage is not Stage.PRIMARY:", "if False:"),),
    ),
    Mutant(
        "a linearizable read is served outside a primary component",
        ("linearizable",),
        (Edit(Machine, "_begin_probe", "reader.once(Trouble.NO_PRIMARY)", "reader.once(None)"),),
    ),
    # What a write is told
    Mutant(
        "a write is called done when it is logged",
        (),
        (
            Edit(
                Machine,
                "logged",
                "self._accept(waiting)",
                'done = Applied(Outcome("applied", self.green.revision + 1), {}); '
                "self._answer(waiting, Done(waiting.write_id, done))",
            ),
        ),
    ),
    Mutant(
        "a write is accepted when it is sent",
        ("acknowledged_writes",),
        (Edit(Machine, "_send_batch", "_Progress.SENT", "_Progress.LOGGED"),),
        first_seed=11,
    ),
    Mutant(
        "outside a primary component a write is accepted that is not logged",
        ("acknowledged_writes",),
        (Edit(Machine, "stage_changed", "waiting.progress is _Progress.LOGGED and ", ""),),
        test=test_outside_a_primary_component_a_write_is_accepted_when_it_is_logged_not_before,
    ),
    Mutant(
        "a withdrawn write is sent",
        ("refused", "answered", "WriteError"),
        (Edit(Machine, "_next_batch", "if waiting.progress is _Progress.ANSWERED:", "if False:"),),
    ),
    Mutant(
        "a write that is refused for want of a primary component is sent",
        ("refused",),
        (
            Edit(
                Machine,
                "_next_batch",
                "self._answer(waiting, Failed(Trouble.NO_PRIMARY))\n            continue",
                "self._answer(waiting, Failed(Trouble.NO_PRIMARY))",
            ),
        ),
    ),
    Mutant(
        "writes of one message get each other's outcomes",
        ("acknowledged_writes",),
        (Edit(Machine, "_on_applied", "applied[waiting.index]", "applied[-1 - waiting.index]"),),
    ),
    Mutant(
        "a write that the log had no room for is sent twice",
        (),
        (Edit(Machine, "_hold_again", "extendleft(reversed(batch))", "extendleft(reversed(batch + batch))"),),
        first_seed=36,
    ),
    Mutant(
        "who waits for a revision is told one too early",
        ("read_levels",),
        (Edit(Machine, "work", "<= self.green.revision", "<= self.green.revision + 1"),),
    ),
    # State on disk
    Mutant(
        "a start replays from one message too late",
        (),
        (Edit(Machine, "_replay", "self.green.line, _REPLAY_AT_ONCE", "self.green.line + 1, _REPLAY_AT_ONCE"),),
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
        first_seed=59,
    ),
    Mutant(
        "the red state knows nothing of idempotency keys that are not green",
        ("read_levels",),
        (Edit(RedState, "remembered", "known if known is not None else ", ""),),
        first_seed=27,
    ),
    Mutant(
        "a round without an end",
        (),
        (Edit(Rounds, "tick", "self._is_over = True", "pass"),),
        test=test_machine.test_it_waits_so_for_round_ms_at_the_most,
    ),
    Mutant(
        "the red state lacks what is green and not applied",
        ("read_levels",),
        (Edit(Machine, "_refresh", "entries = [*self._backlog, *queue]", "entries = [*queue]"),),
        test=test_machine.test_many_green_messages_are_applied_in_turns,
    ),
]


def broken_property(seed: int, nodes: tuple[int, int]) -> str | None:
    return what_breaks(lambda: StoreRun(draw_store_plan(seed, *nodes)).run())
