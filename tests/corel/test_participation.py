"""Two disks of one node, and old copies of a disk, do not vote: what other members remember (decision 27)."""

from __future__ import annotations

from copy import deepcopy

import pytest

from corel.learning import NotAhead
from corel.messages import Attempt
from corel.participation import (
    Claim,
    Doubt,
    Participant,
    Vote,
    doubts,
    joint_memory,
    remembering_attempt,
    remembering_commitment,
)
from corel.recovery_plan import ReplacedDisk, make_plan
from corel.stages import Stage
from tests.corel.builders import ROSTER, machine, state
from tests.corel.harness import LogCluster
from tests.corel.test_learning import learn
from tests.corel.test_traps import primary
from tests.simulator.corel.memory_log import MemoryLog
from transport.messages import Machine


def test_members_together_remember_the_newest_of_everything() -> None:
    mine = (Participant("a", 0, 1, 7), Participant("b", 0, 5, 2))
    theirs = (Participant("a", 0, 3, 4), Participant("c", 0, 1, 1))
    assert joint_memory([mine, theirs]) == (
        Participant("a", 0, 3, 7),
        Participant("b", 0, 5, 2),
        Participant("c", 0, 1, 1),
    )


def test_an_attempt_is_remembered_by_incarnation_and_a_commitment_by_number() -> None:
    memory = remembering_attempt((), {"a": Vote(0, 4)})
    assert memory == (Participant("a", 0, 4, 0),)
    assert remembering_commitment(memory, {"a": Vote(0, 4), "b": Vote(0, 1)}, 9) == (
        Participant("a", 0, 4, 9),
        Participant("b", 0, 1, 9),
    )


def test_only_who_is_older_or_knows_less_is_doubted() -> None:
    memory = (
        Participant("a", 0, 2, 5),
        Participant("b", 0, 2, 5),
        Participant("c", 0, 2, 5),
        Participant("d", 0, 2, 5),
    )
    claims = {
        Machine("a", 1): Claim(0, 5),
        Machine("b", 3): Claim(0, 4),
        Machine("c", 2): Claim(0, 5),
        Machine("d", 9): Claim(0, 6),
        Machine("e", 1): Claim(0, 0),
    }
    assert doubts(claims, memory) == {Machine("a", 1): Doubt.SUPERSEDED, Machine("b", 3): Doubt.FORGETFUL}


def test_a_vote_that_is_doubted_does_not_count_unless_enough_others_restore_it() -> None:
    doubted = state(attempted=3, committed=3)
    knows = state(attempted=4, committed=3, participants=(Participant("a", 0, 1, 4),))
    plan = make_plan({machine("a"): doubted, machine("b"): knows}, ROSTER)
    assert (plan.voters, plan.restored, plan.doubts) == (("b",), (), {machine("a"): Doubt.FORGETFUL})
    others = {machine(name): knows for name in ROSTER.weights if name != "a"}
    assert machine("a") in make_plan({machine("a"): doubted, **others}, ROSTER).restored


def with_the_elder_disk_of_c_put_back() -> tuple[LogCluster, int]:
    """Returns a cluster whose node c was only cut off when its disk was replaced. The new one gets the vote in a
    primary component that b attempts and does not commit to. Then c, which is down, has its elder disk again; the
    incarnation with which that ran last is returned too."""
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
    return cluster, incarnation


def test_the_elder_disk_of_a_node_that_was_replaced_does_not_vote() -> None:
    """b restarts on the elder's side."""
    cluster, incarnation = with_the_elder_disk_of_c_put_back()
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
    assert Participant("c", 0, cluster["c"].me.incarnation, 1) in cluster.disk("a").log.lines.participants


def elder_of_c(cluster: LogCluster) -> MemoryLog:
    """Replaces the disk of c, which was only cut off and has accepted two messages meanwhile. The new disk has the
    vote. Returns the elder one."""
    cluster.settle("ab", "c")
    cluster.submit("c", "r1 r2")
    cluster.run()
    elder = deepcopy(cluster.disk("c").log)
    cluster.crash("c")
    cluster.replace_disk("c")
    cluster.start("c")
    cluster.settle("abc")
    assert cluster.stages() == {Stage.PRIMARY}
    assert cluster["c"].is_voter
    cluster.flush("abc")
    return elder


