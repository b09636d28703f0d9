"""When held writes leave, in a primary component: in rounds.

A message costs every node about the same, whatever it carries, so a node sends one at a time, as full as it gets.
The next one leaves when the last is green and most of the clients that were answered with it have written again.
Neither is waited for long; and where answered clients do not come back, fewer and fewer rounds wait for them."""

from __future__ import annotations

from corel.trust import Trust
from kvstore.store_config import StoreConfig
from transport.messages import Milliseconds

_NEVER = float("inf")
_AT_ONCE = float("-inf")
_MOST = 0.9
"""The last few of those who are expected are not waited for."""


class Rounds:
    """One node's. It learns by `tick` what time it is."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._expected = 0
        """Writes that will be held in a moment, if those who were answered write again."""
        self._is_gathering = False
        """We wait for them."""
        self._patience_ms: Milliseconds | None = None
        """How long to wait in this round, where that is so."""
        self._until: Milliseconds | None = None
        """The end of it, once the time is known."""
        self._is_over = False
        """We have waited long enough."""
        self._trust = Trust()

    def begin(self) -> None:
        """A message has left."""
        self._expected = 0
        self._forget_patience()

    def end(self, answered: int, held: int) -> None:
        """Own messages are green, so many clients were answered, and so many writes are held."""
        self._forget_patience()
        self._expected = answered + held if self._trust.is_given() else 0

    def must_wait(self, held: int, is_under_way: bool) -> bool:
        """Whether writes that are held wait for more, or for own messages that are not green."""
        if self._is_over:
            return False
        self._is_gathering = not is_under_way and held < _MOST * self._expected
        if self._is_gathering or is_under_way:
            self._patience_ms = self._config.gather_ms if self._is_gathering else self._config.round_ms
            return self._patience_ms > 0.0
        if self._expected > 1:
            self._trust.justified()
        return False

    def tick(self, now: Milliseconds) -> None:
        if self._patience_ms is None or self._is_over:
            return
        if self._until is None:
            self._until = now + self._patience_ms
        if now >= self._until:
            self._is_over = True
            if self._is_gathering:
                self._trust.disappointed()

    def next_deadline(self) -> Milliseconds:
        if self._patience_ms is None or self._is_over:
            return _NEVER
        return _AT_ONCE if self._until is None else self._until

    def _forget_patience(self) -> None:
        self._patience_ms = self._until = None
        self._is_over = False
