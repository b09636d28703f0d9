"""Two disks of one node, and old copies of a disk, do not vote: what other members remember (decision 27)."""

from __future__ import annotations

from copy import deepcopy

from corel.messages import Attempt
from corel.participation import (
    Doubt,
    Participant,
    doubts,
    joint_memory,
    remembering_attempt,
    remembering_commitment,
)
from corel.recovery_plan import make_plan
from corel.stages import Stage
from tests.corel.builders import ROSTER, machine, state
from tests.corel.test_traps import primary
from transport.messages import Machine


def test_members_together_remember_the_newest_of_everything() -> None:
    mine = (Participant("a", 1, 7), Participant("b", 5, 2))
    theirs = (Participant("a", 3, 4), Participant("c", 1, 1))
    assert joint_memory([mine, theirs]) == (Participant("a", 3, 7), Participant("b", 5, 2), Participant("c", 1, 1))


def test_an_attempt_is_remembered_by_incarnation_and_a_commitment_by_number() -> None:
    memory = remembering_attempt((), [Machine("a", 4)])
    assert memory == (Participant("a", 4, 0),)
    assert remembering_commitment(memory, [Machine("a", 4), Machine("b", 1)], 9) == (
        Participant("a", 4, 9),
        Participant("b", 1, 9),
    )


def test_only_who_is_older_or_knows_less_is_doubted() -> None:
    memory = (Participant("a", 2, 5), Participant("b", 2, 5), Participant("c", 2, 5), Participant("d", 2, 5))
    attempted = {
        Machine("a", 1): 5,
        Machine("b", 3): 4,
        Machine("c", 2): 5,
        Machine("d", 9): 6,
        Machine("e", 1): 0,
    }
    assert doubts(attempted, memory) == {Machine("a", 1): Doubt.SUPERSEDED, Machine("b", 3): Doubt.FORGETFUL}


def test_a_vote_that_is_doubted_does_not_count_unless_enough_others_restore_it() -> None:
    doubted = state(attempted=3, committed=3)
    knows = state(attempted=4, committed=3, participants=(Participant("a", 1, 4),))
    plan = make_plan({machine("a"): doubted, machine("b"): knows}, ROSTER)
    assert (plan.voters, plan.restored, plan.doubts) == (("b",), (), {machine("a"): Doubt.FORGETFUL})
    others = {machine(name): knows for name in ROSTER.weights if name != "a"}
    assert machine("a") in make_plan({machine("a"): doubted, **others}, ROSTER).restored


def test_the_elder_disk_of_a_node_that_was_replaced_does_not_vote() -> None:
    """c was only cut off when it was replaced. The new one gets the vote in a primary component that b attempts
    and does not commit to; then b restarts on the elder's side."""
    cluster = primary("abc")
    cluster.settle("ab", "c")
    elder, incarnation = deepcopy(cluster.disk("c").log), cluster["c"].me.incarnation
    cluster.crash("c")
    cluster.replace_disk("c")
    cluster.start("c")
    cluster.views("abc")
    cluster.run_until(lambda: any(isinstance(payload, Attempt) for payload in cluster.outgoing("b")))
    cluster.disk("b").hold()
    cluster.run()
    assert cluster.disk("c").log.lines.is_voter
    cluster.disk("b").release()
    cluster.crash("c")
    cluster.put_back_disk("c", elder)
    cluster.start("c", incarnation)
    cluster.restart("b")
    cluster.settle("bc", "a")
    assert cluster.stages("bc") == {Stage.NON_PRIMARY}


def test_an_old_copy_of_a_disk_does_not_vote_where_somebody_knows_better() -> None:
    """c's copy is of before the primary component of b and c, in which m became green."""
    cluster = primary("abc")
    copy = deepcopy(cluster.disk("c").log)
    cluster.settle("bc", "a")
    cluster.submit("c", "m")
    cluster.run()
    cluster.crash("c")
    cluster.put_back_disk("c", copy)
    cluster.start("c")
    cluster.settle("bc", "a")
    assert cluster.stages("bc") == {Stage.NON_PRIMARY}
    cluster.settle("abc")
    assert (cluster.stages(), cluster["c"].is_voter) == ({Stage.PRIMARY}, True)
    assert cluster.pictures() == {"m||"}


def test_a_restored_vote_counts_only_once_all_have_remembered_it() -> None:
    """a's disk was replaced. The others have not written their attempts yet when a crashes: it has no vote."""
    cluster = primary("abc")
    cluster.crash("a")
    cluster.replace_disk("a")
    cluster.start("a")
    for name in "bc":
        cluster.disk(name).hold()
    cluster.views("abc")
    cluster.run()
    for name in "bc":
        cluster.disk(name).complete()  # what their states tell of
    cluster.run()
    assert not cluster.disk("a").log.lines.is_voter
    for name in "bc":
        cluster.disk(name).release()
    cluster.run()
    assert cluster.disk("a").log.lines.is_voter


def test_the_memory_is_on_disk_before_the_attempt_is_sent() -> None:
    cluster = primary("abc")
    cluster.restart("c")
    cluster.views("abc")
    cluster.run_until(lambda: any(isinstance(payload, Attempt) for payload in cluster.outgoing("a")))
    assert cluster["a"].committed == 1
    assert Participant("c", cluster["c"].me.incarnation, 1) in cluster.disk("a").log.lines.participants
