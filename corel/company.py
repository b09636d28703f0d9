"""Whether a write waits a moment for more messages.

A sync takes as long for many messages as for one, and so does everybody who is told of it. Where several members
send at the same pace, a write that is to log the messages of some waits for those of the others: all members then
write, and answer their clients, in step. Where they do not come, fewer and fewer writes wait."""

from __future__ import annotations

from collections.abc import Collection

from corel.trust import Trust
from transport.messages import Machine, Milliseconds

_NEVER = float("inf")
_AT_ONCE = float("-inf")


class Company:
    """Of one node's writes. It learns by `tick` what time it is."""

    def __init__(self, patience_ms: Milliseconds) -> None:
        self._patience_ms = patience_ms
        self._expected: frozenset[Machine] = frozenset()
        """Whose messages were in the last write."""
        self._trust = Trust()
        self._is_waiting = False
        self._until: Milliseconds | None = None
        """Not longer than this, once the time is known."""
        self._is_over = False
        """We have waited long enough."""

    def must_wait(self, senders: Collection[Machine]) -> bool:
        """Whether a write of these members' messages is to wait for others'."""
        self._is_waiting = (
            bool(senders) and self._patience_ms > 0.0 and not self._is_over and not self._expected <= set(senders)
        )
        return self._is_waiting

    def wrote(self, senders: Collection[Machine]) -> None:
        """A write of these members' messages begins."""
        self._is_waiting = self._is_over = False
        self._until = None
        if not senders:
            return
        if len(self._expected) > 1 and self._expected <= set(senders):
            self._trust.justified()
        self._expected = frozenset(senders) if self._trust.is_given() else frozenset()

    def tick(self, now: Milliseconds) -> None:
        if not self._is_waiting or self._is_over:
            return
        if self._until is None:
            self._until = now + self._patience_ms
        if now >= self._until:
            self._is_over = True
            self._trust.disappointed()

    def next_deadline(self) -> Milliseconds:
        if not self._is_waiting or self._is_over:
            return _NEVER
        return _AT_ONCE if self._until is None else self._until
