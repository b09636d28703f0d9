"""Whether a write of the log waits a moment for more messages (decision 18).

A sync takes as long for many messages as for one, and every write is reported to every member. Where several
members send at the same pace, a write that is to log the messages of some of them waits for the messages of the
others: all members then write, and answer their clients, in step.
"""

from __future__ import annotations

from collections.abc import Collection

from corel.adaptive_wait import AdaptiveWait
from transport import Machine, Milliseconds


class WriteGathering:
    """Decides whether one node's writes wait. `gather_ms` is the longest that a write waits; 0 never waits."""

    def __init__(self, gather_ms: Milliseconds) -> None:
        self._gather_ms = gather_ms
        self._expected: frozenset[Machine] = frozenset()
        """The members whose messages were in the last write; none if the next write is not to wait."""
        self._wait = AdaptiveWait()

    def must_wait(self, senders: Collection[Machine]) -> bool:
        """Returns whether a write of these members' messages is to wait for messages of other members."""
        is_waiting = (
            bool(senders)
            and self._gather_ms > 0.0
            and not self._wait.is_over
            and not self._expected <= set(senders)
        )
        if is_waiting:
            self._wait.begin(self._gather_ms)
        return is_waiting

    def wrote(self, senders: Collection[Machine]) -> None:
        """Notes that a write of these members' messages begins."""
        self._wait.end()
        if not senders:
            return
        if len(self._expected) > 1 and self._expected <= set(senders):
            self._wait.succeeded()
        self._expected = frozenset(senders) if self._wait.is_worthwhile() else frozenset()

    def tick(self, now: Milliseconds) -> None:
        self._wait.tick(now)

    def next_deadline(self) -> Milliseconds:
        return self._wait.next_deadline()
