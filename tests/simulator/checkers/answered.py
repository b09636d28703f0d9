"""Every request is answered by its deadline, unless its node crashes, or is stopped until later than that."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import StoreChecker, StoreHistory

LATE_MS = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A request that a node has taken."""

    what: str
    node: str
    starts: int
    deadline: float


class Answered(StoreChecker):
    def __init__(self, history: StoreHistory) -> None:
        super().__init__(history)
        self._open: dict[Asked, None] = {}

    @property
    def waiting(self) -> int:
        return len(self._open)

    def asked(self, asked: Asked) -> None:
        self._open[asked] = None

    def answered_one(self, asked: Asked, now: float, stopped_until: float) -> None:
        self._open.pop(asked, None)
        self._check(asked, now, stopped_until)

    def crashed(self, node: str) -> None:
        """Expects no more answers of this node."""
        self._open = {asked: None for asked in self._open if asked.node != node}

    def check(self, now: float, stopped_until: dict[str, float]) -> None:
        """Checks that no request is open past its deadline."""
        for asked in self._open:
            self._check(asked, now, stopped_until[asked.node])

    def _check(self, asked: Asked, now: float, stopped_until: float) -> None:
        if now > max(asked.deadline, stopped_until) + LATE_MS:
            raise Violation(f"{asked.node} did not answer {asked.what} by {asked.deadline:.3f}")
