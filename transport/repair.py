"""Requesting what was lost, and answering the requests of others (section 3.1: NACKs, answered by any holder).

Requests are broadcast. A machine that hears another's request for what it lacks itself waits for that answer
instead of requesting it too. The packet's sender answers at once. Only when a request is repeated does every other
holder wait for a random time and answer if no other machine has: the sender may be gone, or may be the one that
cannot be heard.

How long to wait is measured, not only configured: on a network that delays or reorders by more than the
configured times, fixed times would multiply the traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from transport import codec
from transport.config import TransportConfig
from transport.dag import CausalDag, PacketStream
from transport.deadlines import NEVER, Milliseconds
from transport.messages import Machine, Nack, Packet, Ranges
from transport.roundtrip import RoundTrip

_DELAY_DECAY = 0.9
"""The factor by which every request shortens the time allowed for reordering, down to what is configured."""

_RUN_WHEN_FULL = 32
"""How many units to request when only the next one in order can be kept."""


@dataclass(slots=True)
class _Gap:
    """What one sender's stream lacks. What has been requested is requested again only when the answer is overdue;
    what was found missing since then is requested by itself."""

    first_missing: int
    ask_at: Milliseconds
    """When to request what is missing after `asked_through`."""
    asked_through: int = 0
    repeat_at: Milliseconds = NEVER
    """When to repeat the request for what is still missing."""
    attempts: int = 0
    may_be_needless: bool = False
    """Whether the last request may turn out to have been needless."""


class Requests:
    """The requests for what this machine lacks, and when to send them."""

    def __init__(self, dag: CausalDag, config: TransportConfig, random: Random, round_trip: RoundTrip) -> None:
        self._dag = dag
        self._config = config
        self._random = random
        self._round_trip = round_trip
        self._ranges_max = config.nack_ranges_max
        self._ranges_per_nack = codec.nack_ranges_fitting(config.datagram_bytes_max)
        self.delay_ms = config.nack_delay_ms
        self._gaps: dict[Machine, _Gap] = {}

    def is_idle(self) -> bool:
        return not self._gaps and not self._dag.has_gaps()

    def next_deadline(self) -> Milliseconds:
        if not self._gaps:
            return NEVER
        return min([min(gap.ask_at, gap.repeat_at) for gap in self._gaps.values()])

    def look_for_gaps(self, now: Milliseconds) -> None:
        """Starts, moves and ends the timers of the gaps, after packets have arrived or been mentioned."""
        if self.is_idle():
            return
        gaps: dict[Machine, _Gap] = {}
        for stream in self._dag.incomplete():
            first = stream.first_missing()
            if first is None:
                continue  # all its packets have arrived; they wait for a gap in another stream
            gap = self._gaps.get(stream.machine)
            if gap is None:
                gap = _Gap(first, now + self._reordering_ms())
            elif first > gap.first_missing:
                gap.first_missing = first
                if first > gap.asked_through:
                    gap.attempts, gap.repeat_at = 0, NEVER
                else:  # answers are coming in
                    gap.attempts, gap.repeat_at = 1, now + self._retry_ms(1)
            if gap.ask_at == NEVER and stream.known_through > gap.asked_through:
                gap.ask_at = now + self._reordering_ms()
            gaps[stream.machine] = gap
        self._gaps = gaps

    def due(self, now: Milliseconds) -> list[Nack]:
        """Returns the requests to send now."""
        requests: list[Nack] = []
        for machine, gap in self._gaps.items():
            stream = self._dag.streams[machine]
            if gap.repeat_at <= now:
                gap.attempts += 1
                gap.repeat_at = now + self._retry_ms(gap.attempts)
                through = min(gap.asked_through, stream.known_through)  # suspicion may have lowered the latter
                ranges, gap.asked_through = self._askable(stream, 0, through)
                requests += self._request(stream, ranges, is_repeated=True)
            if gap.ask_at <= now:
                ranges, gap.asked_through = self._askable(stream, gap.asked_through, stream.known_through)
                gap.ask_at = NEVER
                if ranges:
                    gap.may_be_needless = True
                    gap.attempts = max(gap.attempts, 1)
                    gap.repeat_at = min(gap.repeat_at, now + self._retry_ms(1))
                    requests += self._request(stream, ranges, is_repeated=False)
        return requests

    def _askable(self, stream: PacketStream, after: int, through: int) -> tuple[Ranges, int]:
        """Returns what to request now of what is missing, and the unit up to which that is everything."""
        ranges = stream.missing(self._ranges_max, after, through)
        if ranges and stream.pending_bytes >= self._config.window_bytes_max:
            # Only what continues the DAG can be kept: request a run that will, if it comes in order.
            first, last = ranges[0]
            ranges = ((first, min(last, first + _RUN_WHEN_FULL - 1)),)
            return ranges, ranges[-1][1]
        return ranges, ranges[-1][1] if len(ranges) == self._ranges_max else through

    def on_request(self, nack: Nack, now: Milliseconds) -> None:
        """Notes the request of another machine: if we lack the same, the answer will serve both."""
        gap = self._gaps.get(nack.machine)
        if gap is None:
            return
        for first, last in nack.ranges:
            if first <= gap.first_missing <= last:
                known_through = self._dag.streams[nack.machine].known_through
                gap.asked_through = max(gap.asked_through, min(last, known_through))
                gap.repeat_at = now + self._retry_ms(max(gap.attempts, 1))

    def on_original(self, packet: Packet) -> None:
        """Notes that a packet has arrived as it was first sent. If it had been requested, it was late, not lost:
        the next request waits longer."""
        gap = self._gaps.get(packet.sender)
        if gap is not None and gap.may_be_needless and packet.last_sequence <= gap.asked_through:
            gap.may_be_needless = False
            self.delay_ms = min(2.0 * self.delay_ms, self._config.nack_delay_ms_max)

    def _request(self, stream: PacketStream, ranges: Ranges, is_repeated: bool) -> list[Nack]:
        """Returns the requests for these units, in as many frames as needed."""
        self.delay_ms = max(self._config.nack_delay_ms, self.delay_ms * _DELAY_DECAY)
        size = self._ranges_per_nack
        return [
            Nack(stream.machine, ranges[start : start + size], is_repeated)
            for start in range(0, len(ranges), size)
        ]

    def _reordering_ms(self) -> Milliseconds:
        """Returns how long something may be missing before it counts as lost."""
        return self.delay_ms * (1.0 + self._random.random())

    def _retry_ms(self, attempts: int) -> Milliseconds:
        """Returns how long to wait for an answer after this many requests."""
        first_ms = max(self._config.nack_retry_ms, self._round_trip.bound_ms())
        doubled_ms = first_ms * 2.0 ** min(attempts - 1, 16)
        return min(doubled_ms, self._config.nack_retry_ms_max) * (1.0 + 0.5 * self._random.random())


class Answers:
    """The retransmissions of what others lack and this machine holds, and when to send them."""

    def __init__(self, dag: CausalDag, config: TransportConfig, random: Random, round_trip: RoundTrip) -> None:
        self._dag = dag
        self._config = config
        self._random = random
        self._round_trip = round_trip
        self._scheduled: dict[tuple[Machine, int], tuple[Milliseconds, Packet]] = {}
        """Packets that were requested, by sender and first sequence, and when to send each."""
        self._answered: dict[tuple[Machine, int], Milliseconds] = {}
        """When each was last retransmitted, by any machine, oldest first; kept for `answer_hold_ms`."""
        self._paced_until: Milliseconds = 0.0

    def next_deadline(self) -> Milliseconds:
        if not self._scheduled:
            return NEVER
        return max(min([at for at, _ in self._scheduled.values()]), self._paced_until)

    def __len__(self) -> int:
        return len(self._scheduled)

    def on_request(self, nack: Nack, now: Milliseconds) -> None:
        """Schedules retransmissions for a request, if it is for this machine to answer."""
        stream = self._dag.streams[nack.machine]
        is_ours = stream is self._dag.own
        if not is_ours and not nack.is_repeated:
            return
        self._expire_answered(now)
        for packet in stream.held(nack.ranges):
            key = (packet.sender, packet.sequence)
            if key in self._scheduled or key in self._answered:
                continue
            if len(self._scheduled) >= self._config.answers_max:
                break
            self._scheduled[key] = (now if is_ours else now + self._back_off_ms(), packet)

    def on_retransmission(self, packet: Packet, transmitter: Machine, now: Milliseconds) -> None:
        """Notes that another machine has answered. If it was the packet's own sender, that changes nothing for
        other holders: a request is repeated when the machine that sent it cannot hear the sender."""
        if transmitter == packet.sender:
            return
        key = (packet.sender, packet.sequence)
        self._scheduled.pop(key, None)
        self._note_answered(key, now)

    def due(self, now: Milliseconds) -> list[Packet]:
        """Returns the packets to retransmit now, lowest first, no faster than the configured rate."""
        if not self._scheduled or now < self._paced_until:
            return []
        packets: list[Packet] = []
        spent = 0
        for key in sorted([key for key, (at, _) in self._scheduled.items() if at <= now]):
            if spent >= self._config.retransmit_bytes_per_ms:
                break
            _, packet = self._scheduled.pop(key)
            if packet.last_sequence > self._dag.streams[packet.sender].stable_through:  # else no member lacks it
                packets.append(packet)
                spent += self._dag.cost_bytes(packet)
                self._note_answered(key, now)
        self._paced_until = now + spent / self._config.retransmit_bytes_per_ms
        return packets

    def _back_off_ms(self) -> Milliseconds:
        delay_ms = max(self._config.answer_delay_ms, self._round_trip.smoothed_ms / 2.0)
        return delay_ms * (1.0 + 2.0 * self._random.random())

    def _note_answered(self, key: tuple[Machine, int], now: Milliseconds) -> None:
        self._expire_answered(now)
        self._answered.pop(key, None)  # so that it is added last
        self._answered[key] = now

    def _expire_answered(self, now: Milliseconds) -> None:
        horizon = now - self._config.answer_hold_ms
        expired = []
        for key, at in self._answered.items():
            if at > horizon:
                break
            expired.append(key)
        for key in expired:
            del self._answered[key]
