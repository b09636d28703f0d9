"""A node that was left over when the others were bootstrapped anew never mixes with them (decision 20)."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from corel.config import CorelConfig
from corel.effects import StageChanged
from corel.messages import EMPTY_DIGEST, NO_IDENTITY, NO_VIEW, Attempt
from corel.recovery_plan import Contradiction, make_plan
from corel.stages import Phase, Stage
from corel.storage import Lines
from tests.corel.builders import ROSTER, machine, state
from tests.corel.harness import LogCluster
from tests.corel.test_learning import learn
from tests.simulator.corel.memory_log import MemoryLog
from transport.messages import ViewId

OLD, NEW = bytes(15) + b"\x01", bytes(15) + b"\x02"


def left_over(old_writes: int, new_writes: int) -> LogCluster:
    """Returns a new cluster of a and b, and c with its disk from the old one, which nobody wiped."""
    old = LogCluster("abc")
    old.settle("abc")
    old.submit("a", " ".join(f"old{number}" for number in range(old_writes)))
    old.run()
    new = LogCluster("abc")
    new.checkers = []  # they speak of one history
    for name in "ab":
        new.disks[name].log = MemoryLog(Lines(is_voter=True), f"{name} bootstrapped anew")
        new.restart(name)
    new.disks["c"].log = copy.deepcopy(old.disks["c"].log)
    new.restart("c")
    new.settle("ab", "c")
    new.submit("a", " ".join(f"new{number}" for number in range(new_writes)))
    new.run()
    assert new.stages("ab") == {Stage.PRIMARY}
    return new


def test_members_of_different_generations_take_nothing_from_each_other_and_nobody_stops() -> None:
    """Datagrams keep them apart before they share a view, unless an unbound node is in between when some of them
    are bound; then they do not hear each other, so the view ends."""
    for old_writes, new_writes in ((30, 5), (3, 20), (10, 10)):
        cluster = left_over(old_writes, new_writes)
        orders = {name: cluster[name].queue.green_digest for name in "abc"}
        cluster.settle("abc")
        assert {cluster[name].phase for name in "abc"} == {Phase.CONTRADICTION}
        assert {name: cluster[name].queue.green_digest for name in "abc"} == orders
        cluster.settle("ab", "c")
        assert cluster.stages("ab") == {Stage.PRIMARY}
        assert cluster.stages("c") == {Stage.NON_PRIMARY}


def test_the_first_commitment_is_reported_so_that_datagrams_carry_the_generation_at_once() -> None:
    cluster = LogCluster("abc")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["a"].generation)
    reported = [effect for effect in cluster.effects["a"] if isinstance(effect, StageChanged)]
    assert (reported[-1].stage, reported[-1].committed) == (Stage.ESTABLISHING, 1)


def test_generations_are_bound_by_the_first_commitment_and_kept() -> None:
    cluster = LogCluster("abc")
    assert [cluster[name].generation for name in "abc"] == [b""] * 3
    cluster.settle("abc")
    [generation] = {cluster[name].generation for name in "abc"}
    assert generation
    cluster.restart("a")
    assert cluster["a"].generation == generation
    cluster.settle("ab", "c")
    cluster.settle("abc")
    assert {cluster[name].generation for name in "abc"} == {generation}


def test_two_clusters_of_the_same_names_have_different_generations() -> None:
    one, other = LogCluster("abc"), LogCluster("abc")
    for name in "abc":
        other.disks[name].log = MemoryLog(Lines(is_voter=True), f"another disk of {name}")
        other.restart(name)
    one.settle("abc")
    other.settle("abc")
    assert one["a"].generation != other["a"].generation


def test_an_empty_disk_adopts_the_generation_that_it_meets() -> None:
    cluster = LogCluster("abc")
    cluster.settle("abc")
    cluster.submit("a", "x")
    cluster.run()
    cluster.crash("c")
    cluster.replace_disk("c")
    cluster.start("c")
    assert cluster["c"].generation == b""
    cluster.settle("abc")
    assert cluster["c"].generation == cluster["a"].generation != b""
    assert cluster.disks["c"].log.lines.generation == cluster["a"].generation


# What is remembered of attempts in another generation


def with_memories_of_an_old_cluster() -> LogCluster:
    """Returns a new cluster of a and b, and c with its disk from an old one, in which the vote of b was to be
    restored by an attempt at a primary component that nobody committed to. So c is bound to no generation."""
    old = LogCluster("abc")
    old.crash("b")
    old.replace_disk("b")
    old.start("b")
    old.views("abc")
    old.run_until(lambda: any(isinstance(payload, Attempt) for payload in old.outgoing("c")))
    left_over = old.disk("c").log
    assert [one.voter_since > 0 for one in left_over.lines.participants] == [False, True, False]
    new = LogCluster("abc")
    new.checkers = []  # they speak of one history
    for name in "ab":
        new.disks[name].log = MemoryLog(Lines(is_voter=True), f"{name} bootstrapped anew")
        new.restart(name)
    new.disks["c"].log = copy.deepcopy(left_over)
    new.restart("c")
    new.settle("ab", "c")
    assert new.stages("ab") == {Stage.PRIMARY}
    return new


def test_what_a_node_remembers_of_another_cluster_makes_nobody_doubtful() -> None:
    cluster = with_memories_of_an_old_cluster()
    cluster.settle("bc", "a")
    assert cluster.stages("bc") == {Stage.PRIMARY}


def test_a_node_forgets_its_attempts_in_another_cluster_when_it_is_bound() -> None:
    cluster = with_memories_of_an_old_cluster()
    cluster.views("bc", "a")
    cluster.run_until(lambda: cluster.disk("c").log.lines.generation == cluster["b"].generation)
    assert cluster.disk("c").log.lines.participants == ()


def test_a_node_forgets_them_when_it_takes_over_the_log_of_another() -> None:
    cluster = with_memories_of_an_old_cluster()
    cluster.submit("a", "x")
    cluster.run()
    cluster.crash("c")
    learn(cluster, "c", "a")
    assert cluster.disk("c").log.lines.participants == cluster.disk("a").log.lines.participants


# Which generation an attempt is made with


def plan_of(**states: object) -> bytes:
    return make_plan({machine(name): one for name, one in states.items()}, ROSTER).generation  # type: ignore[misc]


def test_members_that_have_committed_decide() -> None:
    attempted = state(committed=0, attempted=5, generation=NEW, attempted_view=ViewId(9, "b", 1))
    assert plan_of(a=state(committed=2, attempted=2, generation=OLD), b=attempted, c=attempted) == OLD


def test_without_a_commitment_the_last_attempt_decides_by_its_number_then_by_its_view() -> None:
    first = state(committed=0, attempted=1, generation=OLD, attempted_view=ViewId(3, "a", 1))
    later = state(committed=0, attempted=1, generation=NEW, attempted_view=ViewId(4, "a", 1))
    higher = state(committed=0, attempted=2, generation=OLD, attempted_view=ViewId(2, "a", 1))
    assert plan_of(a=first, b=later, c=first) == NEW
    assert plan_of(a=later, b=higher, c=later) == OLD


def test_without_an_attempt_it_is_drawn_from_the_disks() -> None:
    def fresh(disk: bytes) -> object:
        return state(committed=0, attempted=0, attempted_view=NO_VIEW, disk=disk)

    drawn = plan_of(a=fresh(OLD), b=fresh(NEW))
    assert drawn not in (NO_IDENTITY, OLD, NEW)
    assert drawn == plan_of(a=fresh(NEW), b=fresh(OLD))
    assert drawn != plan_of(a=fresh(OLD), b=fresh(NO_IDENTITY))


# Green prefixes are compared at every member's line, bodies included


def test_a_shorter_green_prefix_with_another_body_is_noticed_before_anything_is_taken() -> None:
    cluster = LogCluster("abc")
    cluster.settle("abc")
    cluster.submit("a", "x y")
    cluster.run()
    cluster.settle("ab", "c")
    cluster.submit("a", "z")
    cluster.run()
    log = cluster.disks["c"].log
    [first, *_] = [place for place, record in enumerate(log.messages) if record.body == b"y"]
    log.messages[first] = log.messages[first]._replace(body=b"another body")
    right = cluster["c"].queue.green_digest
    log.digests = {0: EMPTY_DIGEST}
    wrong = log.green_digest(log.lines.green)
    assert wrong != right
    log.lines = replace(log.lines, green_digest=wrong)
    cluster.restart("c")
    with pytest.raises(Contradiction, match="green prefixes differ from the representative's"):
        cluster.settle("abc")
    assert cluster["a"].phase in (Phase.CONTRADICTION, Phase.PRIORITY_MESSAGES)
    assert len(cluster["a"].queue) == 3


def test_an_empty_disk_is_bound_before_it_takes_any_message_of_the_generation_that_it_meets() -> None:
    """c's disk is replaced, and c crashes while it takes in what the others have. Ids of that could repeat in
    another generation, so c belongs to this one from then on."""
    cluster = LogCluster("abc", config=CorelConfig(batch_bytes_max=1, batches_ahead_max=1))
    cluster.settle("abc")
    cluster.submit("a", "x y z")
    cluster.run()
    cluster.crash("c")
    cluster.replace_disk("c")
    cluster.start("c")
    cluster.views("abc")
    cluster.run_until(lambda: cluster.disks["c"].log.messages)
    assert cluster.disks["c"].log.lines.committed == 0
    cluster.restart("c")
    assert cluster["c"].generation == cluster["a"].generation != b""
    cluster.settle("abc")
    assert cluster.pictures() == {"x y z||"}
