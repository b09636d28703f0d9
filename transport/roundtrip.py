"""How long the network takes to answer, as measured: no answer counts as overdue before that."""

from __future__ import annotations

from transport.deadlines import Milliseconds
from transport.messages import ORDERED, Packet

_SMOOTHING = 0.125
_DEVIATION_SMOOTHING = 0.25


class RoundTrip:
    """A smoothed mean and deviation of observed times, as TCP keeps them (RFC 6298).

    What takes longer than `ceiling_ms` is not counted: it is a pause of this machine or a repaired loss, not the
    network.
    """

    def __init__(self, ceiling_ms: Milliseconds) -> None:
        self._ceiling_ms = ceiling_ms
        self.smoothed_ms: Milliseconds = 0.0
        self._deviation_ms: Milliseconds = 0.0

    def take_over(self, earlier: RoundTrip) -> None:
        """Goes on with what an earlier one has measured."""
        self.smoothed_ms = earlier.smoothed_ms
        self._deviation_ms = earlier._deviation_ms

    def observe(self, sample_ms: Milliseconds) -> None:
        """Adds a sample."""
        if sample_ms > self._ceiling_ms:
            return
        if not self.smoothed_ms:
            self.smoothed_ms = sample_ms
            self._deviation_ms = sample_ms / 2.0
            return
        error = sample_ms - self.smoothed_ms
        self._deviation_ms += _DEVIATION_SMOOTHING * (abs(error) - self._deviation_ms)
        self.smoothed_ms += _SMOOTHING * error

    def bound_ms(self) -> Milliseconds:
        """Returns the time after which an answer is probably lost; 0 while nothing has been measured."""
        return min(self.smoothed_ms + 4.0 * self._deviation_ms, self._ceiling_ms)


class RoundTripMeter:
    """Takes the samples that a `RoundTrip` is made of, from the traffic that there is."""

    def __init__(self, round_trip: RoundTrip) -> None:
        self._round_trip = round_trip
        self._timed: tuple[int, Milliseconds] | None = None
        """The last sequence of one of our ordered packets in flight, and when it was sent: the time until every
        member has acknowledged it is a sample."""
        self._waiting_since: Milliseconds | None = None
        """Since when ordered messages wait for delivery: how long they do is a sample too, and the only one at a
        member that sends nothing."""

    def sent(self, packet: Packet, now: Milliseconds) -> None:
        """Notes that this machine has sent a packet."""
        if self._timed is None and packet.service in ORDERED:
            self._timed = (packet.last_sequence, now)

    def retransmitted(self) -> None:
        """Gives up the measurement: what was lost and repaired says nothing about the network's speed."""
        self._timed = None

    def stable(self, sequence: int, now: Milliseconds) -> None:
        """Notes that every member has acknowledged this machine's units up to `sequence`."""
        if self._timed is not None and sequence >= self._timed[0]:
            self._round_trip.observe(now - self._timed[1])
            self._timed = None

    def delivered(self, is_any_delivered: bool, is_any_left: bool, now: Milliseconds) -> None:
        """Notes whether ordered messages have been delivered, and whether others still wait."""
        if is_any_delivered and self._waiting_since is not None:
            self._round_trip.observe(now - self._waiting_since)
        if is_any_delivered or self._waiting_since is None:
            self._waiting_since = now if is_any_left else None
