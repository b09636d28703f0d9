"""When held writes are sent in a primary component: in rounds (decision 18).

A message costs every node about the same, whatever it carries, so a node sends one at a time, as full as possible.
The next one is sent when the last one is green and most of the clients that were answered with it have written
again. Both waits are bounded; and where answered clients do not write again, fewer and fewer rounds wait for
them."""

from __future__ import annotations

from corel import AdaptiveWait
from kvstore.store.config import StoreConfig
from transport import Milliseconds

_MOST = 0.9
"""The fraction of the expected writes that a round waits for: not for the last few."""


class Rounds:
    """The rounds of one node. It learns the time from `tick`."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._expected = 0
        """How many writes will be held when the clients that were just answered have written again; 0 if this
        round does not wait for them."""
        self._wait = AdaptiveWait()

    def begin(self) -> None:
        """Begins a round: a message was sent."""
        self._expected = 0
        self._wait.end()

    def end(self, answered: int, held: int) -> None:
        """Ends a round: a message of this node is green, `answered` clients are being answered, `held` writes
        wait."""
        self._wait.end()
        self._expected = answered + held if self._wait.is_worthwhile() else 0

    def must_wait(self, held: int, is_under_way: bool) -> bool:
        """Returns whether `held` writes wait for more writes, or for a message in flight (`is_under_way`)."""
        if self._wait.is_over:
            return False
        is_gathering = not is_under_way and held < _MOST * self._expected
        if is_gathering or is_under_way:
            wait_ms = self._config.gather_ms if is_gathering else self._config.round_ms
            self._wait.begin(wait_ms, is_judged=is_gathering)
            return wait_ms > 0.0
        self._wait.excuse()
        if self._expected > 1:
            self._wait.succeeded()
        return False

    def tick(self, now: Milliseconds) -> None:
        self._wait.tick(now)

    def next_deadline(self) -> Milliseconds:
        return self._wait.next_deadline()
