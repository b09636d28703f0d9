"""How long a node whose disk failed stays away before it tries to come back."""

from __future__ import annotations

BACK_OFF_SECONDS = 1.0
"""The pause after a failure that does not follow another one soon."""

BACK_OFF_SECONDS_MAX = 30.0
"""The longest pause. Each return costs all nodes two view changes if it fails again, during which nothing becomes
green; a longer pause lets a node that is healthy again wait longer."""

GOOD_SECONDS = 60.0
"""A failure that comes sooner than this after a return doubles the pause. For each such time that went well it is
halved."""


class BackOff:
    """The pauses of one node. They grow and shrink across its incarnations: to the others each return is a view
    change, whatever its incarnation."""

    def __init__(self) -> None:
        self._pause = BACK_OFF_SECONDS
        self._returned_at: float | None = None

    def failed(self, now: float) -> float:
        """Returns how many seconds to wait after a failure at this time."""
        if self._returned_at is not None:
            good_times = int((now - self._returned_at) / GOOD_SECONDS)
            factor = 2.0 if good_times == 0 else 0.5 ** min(good_times, 64)
            self._pause = min(max(self._pause * factor, BACK_OFF_SECONDS), BACK_OFF_SECONDS_MAX)
        return self._pause

    def returned(self, now: float) -> None:
        """Notes that the node has come back at this time."""
        self._returned_at = now
