from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from loadtest.faults import Fault, Kind, plan_faults
from loadtest.nemesis import Nemesis
from loadtest.nodes import Node, Nodes


class FakeNodes(Nodes):
    """Three nodes that note how they are disturbed."""

    def __init__(self) -> None:
        self.disturbed: dict[str, object] = {}

    def __iter__(self) -> Iterator[Node]:
        return iter([Node(name, f"http://{name}") for name in "abc"])

    def disturb(self, url: str, chaos: dict[str, object]) -> bool:
        self.disturbed[url] = chaos
        return True


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_heals_what_it_cuts_and_ends_calmly(seed: int) -> None:
    plan = plan_faults("abcde", 600.0, Random(seed))
    assert [fault.at for fault in plan] == sorted(fault.at for fault in plan)
    assert plan[-1].at <= 600.0 * 0.85
    is_disturbed = False
    for fault in plan:
        if fault.kind is Kind.HEAL:
            assert is_disturbed
        is_disturbed = fault.kind is not Kind.HEAL and (is_disturbed or fault.kind is not Kind.KILL)
    assert not is_disturbed
    for fault in plan:
        if fault.kind is Kind.PARTITION:
            assert sorted(name for side in fault.sides for name in side) == list("abcde")
            assert 1 <= len(fault.sides[1]) <= 2
    assert plan == plan_faults("abcde", 600.0, Random(seed))


def test_a_short_run_has_a_partition_and_a_kill() -> None:
    plan = plan_faults("abc", 30.0, Random(1), period=10.0)
    assert [fault.kind for fault in plan] == [Kind.PARTITION, Kind.HEAL, Kind.KILL]


def test_a_cluster_of_somebody_else_is_not_killed() -> None:
    assert all(fault.kind is not Kind.KILL for fault in plan_faults("abc", 3_600.0, Random(1), can_kill=False))


def test_the_sides_of_a_partition_do_not_hear_each_other(tmp_path: Path) -> None:
    nodes = FakeNodes()
    nemesis = Nemesis(nodes, tmp_path / "faults.jsonl")
    nemesis.perform(Fault(0.0, Kind.PARTITION, (("a", "c"), ("b",))))
    assert nodes.disturbed["http://a"] == {"drop_from": ["b"], "drop_to": ["b"]}
    assert nodes.disturbed["http://b"] == {"drop_from": ["a", "c"], "drop_to": ["a", "c"]}
    nemesis.perform(Fault(1.0, Kind.ONE_WAY, (("a",), ("b", "c"))))
    assert nodes.disturbed == {"http://a": {}, "http://b": {"drop_from": ["a"]}, "http://c": {"drop_from": ["a"]}}
    nemesis.perform(Fault(2.0, Kind.HEAL))
    assert set(map(str, nodes.disturbed.values())) == {"{}"}
    told = [json.loads(line)["text"] for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert told == ["partition a,c | b", "a not heard by b,c", "heal"]


def test_a_plan_is_performed_at_its_times(tmp_path: Path) -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    nemesis = Nemesis(FakeNodes(), tmp_path / "faults.jsonl", sleep=sleep, clock=lambda: now[0])
    nemesis.run([Fault(5.0, Kind.LOSS, loss=0.1), Fault(12.0, Kind.HEAL)])
    assert now == [112.0]
