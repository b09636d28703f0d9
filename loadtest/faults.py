"""Which faults a run has, and when: drawn from a seed before it begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

PERIOD_SECONDS = 20.0
"""From the beginning of one fault to that of the next."""
CALM_SHARE = 0.15
"""The last part of a run is without faults, so that its end shows a cluster that has recovered."""


class Kind(StrEnum):
    PARTITION = "partition"
    HEAL = "heal"
    KILL = "kill"
    ONE_WAY = "one_way"
    LOSS = "loss"


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    """Seconds from the beginning of the run."""
    kind: Kind
    sides: tuple[tuple[str, ...], ...] = ()
    """For a partition: who still hears whom. For a cut in one direction: who is not heard, and by whom."""
    node: str = ""
    """For a kill."""
    loss: float = 0.0
    """For loss: the share of datagrams that every node loses."""

    def __str__(self) -> str:
        if self.kind is Kind.PARTITION:
            return f"partition {' | '.join(map(','.join, self.sides))}"
        if self.kind is Kind.ONE_WAY:
            return f"{','.join(self.sides[0])} not heard by {','.join(self.sides[1])}"
        if self.kind is Kind.KILL:
            return f"kill -9 {self.node}"
        return f"{self.loss:.0%} loss" if self.kind is Kind.LOSS else "heal"


def plan_faults(
    nodes: Sequence[str], duration: float, rng: Random, period: float = PERIOD_SECONDS, can_kill: bool = True
) -> list[Fault]:
    """Draws the faults of a run. Each lasts for half of a period, so that the cluster has the other half to
    recover. The first is a partition and the second a kill, so that even a short run has both."""
    end = duration * (1.0 - CALM_SHARE)
    found: list[Fault] = []
    kinds = _kinds(rng, can_kill)
    at = period / 4
    while at + period / 2 <= end:
        found += _fault(next(kinds), at, period, nodes, rng)
        at += period
    return found


def _kinds(rng: Random, can_kill: bool) -> Iterator[str]:
    kinds = ["partition", "kill", "one_way", "loss", "kill_in_partition"]
    if not can_kill:
        kinds = [kind for kind in kinds if "kill" not in kind]
    while True:
        yield from kinds
        rng.shuffle(kinds)


def _fault(kind: str, at: float, period: float, nodes: Sequence[str], rng: Random) -> list[Fault]:
    victim = rng.choice(nodes)
    heal = Fault(at + period / 2, Kind.HEAL)
    if kind == "kill":
        return [Fault(at, Kind.KILL, node=victim)]
    if kind == "one_way":
        others = tuple(name for name in nodes if name != victim)
        return [Fault(at, Kind.ONE_WAY, ((victim,), others)), heal]
    if kind == "loss":
        return [Fault(at, Kind.LOSS, loss=rng.choice((0.02, 0.05, 0.1))), heal]
    cut = Fault(at, Kind.PARTITION, _sides(nodes, rng))
    if kind == "kill_in_partition":
        return [cut, Fault(at + period / 8, Kind.KILL, node=victim), heal]
    return [cut, heal]


def _sides(nodes: Sequence[str], rng: Random) -> tuple[tuple[str, ...], ...]:
    """Two sides, the smaller of them a minority."""
    minority = set(rng.sample(list(nodes), rng.randint(1, max(1, (len(nodes) - 1) // 2))))
    return tuple(name for name in nodes if name not in minority), tuple(sorted(minority))
