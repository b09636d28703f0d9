"""A node whose disk fails again and again comes back less and less often: each return costs all the others two
view changes."""

from __future__ import annotations

from tests.simulator.checkers.base import Violation

WINDOW_MS = 10_000.0

RETURNS_MAX = 3
"""How often a process may come back to its disk within a window: after pauses of 1, 2 and 4 seconds. The next is
of 8 seconds."""


class Flapping:
    def __init__(self) -> None:
        self._returns: dict[tuple[str, int], list[float]] = {}

    def returned(self, node: str, life: int, now: float) -> None:
        """A process of this node, which knows nothing of its earlier processes, has come back at this time."""
        returns = self._returns.setdefault((node, life), [])
        returns.append(now)
        recent = [at for at in returns if at > now - WINDOW_MS]
        if len(recent) > RETURNS_MAX:
            raise Violation(f"{node} came back {len(recent)} times within {WINDOW_MS} ms")
