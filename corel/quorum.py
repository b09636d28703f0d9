"""Which nodes may establish a primary component: a pure function of the roster.

They need a majority of the weights of the whole roster, counting voters only. Every weight is 1 unless configured
otherwise; an even cluster can give one node more, so that half of it with that node is a majority. Two majorities
always intersect in a voter, which is what COREL's correctness rests on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roster:
    """All nodes of the cluster, by name, with their weights: the same at every node."""

    weights: Mapping[str, int]

    def __post_init__(self) -> None:
        if not self.weights or any(weight < 0 for weight in self.weights.values()) or not self.total:
            raise ValueError("a roster has at least one node, no negative weights, and some weight")

    @classmethod
    def of(cls, names: Iterable[str]) -> Roster:
        return cls(dict.fromkeys(names, 1))

    @property
    def total(self) -> int:
        return sum(self.weights.values())

    def digest(self) -> bytes:
        text = "\n".join(f"{name} {weight}" for name, weight in sorted(self.weights.items()))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    def weight_of(self, names: Iterable[str]) -> int:
        return sum(self.weights.get(name, 0) for name in names)

    def is_majority(self, voters: Iterable[str]) -> bool:
        """Returns whether these voters may establish a primary component. Exactly half is not enough (trap 9)."""
        return 2 * self.weight_of(voters) > self.total

    def restores_vote(self, others: Iterable[str]) -> bool:
        """Returns whether a node whose disk lost its data knows, once it has recovered with these other voters,
        everything that any majority can have made green: every majority, even with that node left out, intersects
        any other nodes that hold half of the weight (trap 7)."""
        return 2 * self.weight_of(others) >= self.total
