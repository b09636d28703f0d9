"""A bounded wait for something that usually comes, with back-off where it does not.

Waiting a moment for more work makes batches larger, but only where more work is on its way. Each wait that times
out is a failure; after the first failure the next occasion does not wait, after the second in a row the next three
do not, then seven, up to `SKIPS_MAX`. One wait that succeeds clears all failures before it.
"""

from __future__ import annotations

from transport import AT_ONCE, NEVER, Milliseconds

SKIPS_MAX = 63
"""The most occasions in a row that do not wait."""


class AdaptiveWait:
    """The wait of one node for one purpose. It learns the time from `tick`."""

    def __init__(self) -> None:
        self._wait_ms: Milliseconds | None = None
        """How long the wait under way may take; None while there is none."""
        self._is_judged = False
        """Whether it is a failure if the wait under way times out."""
        self._until: Milliseconds | None = None
        """When the wait under way ends, once the time is known."""
        self.is_over = False
        """Whether the wait under way has timed out."""
        self._failures = 0
        """How many waits in a row have failed."""
        self._skips = 0
        """How many of the next occasions do not wait."""

    def is_worthwhile(self) -> bool:
        """Whether to wait on this occasion. Ask once per occasion: the answer counts it."""
        if self._skips:
            self._skips -= 1
            return False
        return True

    def begin(self, wait_ms: Milliseconds, is_judged: bool = True) -> None:
        """Begins a wait, or continues the one under way. Its end is set once."""
        self._wait_ms = wait_ms
        self._is_judged = is_judged

    def end(self) -> None:
        """Ends the wait under way, if there is one: there is nothing left to wait for."""
        self._wait_ms = self._until = None
        self.is_over = False

    def excuse(self) -> None:
        """Notes that what was waited for has come: it is no failure if the wait under way still times out."""
        self._is_judged = False

    def succeeded(self) -> None:
        """Notes that waiting was worth it: earlier failures no longer count."""
        self._failures = 0

    def tick(self, now: Milliseconds) -> None:
        if self._wait_ms is None or self.is_over:
            return
        if self._until is None:
            self._until = now + self._wait_ms
        if now >= self._until:
            self.is_over = True
            if self._is_judged:
                self._failures += 1
                self._skips = min(2**self._failures - 1, SKIPS_MAX)

    def next_deadline(self) -> Milliseconds:
        if self._wait_ms is None or self.is_over:
            return NEVER
        return AT_ONCE if self._until is None else self._until