def test_the_elder_disk_does_not_vote_however_often_its_node_is_started() -> None:
    """Its last start is the newest one that there is."""
    cluster, _ = with_the_elder_disk_of_c_put_back()
    cluster.start("c")
    cluster.restart("b")
    cluster.settle("bc", "a")
    assert cluster.stages("bc") == {Stage.NON_PRIMARY}


def test_nor_does_it_if_it_has_attempted_as_many_primary_components_as_the_new_one() -> None:
    """c has attempted the second one on its own disk only when that is replaced; the new disk attempts the second
    one, too."""
    cluster = primary("abc")
    cluster.views("bc", "a")
    cluster.run_until(lambda: cluster["b"].attempted == 2)
    cluster.disk("b").hold()
    cluster.run()
    cluster.crash("b")
    elder = deepcopy(cluster.disk("c").log)
    assert elder.lines.attempted == 2
    cluster.crash("c")
    cluster.replace_disk("c")
    cluster.start("c")
    cluster.disk("b").release()
    cluster.start("b")
    assert cluster["b"].attempted == 1
    cluster.settle("abc")
    assert (cluster["a"].committed, cluster["c"].is_voter) == (2, True)
    cluster.flush("abc")
    cluster.settle("ac", "b")
    cluster.submit("a", "m")
    cluster.run()
    assert cluster.picture("a") == "m||"
    cluster.crash("c")
    cluster.put_back_disk("c", elder)
    cluster.start("c")
    cluster.settle("bc", "a")
    assert cluster.stages("bc") == {Stage.NON_PRIMARY}


def test_an_elder_disk_does_not_vote_when_it_has_taken_over_the_log_of_another() -> None:
    """a knows of the new disk of c, and nothing of the primary component that b and c establish after it."""
    cluster = primary("abc")
    cluster.settle("ab", "c")
    elder = deepcopy(cluster.disk("c").log)
    cluster.crash("c")
    cluster.replace_disk("c")
    cluster.start("c")
    cluster.settle("abc")
    cluster.flush("abc")
    cluster.settle("bc", "a")
    cluster.submit("b", "m")
    cluster.run()
    cluster.crash("c")
    cluster.put_back_disk("c", elder)
    learn(cluster, "c", "a")
    cluster.settle("ac", "b")
    assert cluster.stages("ac") == {Stage.NON_PRIMARY}


def test_nor_does_an_old_copy() -> None:
    cluster = primary("abc")
    copy = deepcopy(cluster.disk("c").log)
    cluster.settle("abc")
    cluster.submit("a", "k")
    cluster.run()
    cluster.flush("abc")
    cluster.settle("bc", "a")
    cluster.submit("b", "m")
    cluster.run()
    cluster.crash("c")
    cluster.put_back_disk("c", copy)
    learn(cluster, "c", "a")
    cluster.settle("ac", "b")
    assert cluster.stages("ac") == {Stage.NON_PRIMARY}
    cluster.settle("abc")
    assert cluster.stages() == {Stage.PRIMARY}
    assert cluster.pictures() == {"k m||"}


def test_the_messages_of_an_elder_disk_merge_as_long_as_their_stream_is_not_folded_away() -> None:
    cluster = primary("abc")
    elder = elder_of_c(cluster)
    cluster.crash("c")
    cluster.put_back_disk("c", elder)
    cluster.start("c")
    cluster.settle("abc")
    assert cluster.pictures() == {"r1 r2||"}
    assert cluster["c"].is_voter


def test_an_elder_disk_stops_whose_messages_cannot_be_merged_and_the_others_go_on() -> None:
    """The others have folded the stream away, as all its messages that the new disk of c knew of were final."""
    cluster = primary("abc")
    elder = elder_of_c(cluster)
    cluster.settle("abc")
    cluster.crash("c")
    cluster.put_back_disk("c", elder)
    cluster.start("c")
    with pytest.raises(ReplacedDisk, match="2 messages that were accepted here cannot be merged"):
        cluster.settle("abc")
    cluster.crash("c")
    cluster.settle("ab")
    assert cluster.stages("ab") == {Stage.PRIMARY}


def test_nor_are_they_dropped_when_it_takes_over_the_log_of_another() -> None:
    cluster = primary("abc")
    elder = elder_of_c(cluster)
    cluster.settle("abc")
    cluster.crash("c")
    cluster.put_back_disk("c", elder)
    with pytest.raises(NotAhead, match="2 messages that were accepted here cannot be merged"):
        learn(cluster, "c", "a")
