"""One-line bugs in the store and in the node around it, and what notices them: a directed test, or seeds.

Not here, because nobody can notice: that an answer to an old primary check is ignored (the view it was sent in is
over, so none comes), and that green messages which were applied already are skipped (none is reported twice)."""

from __future__ import annotations

from corel.adaptive_wait import AdaptiveWait
from corel.view_recovery import ViewRecovery
from kvstore.node.back_off import BackOff
from kvstore.store import green_state, red_state, state
from kvstore.store.feed import Feed
from kvstore.store.green_state import GreenState
from kvstore.store.history import Snapshot
from kvstore.store.order_run import Run
from kvstore.store.pending_writes import PendingWrites
from kvstore.store.red_state import RedState
from kvstore.store.state import Basis, Tombstone
from kvstore.store.store import Store
from kvstore.store.tentative_feed import TentativeFeed, TentativeWatcher
from kvstore.store.waiters import Waiters
from tests.kvstore.node import test_back_off
from tests.kvstore.store import (
    test_conflicts,
    test_expiry,
    test_feed,
    test_merge,
    test_order_run,
    test_past_on_disk,
    test_red_state,
    test_store,
    test_tentative_feed,
)
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
        first_seed=34,
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
        first_seed=6,
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
                "self._answer(write, Done(write.write_id, done), Color.GREEN)",
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
                "self._fail(write, Trouble.NO_PRIMARY)\n            continue",
                "self._fail(write, Trouble.NO_PRIMARY)",
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
        ("idempotency", "durable_tree", "equal_states", "read_levels", "tentative_seen"),
        (
            Edit(green_state, "apply", "position > expires", "False"),
            Edit(red_state, "apply", "position > expires", "False"),
        ),
    ),
    Mutant(
        "a copy never expires",
        ("idempotency",),
        (Edit(Store, "_send_batch", "expiry_of(batch[0].line)", "10**9"),),
        first_seed=45,
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
        ("read_levels", "previewed"),
        (Edit(RedState, "refresh", "self._entries != list(entries[:known])", "False"),),
        first_seed=3,
    ),
    Mutant(
        "the red state knows nothing of idempotency keys that are not green",
        ("read_levels", "previewed"),
        (Edit(RedState, "remembered", "known if known is not None else ", ""),),
        first_seed=39,
    ),
    # Merges
    Mutant(
        "a write conflicts with what its own node sent before",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(Basis, "has", ' or stream == write_id.rsplit(".", 2)[0]', ""),),
        first_seed=9,
    ),
    Mutant(
        "a basis says nothing of what is not green",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(Store, "_basis", "in self._log.queue.have()}", "in ()}"),),
    ),
    Mutant(
        "a basis says nothing of what is green and not applied",
        (),
        (Edit(Store, "_basis", "for entry in self._backlog:", "for entry in ():"),),
        test=test_merge.test_what_is_green_and_not_applied_is_known,
    ),
    Mutant(
        "a basis knows one revision too many",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(Store, "_basis", "Basis(self.green.revision,", "Basis(self.green.revision + 1,"),),
    ),
    Mutant(
        "writes conflict in a primary component",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(Store, "_basis", "self._log.queue.green if self._log.stage is Stage.PRIMARY else None", "None"),),
    ),
    Mutant(
        "a write whose primary component ended first meets no conflict",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(Run, "judged_by", "self.start <= basis.line", "True"),),
        test=test_order_run.test_a_write_whose_primary_component_ended_first_conflicts_with_what_the_next_one_wrote,
    ),
    Mutant(
        "messages of another view do not end a run",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(Run, "followed_by", "self if view == self.view else Run(view, position)", "self"),),
        test=test_order_run.test_a_write_whose_primary_component_ended_first_conflicts_with_what_the_next_one_wrote,
    ),
    Mutant(
        "every message begins a run",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(Run, "followed_by", "self if view == self.view else ", ""),),
    ),
    Mutant(
        "a message seems to be sent when one message less was green",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(Store, "_basis", "self._log.queue.green if", "self._log.queue.green - 1 if"),),
        test=test_merge.test_in_a_component_that_is_primary_a_write_never_yields,
    ),
    Mutant(
        "the run is not in the checkpoint",
        ("conflicts_found", "equal_states", "durable_tree"),
        (
            Edit(
                GreenState,
                "apply",
                "self.line, self.revision, self.run\n",
                "self.line, self.revision, checkpoint.run\n",
            ),
        ),
        test=test_order_run.test_the_run_is_known_after_a_start_from_a_checkpoint,
    ),
    Mutant(
        "a write does not yield to a deletion",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(GreenState, "last_change", "None if deleted is None else deleted.seen_from(position)", "None"),),
    ),
    Mutant(
        "a deletion is a reason to yield for ever",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(Tombstone, "seen_from", "> IDEMPOTENCY_POSITIONS", "> 10**9"),),
        test=test_merge.test_a_deletion_is_no_reason_to_yield_for_ever,
    ),
    Mutant(
        "a red deletion is a reason to yield for ever",
        (),
        (Edit(RedState, "last_change", "if known.item is None:", "if False:"),),
        test=test_red_state.test_a_write_yields_to_what_is_not_green_either_but_not_to_a_deletion_of_long_ago,
    ),
    Mutant(
        "a deletion in a checkpoint is looked for in the tree",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(GreenState, "last_change", "if known is None else known[1].tombstones[key]", ""),),
    ),
    Mutant(
        "a write that yields changes something",
        (),
        (
            Edit(
                state,
                "_apply_new",
                "return Applied(outcome, {}, (), None,",
                "return Applied(outcome, changes, (), None,",
            ),
        ),
    ),
    Mutant(
        "a transaction yields by its first key alone",
        ("conflicts_found", "equal_states", "durable_tree"),
        (Edit(state, "_apply_new", "ConflictKind.YIELDED, changes,", "ConflictKind.YIELDED, list(changes)[:1],"),),
        test=test_merge.test_any_key_of_a_transaction_makes_it_yield,
    ),
    Mutant(
        "what yielded is not remembered by its key",
        ("equal_states", "durable_tree", "idempotency"),
        (
            Edit(
                GreenState,
                "_absorb",
                "if done.remembered is not None and",
                "if done.remembered is not None and done.outcome.verdict != 'yielded' and",
            ),
        ),
    ),
    Mutant(
        "increments are conflicts",
        ("conflicts_found",),
        (Edit(state, "_apply_new", "[key for key in changes if key in replaced]", "list(changes)"),),
    ),
    Mutant(
        "that a write did its else is no conflict",
        ("conflicts_found",),
        (Edit(state, "_apply_new", "if failed is not None:", "if False:"),),
        test=test_conflicts.test_to_do_something_else_is_a_conflict_though_nothing_is_overwritten,
    ),
    Mutant(
        "conflicts are shown twice while a checkpoint is being written",
        ("conflicts_found",),
        (Edit(GreenState, "conflicts", "if conflict.place > last", "if conflict.place > after"),),
        test=test_conflicts.test_conflicts_are_paged_while_a_checkpoint_is_being_written,
    ),
    # The past
    Mutant(
        "a snapshot has one revision too few",
        ("past_is_past",),
        (Edit(GreenState, "snapshot", "if change.revision <= revision:", "if change.revision < revision:"),),
    ),
    Mutant(
        "the last revision but one is taken for the last",
        ("past_is_past",),
        (Edit(GreenState, "snapshot", "revision >= self.revision", "revision >= self.revision - 1"),),
    ),
    Mutant(
        "one key is read one revision too early",
        ("past_is_past",),
        (Edit(GreenState, "item_at", "revision + 1 - checkpoint", "revision - checkpoint"),),
    ),
    Mutant(
        "a list has keys that are newer in memory twice",
        ("past_is_past",),
        (Edit(Snapshot, "walk", "continue  # the newer item is yielded next", "pass"),),
    ),
    Mutant(
        "what was deleted is read from the disk",
        ("past_is_past",),
        (Edit(Snapshot, "item", "if key in self._overlay:", "if self._overlay.get(key):"),),
    ),
    Mutant(
        "changes in memory are read one revision too late",
        ("watched_once", "tentative_seen"),
        (Edit(GreenState, "changes", "checkpoint.changes[0].revision\n", "checkpoint.changes[0].revision + 1\n"),),
    ),
    Mutant(
        "changes on disk are looked for in memory",
        ("watched_once", "store.watcher", "tentative_seen"),
        (Edit(GreenState, "changes", "if skipped < 0:", "if False:"),),
    ),
    Mutant(
        "versions are shown twice while a checkpoint is being written",
        ("past_is_past",),
        (Edit(GreenState, "versions", "found[-1][0] if found else before", "before"),),
        test=test_past_on_disk.test_versions_that_are_on_disk_and_still_in_memory_are_shown_once,
    ),
    Mutant(
        "versions are shown that are forgotten",
        ("past_is_past",),
        (Edit(GreenState, "versions", "if forgotten < change.revision < before", "if change.revision < before"),),
        test=test_past_on_disk.test_versions_that_are_forgotten_on_disk_and_still_in_memory_are_not_shown,
    ),
    Mutant(
        "one revision too many is forgotten",
        ("kept_past",),
        (
            Edit(
                GreenState,
                "_forget_through",
                "[self.revision - self._history_revisions,",
                "[self.revision + 1 - self._history_revisions,",
            ),
        ),
    ),
    Mutant(
        "a revision that is being read is forgotten",
        ("kept_past",),
        (Edit(GreenState, "_forget_through", ", *self._pins]", "]"),),
    ),
    # Feeds
    Mutant(
        "a watcher is woken by the first key of a change only",
        ("watched_once",),
        (Edit(Feed, "_interested", "for key in keys:", "for key in list(keys)[:1]:"),),
        test=test_feed.test_a_watcher_is_woken_once_by_the_first_change_of_interest,
    ),
    Mutant(
        "a key is not among those that begin with it",
        ("watched_once",),
        (Edit(Feed, "_interested", "if length > len(key):", "if length >= len(key):"),),
        test=test_feed.test_watchers_of_a_key_of_prefixes_of_all_lengths_and_of_everything,
    ),
    Mutant(
        "prefixes are not measured again when the last of them goes",
        (),
        (Edit(Feed, "cancel", "if was_there and prefix not in self._by_prefix:", "if False:"),),
        test=test_feed.test_a_prefix_that_nobody_waits_for_any_more_costs_nothing,
    ),
    Mutant(
        "a watcher of a prefix cannot cancel",
        (),
        (Edit(Feed, "cancel", "was_there := _discard(self._by_prefix, prefix, waiting)", "was_there := True"),),
    ),
    Mutant(
        "who was cancelled by one that was woken before is woken too",
        (),
        (Edit(Feed, "_wake", "if self.cancel(waiting):", "self.cancel(waiting)\n        if True:"),),
        test=test_feed.test_who_is_cancelled_while_others_are_woken_is_not_woken,
    ),
    Mutant(
        "the first write of a message wakes watchers, and the others do not",
        ("watched_once",),
        (Edit(Store, "_on_applied", "for done in applied:", "for done in applied[:1]:"),),
    ),
    Mutant(
        "watchers are woken with the revision after the change",
        ("watched_once",),
        (
            Edit(
                Store,
                "_on_applied",
                "self.feed.changed(done.outcome.revision,",
                "self.feed.changed(done.outcome.revision + 1,",
            ),
        ),
    ),
    Mutant(
        "watchers are not woken when the node leaves",
        (),
        (Edit(Store, "leave", "self.end_feeds()", "pass"),),
        test=test_feed.test_a_store_wakes_by_revision_and_only_when_something_changed,
    ),
    # What is not green
    Mutant(
        "a tentative write that changed nothing of interest has no end",
        ("tentative_seen",),
        (Edit(TentativeFeed, "applied", "any(map(watcher.interest.has, done.changes))", "bool(done.changes)"),),
        test=test_tentative_feed.test_a_write_that_changed_nothing_of_interest_is_settled_for_whom_it_had_appeared_to,
    ),
    Mutant(
        "a tentative write that changed something is settled too",
        ("tentative_seen",),
        (Edit(TentativeFeed, "applied", "if not is_change and ", "if "),),
    ),
    Mutant(
        "tentative watchers do not hear that the log was reordered",
        ("tentative_seen",),
        (Edit(Store, "handle", "isinstance(report, Reordered) and self.tentative_feed", "False"),),
        test=test_tentative_feed.test_a_write_is_yellow_from_the_commitment_on,
    ),
    Mutant(
        "nobody hears of what is yellow before all have committed",
        ("tentative_seen",),
        (
            Edit(
                ViewRecovery,
                "_on_attempt",
                "self._decide_yellow(effects)\n    effects.append(Reordered())",
                "self._decide_yellow(effects)",
            ),
        ),
        test=test_tentative_feed.test_a_write_is_yellow_from_the_commitment_on,
    ),
    Mutant(
        "what is green and not applied is called red again",
        ("tentative_seen",),
        (Edit(TentativeFeed, "_recolor", "if is_green or message_id in yellow", "if message_id in yellow"),),
        test=test_tentative_feed.test_what_is_green_and_waits_to_be_applied_is_not_called_red_again,
    ),
    Mutant(
        "who does not read changes is not told how a write ended that changed something",
        ("tentative_seen",),
        (Edit(TentativeFeed, "applied", "watcher.reads_changes and ", ""),),
    ),
    Mutant(
        "who has not seen a write is told that its colour changed",
        ("tentative_seen",),
        (Edit(TentativeFeed, "_recolor", "self._that_have_seen(message_id)", "list(self._watchers)"),),
        test=test_tentative_feed.test_what_is_green_before_it_was_seen_does_not_appear,
    ),
    Mutant(
        "a watcher that lost events is not told",
        ("tentative_seen",),
        (Edit(TentativeWatcher, "add", "self.is_behind = True", "return"),),
    ),
    Mutant(
        "a preview begins with the red state",
        ("previewed",),
        (
            Edit(
                RedState,
                "preview",
                "changes = tuple([(key, again.item(key),",
                "changes = tuple([(key, self.item(key),",
            ),
        ),
    ),
    Mutant(
        "a preview has the colours of before",
        ("previewed",),
        (
            Edit(
                RedState,
                "refresh",
                "self._yellows, self._preview_state = yellows, None",
                "self._yellows = yellows",
            ),
        ),
        test=test_conflicts.test_a_preview_has_the_present_colours,
    ),
    Mutant(
        "a preview judges nothing by what senders knew",
        ("previewed",),
        (Edit(RedState, "_apply", "self._run.judged_by(batch.basis)", "None"),),
        test=test_conflicts.test_a_preview_judges_writes_by_what_their_senders_knew,
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
    return what_breaks(lambda: StoreRun(draw_store_plan(seed, *nodes, is_truncated=False)).run())
