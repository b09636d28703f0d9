"""One-line bugs in COREL, and what notices them: a directed test, or seeds. `make mutants` tries each and prints
the table of `docs/bugs.md`.

Not here, because nobody can notice: that commits need equal digests (no two have ever differed), and whatever
costs only time."""

from __future__ import annotations

from corel import (
    message_queue,
    quorum,
    recovery_plan,
    recovery_transfer,
    trial_write,
    view_recovery,
)
from corel.acknowledgements import Acknowledgements
from corel.corel import Corel
from corel.log_state import LogState
from corel.log_writer import LogWriter
from corel.message_queue import MessageQueue
from corel.outbox import Outbox
from corel.recovery_transfer import RecoveryTransfer
from corel.replica import Replica
from corel.retransmission import Merge
from corel.view_recovery import ViewRecovery
from kvstore.node.coming_back import ComingBack
from tests.corel import (
    test_generations,
    test_message_queue,
    test_participation,
    test_replica,
    test_traps,
    test_trial_write,
)
from tests.simulator.corel import log_process, memory_log, test_disk_failures
from tests.simulator.corel.absence import Absence
from tests.simulator.corel.log_process import LogProcess
from tests.simulator.corel.plan import draw_corel_plan
from tests.simulator.corel.run import CorelRun
from tests.simulator.membership.process import GroupProcess
from tests.simulator.mutation import Edit, Mutant, what_breaks
from transport.codec import Codec

SEEDS_MAX = 12
"""A test run looks at so many seeds for each."""

_VOTE = "Vote(claim.voter_since, member.incarnation)"

