"""Own messages until every member has them."""

from __future__ import annotations

from corel.config import CorelConfig
from corel.messages import Regular
from corel.outbox import Outbox
from corel.stages import Stage
from tests.corel.harness import LogCluster
from transport.messages import Machine


def outbox(count: int, config: CorelConfig) -> Outbox:
    box = Outbox(Machine("a", 1), config)
    for _ in range(count):
        box.accept(bytes(10))
    return box


def sequences(taken: list[Regular]) -> list[int]:
    return [regular.sequence for regular in taken]


def test_so_many_are_under_way_until_everybody_has_logged_them() -> None:
    box = outbox(5, CorelConfig(unlogged_max=2))
    assert sequences(box.take()) == [1, 2]
    box.has_left(7)
    box.has_left(9)
    assert box.waits_for_disks
    assert box.take() == []
    box.logged_by_all(8)
    assert sequences(box.take()) == [3]


def test_the_same_in_bytes_but_one_always_may_leave() -> None:
    box = outbox(3, CorelConfig(unlogged_bytes_max=5))
    assert sequences(box.take()) == [1]
    box.has_left(1)
    assert box.take() == []
    box.logged_by_all(1)
    assert sequences(box.take()) == [2]


def test_what_had_left_when_a_view_ended_holds_up_nothing_in_the_next() -> None:
    box = outbox(4, CorelConfig(unlogged_max=2))
    box.take()
    box.has_left(1)
    box.take_back()
    assert sequences(box.take()) == [2, 3]


def test_the_slowest_disk_sets_the_pace_in_primary_and_minority_alike() -> None:
    for component, stage in (("abc", Stage.PRIMARY), ("ab", Stage.NON_PRIMARY)):
        cluster = LogCluster(
            "abcd", config=CorelConfig(unlogged_max=2, write_gather_ms=0.0, debug_invariants=True)
        )
        cluster.settle(component)
        cluster.disk("b").hold()
        cluster.submit("a", "u v w x y")
        cluster.run()
        assert cluster["a"].stage is stage
        assert cluster["a"].waiting == 3
        assert cluster["a"].next_deadline() == float("-inf"), "it asks for what it waits for"
        cluster.disk("b").release()
        cluster.run()
        assert cluster["a"].waiting == 0
        zones = "u v w x y||" if stage is Stage.PRIMARY else "||u v w x y"
        assert cluster.pictures(component) == {zones}
