"""Whether it is worth waiting for what may not come: the more often it was in vain, the more seldom."""

from __future__ import annotations

_HASTY_MAX = 63


class Trust:
    """In others who usually do again what they did last time."""

    def __init__(self) -> None:
        self._disappointments = 0
        """In a row."""
        self._hasty = 0
        """So many times nobody is waited for."""

    def is_given(self) -> bool:
        """Asked once for each time that somebody might be waited for."""
        if self._hasty:
            self._hasty -= 1
            return False
        return True

    def justified(self) -> None:
        self._disappointments = 0

    def disappointed(self) -> None:
        self._disappointments += 1
        self._hasty = min(2**self._disappointments - 1, _HASTY_MAX)