MUTANTS = [
    # Persist before you speak
    Mutant(
        "messages are acknowledged before they are on disk",
        (),
        (
            Edit(
                Corel,
                "_flush",
                "self._state.flush(self._is_open and len(self.view.members) > 1, effects)",
                "before = len(effects); "
                "self._state.flush(self._is_open and len(self.view.members) > 1, effects); "
                "points = self._writer._points_under_way; "
                "mark = Mark(self._acknowledgements.logged_here(points), self.view.id); "
                "effects += [mark] * (len(effects) - before)",
            ),
        ),
        first_seed=73,
    ),
    Mutant(
        "the state is told before everything is on disk",
        (),
        (Edit(ViewRecovery, "begin", "self._writer.then(self._send_state)", "self._send_state(effects)"),),
        first_seed=20,
    ),
    Mutant(
        "the attempt is told before it is on disk",
        (),
        (
            Edit(
                ViewRecovery,
                "_establish",
                "self._writer.then(lambda later: self._multicast(attempt, later))",
                "self._multicast(attempt, effects)",
            ),
        ),
        test=test_traps.test_1_the_attempt_is_told_when_it_is_on_disk,
    ),
    Mutant(
        "the commitment is told before it is on disk",
        (),
        (
            Edit(
                ViewRecovery,
                "_on_attempt",
                "self._writer.then(lambda later: self._multicast(commit, later))",
                "self._multicast(commit, effects)",
            ),
        ),
        test=test_traps.test_1_the_commitment_is_told_when_it_is_on_disk_together_with_the_yellow_marking,
    ),
    Mutant(
        "that a message is yellow is not on disk",
        (),
        (Edit(Corel, "_take", "entry.primary = self.committed", "pass"),),
    ),
    Mutant(
        "the last attempt is forgotten at a restart",
        (),
        (Edit(LogWriter, "_lines_now", "attempted=primaries.attempted,", "attempted=primaries.committed,"),),
        test=test_traps.test_1_the_attempt_is_told_when_it_is_on_disk,
    ),
    Mutant(
        "the last commitment is forgotten at a restart",
        (),
        (Edit(LogWriter, "_lines_now", "committed=primaries.committed,", "committed=0,"),),
    ),
    Mutant(
        "the adopted order is not on disk with the number (step 6)",
        (),
        (Edit(ViewRecovery, "_adopt", "self._decide_yellow(effects)", "self._writer.touch()"),),
        test=test_traps.test_4_the_retreat_is_on_disk,
    ),
    Mutant(
        "the order committed to is not on disk",
        (),
        (Edit(ViewRecovery, "_on_attempt", "self._decide_yellow(effects)", "self._writer.touch()"),),
    ),
    Mutant(
        "yellow messages of before a decision are still yellow after a restart",
        (),
        (Edit(LogWriter, "decide_yellow", "self._tail_from = self._next_arrival", "pass"),),
        test=test_traps.test_4_the_retreat_is_on_disk,
    ),
    Mutant(
        "the yellow zone on disk is read from its beginning",
        (),
        (Edit(memory_log, "restore", "max(0, lines.green - yellow.position)", "0"),),
    ),
    Mutant(
        "what is not green is looked for too late in the log",
        (),
        (Edit(LogWriter, "_lines_now", "default=self._next_arrival", "default=0) or (self._next_arrival"),),
    ),
    # Order Rule 1
    Mutant(
        "a majority's acknowledgements make green",
        (),
        (
            Edit(
                Acknowledgements,
                "everywhere",
                "[min(column) for column in",
                "[sorted(column)[(len(column) - 1) // 2] for column in",
            ),
        ),
    ),
    Mutant(
        "one's own disk makes green",
        (),
        (
            Edit(
                Acknowledgements,
                "everywhere",
                "[min(column) for column in zip(*self._marks.values(), strict=True)]",
                "self._marks[self._me]",
            ),
        ),
    ),
    Mutant(
        "messages become green before their order is known",
        (),
        (Edit(Corel, "_advance_green", "entry.timestamp > through or ", ""),),
    ),
    Mutant(
        "what a view's end settles becomes green",
        (),
        (
            Edit(
                Corel,
                "delivered",
                "if not is_closing:",
                "if True:",
            ),
        ),
        test=test_traps.test_4_what_the_end_of_a_view_settles_is_not_final,
    ),
    # Establishment
    Mutant(
        "half is a majority",
        (),
        (Edit(quorum.Roster, "is_majority", "> self.total", ">= self.total"),),
        first_seed=15,
    ),
    Mutant(
        "a majority's commitments establish",
        (),
        (
            Edit(
                ViewRecovery,
                "_on_commit",
                "len(self._commits) < len(self._view.members)",
                "2 * len(self._commits) <= len(self._view.members)",
            ),
        ),
        test=test_traps.test_regular_messages_wait_in_the_queue_until_the_recovery_is_over,
    ),
    Mutant(
        "attempts alone establish",
        (),
        (
            Edit(
                ViewRecovery,
                "_on_attempt",
                "self._writer.then(lambda later: self._multicast(commit, later))",
                "self._commits.update(self._view.members); self._on_commit(self._me, commit, effects)",
            ),
        ),
        test=test_traps.test_1_the_commitment_is_told_when_it_is_on_disk_together_with_the_yellow_marking,
    ),
    Mutant(
        "attempts are numbered from the lowest",
        (),
        (Edit(view_recovery, "make_plan", "attempted=max(", "attempted=min("),),
    ),
    Mutant(
        "attempts are numbered from the last commitment",
        (),
        (Edit(ViewRecovery, "_establish", "self._the_plan().attempted + 1", "self._the_plan().committed + 1"),),
        test=test_traps.test_3_the_next_attempt_is_higher_than_any_that_any_member_knows_of,
    ),
    # Recovery
    Mutant(
        "the lowest green line counts",
        (),
        (Edit(view_recovery, "make_plan", "green = max(", "green = min("),),
        first_seed=80,
    ),
    Mutant(
        "those who know least represent",
        (),
        (Edit(view_recovery, "make_plan", "most = max(", "most = min("),),
    ),
    Mutant(
        "the yellow line does not retreat",
        (),
        (
            Edit(
                recovery_plan,
                "_common_length",
                "return len(shortest)",
                "return max(len(zone) for zone in zones)",
            ),
        ),
    ),
    Mutant(
        "yellow zones are compared by length alone",
        (),
        (
            Edit(
                recovery_plan,
                "_common_length",
                "if any(zone[place] != message_id for zone in zones):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "representatives keep what they had yellow",
        (),
        (Edit(ViewRecovery, "_adopt", "demoted = queue.retreat(plan.yellow)", "demoted = []"),),
    ),
    Mutant(
        "priority messages take their place by timestamp",
        (),
        (
            Edit(
                MessageQueue,
                "adopt",
                "self.yellow = zone\n",
                "self.yellow = sorted(zone, key=_timestamp_of)\n",
            ),
        ),
        first_seed=25,
    ),
    Mutant(
        "red messages are in the order of their coming",
        (),
        (Edit(MessageQueue, "_to_red", "self._is_red_sorted = False", "pass"),),
    ),
    Mutant(
        "retransmitted messages get the retransmission's timestamp",
        (),
        (
            Edit(
                RecoveryTransfer,
                "on_reds",
                "self._accept(copy, ",
                "self._accept(copy._replace(clock=message.clock), ",
            ),
        ),
    ),
    Mutant(
        "messages are handled before the recovery is over",
        (),
        (Edit(Corel, "_on_received", "if self._is_open:", "if True:"),),
    ),
    Mutant(
        "bodies are left out where anybody has them",
        (),
        (Edit(RecoveryTransfer, "_priority_batches", "is_everywhere = all(", "is_everywhere = any("),),
    ),
    Mutant(
        "the first of the missing red messages is not retransmitted",
        (),
        (
            Edit(
                recovery_transfer,
                "red_shares",
                "Share(stream, after, through)",
                "Share(stream, after + 1, through)",
            ),
        ),
    ),
    Mutant(
        "retransmissions are not merged",
        (),
        (Edit(Merge, "add", "while all(self._waiting[sender] for sender in self._unfinished):", "while True:"),),
    ),
    # Generations
    Mutant(
        "members of different generations agree",
        (),
        (Edit(view_recovery, "make_plan", "[member for member in members if states[member].is_bound],", "[],"),),
        test=test_generations.test_members_of_different_generations_take_nothing_from_each_other_and_nobody_stops,
    ),
    Mutant(
        "a minority of another generation stops",
        (),
        (Edit(view_recovery, "make_plan", "OtherGenerations,", "Contradiction,"),),
        test=test_generations.test_members_of_different_generations_take_nothing_from_each_other_and_nobody_stops,
    ),
    Mutant(
        "the first commitment is not reported",
        (),
        (Edit(ViewRecovery, "_on_attempt", "if not was_bound:", "if False:"),),
        test=test_generations.test_the_first_commitment_is_reported_so_that_datagrams_carry_the_generation_at_once,
    ),
    Mutant(
        "a generation is drawn anew with every attempt",
        (),
        (Edit(recovery_plan, "_generation", "if last.attempted or last.is_bound:", "if last.is_bound:"),),
        test=test_generations.test_without_a_commitment_the_last_attempt_decides_by_its_number_then_by_its_view,
    ),
    Mutant(
        "the generation is not on disk with the attempt",
        (),
        (Edit(LogWriter, "_lines_now", "generation=primaries.generation", "generation=bytes(16)"),),
        test=test_generations.test_generations_are_bound_by_the_first_commitment_and_kept,
    ),
    Mutant(
        "datagrams of another generation are let in",
        (),
        (Edit(Codec, "_check_header", "if _UNBOUND not in (ours, theirs):", "if False:"),),
        first_seed=39,
    ),
    Mutant(
        "an empty disk is bound only when it has adopted an order",
        (),
        (
            Edit(ViewRecovery, "_on_state", "if plan.is_generation_final and", "if False and"),
            Edit(
                ViewRecovery,
                "_adopt",
                "self._decide_yellow(effects)",
                "self._state.bind(plan.generation); self._decide_yellow(effects)",
            ),
        ),
        test=test_generations.test_an_empty_disk_is_bound_before_it_takes_any_message_of_the_generation_that_it_meets,
    ),
    Mutant(
        "digests cover ids, not bodies",
        (),
        (Edit(message_queue, "chained", " + entry.body_digest", ""),),
        test=test_message_queue.test_a_digest_covers_bodies_also_when_they_are_no_longer_in_memory,
    ),
    Mutant(
        "green prefixes are not compared at every member's line",
        (),
        (Edit(RecoveryTransfer, "on_green_digests", "if differing:", "if False:"),),
        test=test_generations.test_a_shorter_green_prefix_with_another_body_is_noticed_before_anything_is_taken,
    ),
    # A disk that was full
    Mutant(
        "a trial write is small",
        (),
        (Edit(trial_write, "_needed_bytes", "measured = _Measured(transaction)", "return 8"),),
        test=test_trial_write.test_where_a_large_message_has_no_room_a_trial_has_none_either,
    ),
    Mutant(
        "a trial write does not know how large the failed one was",
        (),
        (Edit(trial_write, "_needed_bytes", "if refused is not None:", "if False:"),),
        test=test_trial_write.test_where_a_large_message_has_no_room_a_trial_has_none_either,
    ),
    Mutant(
        "a trial write stays",
        (),
        (Edit(trial_write, "remove_trial", "if is_there:", "if False:"),),
        test=test_trial_write.test_a_trial_that_succeeds_leaves_no_value,
    ),
    # A disk that fails again and again
    Mutant(
        "the back-off is forgotten with the incarnation",
        (),
        (Edit(ComingBack, "failed", "self._back_off.failed(now)", "BackOff().failed(now)"),),
        test=test_disk_failures.test_a_disk_that_takes_trials_and_refuses_writes_disturbs_the_others_less_and_less,
    ),
    Mutant(
        "a trial write is small, and the disk of a node is full",
        (),
        (Edit(trial_write, "_needed_bytes", "measured = _Measured(transaction)", "return 8"),),
        test=test_disk_failures.test_a_node_whose_disk_is_full_leaves_the_others_once_reads_and_comes_back_with_everything,
    ),
    Mutant(
        "a node comes back without a trial write",
        (),
        (Edit(ComingBack, "come_back", "await node.try_write()", "pass"),),
        test=test_disk_failures.test_when_all_are_full_together_nothing_flaps_and_all_recover_when_there_is_room,
    ),
    Mutant(
        "a log is not opened again",
        (),
        (Edit(Absence, "reopen_log", "self._log().space.reopen_if_unusable()", "pass"),),
        first_seed=1,
    ),
    Mutant(
        "a write that the disk refused counts as persisted",
        (),
        (Edit(LogProcess, "_persisted", "self._apply(effect.write)", "self._is_applied(effect.write)"),),
    ),
    # Identity
    Mutant(
        "an empty disk votes",
        (),
        (Edit(view_recovery, "make_plan", "if states[member].is_voter and member not in doubted]", "]"),),
        test=test_traps.test_7_a_disk_that_forgot_does_not_vote,
    ),
    Mutant(
        "the elder of two disks of a node keeps its vote",
        (),
        (
            Edit(
                recovery_plan, "doubts", "Vote(claim.voter_since, member.incarnation) < participant.vote", "False"
            ),
        ),
        test=test_participation.test_the_elder_disk_of_a_node_that_was_replaced_does_not_vote,
    ),
    Mutant(
        "the elder of two disks of a node is known by its incarnation only",
        (),
        (
            Edit(
                recovery_plan,
                "doubts",
                f"{_VOTE} < participant.vote",
                "member.incarnation < participant.incarnation",
            ),
        ),
        test=test_participation.test_nor_does_it_if_it_has_attempted_as_many_primary_components_as_the_new_one,
    ),
    Mutant(
        "a vote that is restored is remembered with the commitment only",
        (),
        (
            Edit(
                view_recovery,
                "make_plan",
                "member.incarnation if member in restored else",
                "0 if member in restored else",
            ),
        ),
        test=test_participation.test_the_elder_disk_does_not_vote_however_often_its_node_is_started,
    ),
    Mutant(
        "a disk that was replaced goes on with messages that cannot be merged",
        (),
        (Edit(ViewRecovery, "_check_mergeable", "if lost:", "if False:"),),
        test=test_participation.test_an_elder_disk_stops_whose_messages_cannot_be_merged_and_the_others_go_on,
    ),
    Mutant(
        "streams are folded away of which a member has messages that are not green",
        (),
        (Edit(ViewRecovery, "_fold_streams", "not is_open and ", ""),),
        test=test_participation.test_the_messages_of_an_elder_disk_merge_as_long_as_their_stream_is_not_folded_away,
    ),
    Mutant(
        "an old copy of a disk keeps its vote",
        (),
        (Edit(recovery_plan, "doubts", "claim.attempted < participant.attempted", "False"),),
        test=test_participation.test_an_old_copy_of_a_disk_does_not_vote_where_somebody_knows_better,
    ),
    Mutant(
        "an attempt is remembered with the commitment only",
        (),
        (
            Edit(
                ViewRecovery,
                "_establish",
                "remembering_attempt(self._the_plan().memory, self._the_plan().votes)",
                "self._the_plan().memory",
            ),
        ),
        test=test_participation.test_the_memory_is_on_disk_before_the_attempt_is_sent,
    ),
    Mutant(
        "what is remembered of another cluster counts in this one",
        (),
        (Edit(view_recovery, "make_plan", " if state.generation == generation)", ")"),),
        test=test_generations.test_what_a_node_remembers_of_another_cluster_makes_nobody_doubtful,
    ),
    Mutant(
        "a node that is bound remembers its attempts in another cluster",
        (),
        (Edit(LogState, "bind", "if generation != self.generation:", "if False:"),),
        test=test_generations.test_a_node_forgets_its_attempts_in_another_cluster_when_it_is_bound,
    ),
    Mutant(
        "a node that learns remembers its attempts in another cluster",
        (),
        (Edit(memory_log, "take_over", " if one.generation == binding.generation]", "]"),),
        test=test_generations.test_a_node_forgets_them_when_it_takes_over_the_log_of_another,
    ),
    Mutant(
        "a replaced disk keeps its vote",
        (),
        (Edit(LogProcess, "wipe", "Lines(is_voter=is_new_cluster)", "Lines(is_voter=True)"),),
    ),
    Mutant(
        "a replaced disk counts its incarnations from 1",
        (),
        (Edit(LogProcess, "next_incarnation", "WALL_CLOCK_MS + int(self._world.now)", "0"),),
    ),
    Mutant(
        "neither of two processes of one name stops",
        ("corel.twins",),
        (
            Edit(
                log_process,
                "must_stop",
                "sender.incarnation > me.incarnation or len(view.members) == 1",
                "False",
            ),
        ),
        first_seed=24,
    ),
    Mutant(
        "the newer of two processes of one name stops",
        ("corel.twins",),
        (
            Edit(
                log_process,
                "must_stop",
                "or sender.incarnation < me.incarnation:\n        return False\n"
                "    return sender.incarnation > me.incarnation or len(view.members) == 1",
                "or sender.incarnation > me.incarnation:\n        return False\n    return True",
            ),
        ),
        first_seed=24,
    ),
    Mutant(
        "an incarnation is used twice",
        (),
        (
            Edit(
                LogProcess,
                "next_incarnation",
                "max(last + 1, WALL_CLOCK_MS + int(self._world.now) if is_new_process else 0)",
                "max(last, 1)",
            ),
        ),
    ),
    Mutant(
        "the clock does not begin above what is on disk",
        (),
        (
            Edit(LogProcess, "least_clock", "self.log.lines.clock", "1"),
            Edit(GroupProcess, "start", "clock = self._ceiling", "clock = 1"),
        ),
    ),
    Mutant(
        "what was not sent when a view ended is forgotten",
        (),
        (Edit(Outbox, "take_back", "self._waiting.extendleft(reversed(self._sent))", "pass"),),
    ),
    Mutant(
        "marks of the last view count in the next",
        (),
        (Edit(Replica, "_tell", "if effect.view != self.group.view.id:", "if False:"),),
        test=test_replica.test_marks_and_requests_of_a_view_that_is_over_are_not,
    ),
]


def broken_property(seed: int, nodes: tuple[int, int]) -> str | None:
    return what_breaks(lambda: CorelRun(draw_corel_plan(seed, *nodes, is_truncated=False)).run())
