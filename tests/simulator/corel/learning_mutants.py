"""One-line bugs in truncation, and in what a node claims that has taken over the log of another, and what notices
them. All logs are truncated in these seeds."""

from __future__ import annotations

from corel import learning, recovery_plan
from corel.corel import Corel
from corel.log_state import LogState
from corel.messages import State
from corel.recovery_plan import OutOfReach
from corel.view_recovery import ViewRecovery
from membership.messages import Progress
from tests.corel import test_learning, test_participation
from tests.simulator.corel import memory_log
from tests.simulator.corel.memory_log import MemoryLog
from tests.simulator.corel.plan import draw_corel_plan
from tests.simulator.corel.run import CorelRun
from tests.simulator.mutation import Edit, Mutant, what_breaks

SEEDS_MAX = 12
"""A test run looks at so many seeds for each."""

MUTANTS = [
    # What is taken over
    Mutant(
        "who takes over a log counts as having attempted the primary component it has learned of",
        (),
        (
            Edit(
                memory_log,
                "take_over",
                "attempted=own.attempted,",
                "attempted=max(own.attempted, source.established),",
            ),
        ),
        test=test_participation.test_nor_does_an_old_copy,
    ),
    Mutant(
        "what cannot be merged any more is dropped by who takes over a log",
        (),
        (Edit(memory_log, "take_over", "_check_mergeable(node, own, own_messages, source)", "pass"),),
        test=test_participation.test_nor_are_they_dropped_when_it_takes_over_the_log_of_another,
    ),
    Mutant(
        "how large a message is depends on what is to be deleted",
        (),
        (Edit(LogState, "truncate", "_average(size)", "size.size_bytes / max(1, green - self.cut)"),),
        test=test_learning.test_what_is_kept_does_not_depend_on_how_fast_the_rest_is_deleted,
    ),
    Mutant(
        "nodes are out of reach of whom nothing can be taken over",
        (),
        (Edit(LogState, "floor", "if not self.established:", "if False:"),),
        test=test_learning.test_before_a_primary_component_is_known_to_be_established_nobody_is_out_of_reach_and_nothing_is_cut,
    ),
    Mutant(
        "a node that has taken over a log claims the yellow zone of the component it has learned of",
        ("yellow_kept", "restorable"),
        (Edit(memory_log, "take_over", "is_learned=source.established > 0,", "is_learned=False,"),),
        test=test_learning.test_who_has_learned_of_a_primary_component_does_not_speak_for_it,
    ),
    Mutant(
        "a log is taken over that does not have the base of its primary component yet",
        (),
        (Edit(test_learning, "check_ahead", "if source.green < source.established_base:", "if False:"),),
        test=test_learning.test_nor_is_one_that_does_not_have_the_base_of_its_primary_component,
    ),
    Mutant(
        "the component is named that the other node attempted, not the last one that was established",
        (),
        (Edit(memory_log, "take_over", "committed=source.established,", "committed=source.committed,"),),
        test=test_learning.test_what_is_learned_of_is_the_last_component_that_was_established_not_one_that_was_committed_to,
    ),
    Mutant(
        "messages of its own are dropped",
        ("acknowledged", "causal_log"),
        (Edit(memory_log, "take_over", "if record.id.sequence > last_of(record)", "if False"),),
    ),
    Mutant(
        "messages of its own that are green by now are kept",
        (),
        (Edit(memory_log, "take_over", "if record.id.sequence > last_of(record)", "if True"),),
        test=test_learning.test_a_message_of_its_own_that_is_green_by_now_is_there_once,
    ),
    Mutant(
        "nothing is handed out before the first primary component of a restored cluster",
        (),
        (Edit(learning, "check_ahead", "not (is_empty and source.cut)", "True"),),
        test=test_learning.test_an_empty_disk_takes_over_what_a_restored_cluster_begins_with_where_a_majority_needs_it,
    ),
    Mutant(
        "who has learned of a primary component is a representative of it",
        ("Contradiction", "yellow_kept"),
        (Edit(State, "knowledge", "self.committed > 0 and not self.is_learned", "self.committed > 0"),),
        test=test_learning.test_who_has_learned_of_a_primary_component_does_not_speak_for_it,
    ),
    Mutant(
        "a view in which nobody knows more than it has learned establishes a primary component",
        ("primaries",),
        (Edit(ViewRecovery, "_recovered", " and not plan.is_learned", ""),),
        test=test_learning.test_where_nobody_knows_more_than_it_has_learned_there_is_no_primary_component,
    ),
    # Cuts
    Mutant(
        "the log is cut beyond what is applied",
        ("corel.run",),
        (Edit(LogState, "truncate", "min(line, green - kept)", "green - kept"),),
    ),
    Mutant(
        "the log is cut in the middle of a recovery",
        ("BrokenInvariant",),
        (Edit(Corel, "applied", "if self._recovery.is_over:", "if True:"),),
        test=test_learning.test_nothing_is_cut_while_a_member_is_brought_up,
    ),
    Mutant(
        "the cut takes no notice of who is in reach",
        (),
        (Edit(LogState, "truncate", "max(least, self._affordable(", "max(0, self._affordable("),),
        test=test_learning.test_bytes_cut_the_log_too_but_not_what_a_node_in_reach_may_lack,
    ),
    Mutant(
        "a node claims to be able to retransmit what it has cut",
        (),
        (Edit(LogState, "floor", "max(self.cut, green", "max(0, green"),),
        test=test_learning.test_who_has_taken_over_a_log_brings_nobody_up_to_whom_it_would_have_to_send_what_is_before_the_cut,
    ),
    Mutant(
        "the digest at the cut is that of the line before it",
        ("agreed_green",),
        (Edit(MemoryLog, "_truncate", "range(self.lines.cut, cut)))", "range(self.lines.cut, cut - 1)))"),),
    ),
    Mutant(
        "members retransmit what the representative has cut",
        (),
        (
            Edit(
                recovery_plan,
                "_usefulness",
                "lacking_from is None or state.cut <= lacking_from",
                "True",
            ),
        ),
        test=test_learning.test_the_representative_is_one_that_still_has_what_is_to_be_retransmitted,
    ),
    Mutant(
        "a member that has everything as yellow messages is taken for one that lacks it",
        (),
        (Edit(State, "has_zone_of", "return self.committed >= established > 0", "return False"),),
        test=test_learning.test_who_has_all_that_is_green_as_yellow_messages_is_in_reach_however_far_its_green_line_is_back,
    ),
    Mutant(
        "a green line counts as behind what was not decided after the node was there",
        (),
        (Edit(Progress, "is_behind", "other.decided > self.epoch", "other.epoch > self.epoch"),),
        test=test_learning.test_who_has_all_that_is_green_as_yellow_messages_is_in_reach_however_far_its_green_line_is_back,
    ),
    Mutant(
        "a member that lacks what the others have cut stays in the view",
        (),
        (Edit(OutOfReach, "unbelieved", "return self.sides[0]", "return []"),),
        test=test_learning.test_a_member_that_lacks_what_all_others_have_cut_leaves_them,
    ),
]


def broken_property(seed: int, nodes: tuple[int, int]) -> str | None:
    return what_breaks(lambda: CorelRun(draw_corel_plan(seed, *nodes, is_truncated=True)).run())
