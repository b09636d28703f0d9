"""Retransmission of control messages to machines that lack them.

Heartbeats say which control messages their sender has. A machine that has more repeats them: its own at once,
those of others after a random delay, if no other machine has repeated them by then. The first repetitions of a
message follow each other closely, for some were lost; then each pause is twice the last, up to a bound, for the
message is probably of no use to whoever lacks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from membership.config import MembershipConfig
from membership.messages import Control
from membership.protocol import MembershipProtocol
from membership.stages import Stage
from transport import AT_ONCE, NEVER, Machine, Milliseconds


class Repetition:
    """The control messages that one machine has to repeat, and when."""

    def __init__(self, protocol: MembershipProtocol, config: MembershipConfig, random: Random) -> None:
        self._protocol = protocol
        self._config = config
        self._random = random
        self._scheduled: dict[tuple[Machine, int], tuple[Milliseconds, Control]] = {}
        self._transmitted_at: dict[tuple[Machine, int], Milliseconds] = {}
        """When each control message was last sent by any machine, as far as we know."""
        self._repeats: Counter[tuple[Machine, int]] = Counter()
        """How often we have repeated each of them lately."""

    def transmitted(self, control: Control, now: Milliseconds) -> None:
        """Notes that we or another machine have just sent this message, so that it need not be repeated yet."""
        key = (control.sender, control.sequence)
        self._scheduled.pop(key, None)
        self._transmitted_at[key] = now

    def offer(self, target: Machine, positions: dict[Machine, int], now: Milliseconds) -> None:
        """Schedules the messages that a machine should have and, by its heartbeat's positions, lacks."""
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
        """Returns the messages to send now."""
        if not self._scheduled:
            return []
        due = [self._scheduled[key][1] for key in sorted(self._scheduled) if self._scheduled[key][0] <= now]
        for control in due:
            self.transmitted(control, now)
            self._repeats[control.sender, control.sequence] += 1
        return due

    def next_deadline(self) -> Milliseconds:
        if not self._scheduled:  # the usual case
            return NEVER
        return min([at for at, _ in self._scheduled.values()])

    def forget_before(self, horizon: Milliseconds) -> None:
        """Drops the transmission times up to the horizon."""
        self._transmitted_at = {key: at for key, at in self._transmitted_at.items() if at > horizon}
        for key in self._repeats.keys() - self._transmitted_at.keys():
            del self._repeats[key]

    def _schedule(self, controls: Iterable[Control], now: Milliseconds) -> None:
        for control in controls:
            key = (control.sender, control.sequence)
            if key in self._scheduled:
                continue
            at = max(now, self._transmitted_at.get(key, AT_ONCE) + self._hold_ms(key))
            if at > now + self._config.resend_hold_ms:
                continue  # its heartbeats will ask again, if it still lacks the message then
            if control.sender != self._protocol.me:
                at += self._config.resend_delay_ms * (1.0 + self._random.random())
            self._scheduled[key] = (at, control)

    def _hold_ms(self, key: tuple[Machine, int]) -> Milliseconds:
        """How long to wait after the last transmission of a message: the longer, the more often we repeated it."""
        doublings = max(0, self._repeats[key] - self._config.resend_free)
        # The exponent is bounded before the power is taken: a message may be repeated very often.
        return min(self._config.resend_hold_ms * 2.0 ** min(doublings, 20), self._config.resend_hold_ms_max)
