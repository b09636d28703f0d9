"""Nodes whose disks were restored from a backup are a new generation of the cluster (decision 20)."""

from __future__ import annotations

import copy

from corel.learning import begun_anew
from corel.recovery_plan import OutOfReach
from corel.stages import Phase, Stage
from corel.storage import Lines, Record
from tests.corel.harness import LogCluster
from tests.simulator.corel.memory_log import NOT_KEPT, MemoryLog

NEW = b"a new generation"


def restored_log(source: MemoryLog, cut: int, disk: str, red: tuple[Record, ...] = ()) -> MemoryLog:
    """The log that a backup of `source` makes, whose state was at the cut."""
    tail = [source.messages[arrival] for arrival in source.order[cut:]]
    taken = begun_anew(source.lines, NEW, cut, len(tail), red)
    log = MemoryLog(taken.lines, disk)
    log.messages = [record._replace(arrival=place, primary=0) for place, record in enumerate(tail)]
    log.messages += taken.records
    log.order = [*[NOT_KEPT] * cut, *range(len(tail))]
    log.digests = {cut: source.green_digest(cut), source.lines.green: source.lines.green_digest}
    log.yellow = taken.yellow
    return log


def old_cluster() -> LogCluster:
    old = LogCluster("abc")
    old.settle("abc")
    old.submit("a", "k l m n")
    old.run()
    old.flush("abc")
    return old


def restored(old: LogCluster, names: str, cut: int = 2, red: tuple[Record, ...] = ()) -> LogCluster:
    """A new cluster, of which these nodes were restored from a backup of a."""
    new = LogCluster("abc")
    new.checkers = []  # they speak of one history that began at 0
    for name in "abc":
        new.crash(name)
    for name in names:
        new.disks[name].log = restored_log(old.disks["a"].log, cut, f"the new disk of {name}", red)
        new.start(name)
    return new


def test_restored_nodes_establish_a_primary_component_of_a_new_generation() -> None:
    old = old_cluster()
    new = restored(old, "abc")
    new.settle("abc")
    assert new.stages() == {Stage.PRIMARY}
    assert {new[name].generation for name in "abc"} == {NEW} != {old["a"].generation}
    new.submit("b", "o")
    new.run()
    assert {new[name].queue.green for name in "abc"} == {5}
    assert len({new[name].queue.green_digest for name in "abc"}) == 1


def test_a_majority_of_them_is_enough_and_less_is_not() -> None:
    new = restored(old_cluster(), "abc")
    new.settle("ab", "c")
    assert new.stages("ab") == {Stage.PRIMARY}
    assert new.stages("c") == {Stage.NON_PRIMARY}


def test_an_old_disk_that_was_left_over_mixes_with_none_of_them() -> None:
    old = old_cluster()
    new = restored(old, "ab")
    new.disks["c"].log = copy.deepcopy(old.disks["c"].log)
    new.start("c")
    new.settle("abc")  # as if their datagrams did not keep them apart
    assert {new[name].phase for name in "abc"} == {Phase.CONTRADICTION}
    assert {new[name].queue.green for name in "ab"} == {4}
    new.settle("ab", "c")
    assert new.stages("ab") == {Stage.PRIMARY}
    assert new["c"].generation == old["c"].generation != new["a"].generation


def test_an_empty_disk_without_a_vote_that_meets_them_lacks_what_is_truncated_and_contradicts_nobody() -> None:
    new = restored(old_cluster(), "ab")
    new.disks["c"].log = MemoryLog(Lines(), "an empty disk of c")
    new.start("c")
    try:
        new.settle("abc")
    except OutOfReach as error:
        out = error
    assert [member.name for member in out.sides[0]] == ["c"]
    new.crash("c")
    new.settle("ab")
    assert new.stages("ab") == {Stage.PRIMARY}
    new.flush("a")
    log, own = new.disks["a"].log, new.disks["c"].log
    own.take_over("c", log, log.lines.green)
    new.start("c")
    new.settle("abc")
    assert new.stages() == {Stage.PRIMARY}
    assert new["c"].queue.green_digest == new["a"].queue.green_digest
    assert new["c"].is_voter


def test_messages_that_were_not_green_at_a_survivor_take_their_places_in_the_new_generation() -> None:
    old = old_cluster()
    old.settle("a", "bc")
    old.submit("a", "x y")
    old.run()
    log = old.disks["a"].log
    red = tuple(log.messages[log.lines.open_from :])
    assert len(red) == 2
    new = restored(old, "abc", red=red)
    assert {len(new[name].queue.red) for name in "abc"} == {2}
    new.settle("abc")
    assert {new[name].queue.green for name in "abc"} == {6}
    assert len({new[name].queue.green_digest for name in "abc"}) == 1
