"""Control messages, again, for whoever lacks them.

Heartbeats say which control messages their sender has. Whoever has more repeats it: its sender at once, others
after a random moment in which nobody else has.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from membership.config import MembershipConfig
from membership.messages import Control
from membership.protocol import MembershipProtocol, Stage
from transport.messages import Machine, Milliseconds

_AT_ONCE = float("-inf")
_NEVER = float("inf")


class Repetition:
    """What one machine has to repeat, and when."""

    def __init__(self, protocol: MembershipProtocol, config: MembershipConfig, random: Random) -> None:
        self._protocol = protocol
        self._config = config
        self._random = random
        self._scheduled: dict[tuple[Machine, int], tuple[Milliseconds, Control]] = {}
        self._transmitted_at: dict[tuple[Machine, int], Milliseconds] = {}
        """When each control message was last on the network, as far as we know."""

    def transmitted(self, control: Control, now: Milliseconds) -> None:
        """We or somebody else have just sent it."""
        key = (control.sender, control.sequence)
        self._scheduled.pop(key, None)
        self._transmitted_at[key] = now

    def offer(self, target: Machine, positions: dict[Machine, int], now: Milliseconds) -> None:
        """The machine's heartbeat says it has come so far: schedules what it lacks and ought to have."""
        protocol = self._protocol
        is_concerned = target in protocol.join_machines or target in protocol.current
        if is_concerned:
            for machine in protocol.dag.logged():
                last = protocol.dag.heard_through(machine)
                if positions.get(machine, last) < last:
                    self._schedule(protocol.dag.since(machine, positions[machine]), now)
        is_inviting = protocol.stage is Stage.GATHERING or (protocol.stage is Stage.COMMITTED and is_concerned)
        if is_inviting and protocol.me not in positions:
            own_set = protocol.sets[protocol.view.id]
            self._schedule(protocol.dag.since(protocol.me, dict(own_set.cut_vector)[protocol.me]), now)

    def due(self, now: Milliseconds) -> list[Control]:
        """What is to be sent now."""
        if not self._scheduled:
            return []
        due = [self._scheduled[key][1] for key in sorted(self._scheduled) if self._scheduled[key][0] <= now]
        for control in due:
            self.transmitted(control, now)
        return due

    def next_deadline(self) -> Milliseconds:
        if not self._scheduled:  # as nearly always
            return _NEVER
        return min([at for at, _ in self._scheduled.values()])

    def forget_before(self, horizon: Milliseconds) -> None:
        self._transmitted_at = {key: at for key, at in self._transmitted_at.items() if at > horizon}

    def _schedule(self, controls: Iterable[Control], now: Milliseconds) -> None:
        for control in controls:
            key = (control.sender, control.sequence)
            if key in self._scheduled:
                continue
            at = max(now, self._transmitted_at.get(key, _AT_ONCE) + self._config.resend_hold_ms)
            if control.sender != self._protocol.me:
                at += self._config.resend_delay_ms * (1.0 + self._random.random())
            self._scheduled[key] = (at, control)
