"""A node that takes over the state of another is in reach afterwards: once nothing fails and nothing is written,
it does not take over again and again."""

from __future__ import annotations

from collections import Counter

from tests.simulator.checkers.base import Violation

LEARNED_MAX = 3
"""How often a node may take over a state when all is well: one that it began to fetch before, one of a node that
was behind itself, and one more."""


class LearnedSeldom:
    def __init__(self) -> None:
        self._times: Counter[str] = Counter()
        self._is_quiet = False

    def becomes_quiet(self) -> None:
        """From now on no fault happens, and nothing is written but what is on its way."""
        self._is_quiet = True

    def learned(self, node: str) -> None:
        if not self._is_quiet:
            return
        self._times[node] += 1
        if self._times[node] > LEARNED_MAX:
            raise Violation(f"{node} takes over a state for the {self._times[node]}th time, and all is well")
