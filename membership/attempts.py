"""When to look for foreign views to join, and how long to collect the attempts of others.

A machine looks with every heartbeat that it sends, and soon after one arrives that says something new: views
whose links work again need not wait for our next heartbeat. Stage 1 need not last for all of α: once every machine
that is heard is in J, no further attempt can come.
"""

from __future__ import annotations

from random import Random

from membership.config import MembershipConfig
from membership.neighbours import Neighbours
from membership.protocol import MembershipProtocol
from membership.stages import Stage
from transport import NEVER, Milliseconds


class Attempts:
    """The times at which one machine looks for foreign views, attempts to join them, and commits to a join."""

    def __init__(
        self,
        protocol: MembershipProtocol,
        neighbours: Neighbours,
        config: MembershipConfig,
        random: Random,
        now: Milliseconds,
    ) -> None:
        self._protocol = protocol
        self._neighbours = neighbours
        self._config = config
        self._random = random
        self._attempt_at = now
        self._looked_at = now
        self.look_at: Milliseconds = NEVER
        """When to look next, if no heartbeat is sent before."""
        self.alpha_at: Milliseconds = NEVER
        """When Stage 1 is over."""

    def heard_news(self, now: Milliseconds) -> None:
        """Makes us look soon: a machine hears others than before, or is in another view."""
        self.look_at = min(self.look_at, max(now, self._looked_at + self._config.look_again_ms))

    def look(self, now: Milliseconds) -> bool:
        """Returns whether to attempt to join foreign views now."""
        self._looked_at = now
        joinable = self._neighbours.joinable(self._protocol.current, now)
        self.look_at = self._neighbours.next_joinable_at(now)
        return bool(joinable) and now >= self._attempt_at

    def nobody_answered(self, now: Milliseconds) -> None:
        self._attempt_at = now + self._config.attempt_again_ms * (1.0 + self._random.random())

    def entered(self, stage: Stage, now: Milliseconds) -> None:
        self.alpha_at = now + self._config.alpha_ms if stage is Stage.GATHERING else NEVER

    def end_if_complete(self, now: Milliseconds) -> None:
        """Ends Stage 1 now if nobody is left who could attempt to join."""
        if self._is_complete(now):
            self.alpha_at = now

    def _is_complete(self, now: Milliseconds) -> bool:
        """Whether no machine is heard that could still join us, and at least one will."""
        protocol = self._protocol
        return (
            protocol.stage is Stage.GATHERING
            and bool(protocol.join_machines - protocol.suspects - protocol.current)
            and protocol.join_machines.issuperset(self._neighbours.heard_lately(now))
        )
