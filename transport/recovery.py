"""Asking for what was lost, and answering others who ask (section 3.1: NACKs, answered by any holder).

Requests are broadcast. A machine that hears another's request for what it lacks itself waits for that answer
instead of asking too. The packet's sender answers at once. Only when a request is repeated does every other
holder wait a random while and answer if nobody has: the sender may be gone, or may be the one who cannot be
heard.

How long to wait is measured, not only configured: on a network that delays or reorders by more than the
configured times, impatience would multiply the traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from transport.config import TransportConfig
from transport.dag import CausalDag, Stream
from transport.effects import Reason
from transport.messages import Machine, Milliseconds, Nack, Packet
from transport.roundtrip import RoundTrip

_DELAY_DECAY = 0.9
"""How fast, per request, patience with reordering returns to what is configured."""


@dataclass(slots=True)
class _Gap:
    """What one sender's stream lacks, and when to ask for it."""

    first_missing: int
    due: Milliseconds
    attempts: int = 0


class Recovery:
    """The requests and answers of one machine."""

    def __init__(self, dag: CausalDag, config: TransportConfig, random: Random, round_trip: RoundTrip) -> None:
        self._dag = dag
        self._config = config
        self._random = random
        self._round_trip = round_trip
        self._nack_delay_ms = config.nack_delay_ms
        self._requested_through: dict[Machine, int] = {}
        """The last unit of each sender that our latest request named, until that proves needless."""
        self._gaps: dict[Machine, _Gap] = {}
        self._answers: dict[tuple[Machine, int], Milliseconds] = {}
        """Packets somebody asked for, by sender and first sequence, and when to send each."""
        self._answered: dict[tuple[Machine, int], Milliseconds] = {}
        """When each was last retransmitted, by anyone; kept for `answer_hold_ms`."""
        self._paced_until: Milliseconds = 0.0

    def is_idle(self) -> bool:
        """Nothing is missing that we know of, and nobody has asked us for anything."""
        return not (self._answers or self._gaps or self._dag.has_gaps())

    def next_deadline(self) -> Milliseconds | None:
        deadline = min([gap.due for gap in self._gaps.values()]) if self._gaps else None
        if self._answers:
            answer = max(min(self._answers.values()), self._paced_until)
            deadline = answer if deadline is None else min(deadline, answer)
        return deadline

    def look_for_gaps(self, now: Milliseconds) -> None:
        """Starts, moves and ends the timers of the gaps, after packets have arrived or been mentioned."""
        incomplete = self._dag.incomplete()
        if not incomplete and not self._gaps:
            return
        gaps: dict[Machine, _Gap] = {}
        for stream in incomplete:
            first = stream.first_missing()
            if first is None:
                continue  # all there is has arrived; it waits for a gap in another stream
            gap = self._gaps.get(stream.machine)
            if gap is None or first > gap.first_missing:
                delay_ms = self._nack_delay_ms * (1.0 + self._random.random())
                gap = _Gap(first, now + delay_ms)
            gaps[stream.machine] = gap
        self._gaps = gaps

    def requests_due(self, now: Milliseconds) -> list[tuple[Nack, Reason]]:
        requests = []
        for machine, gap in self._gaps.items():
            if gap.due <= now:
                requests.append(self._request(self._dag.streams[machine], is_repeated=gap.attempts > 0))
                gap.attempts += 1
                gap.due = now + self._retry_ms(gap.attempts)
        return requests

    def _request(self, stream: Stream, is_repeated: bool) -> tuple[Nack, Reason]:
        ranges = stream.missing(self._config.nack_ranges_max)
        if stream.pending_bytes >= self._config.pending_bytes_max:
            ranges = ((ranges[0][0], ranges[0][0]),)  # there is room for the next packet only
        self._requested_through[stream.machine] = ranges[-1][1]
        self._nack_delay_ms = max(self._config.nack_delay_ms, self._nack_delay_ms * _DELAY_DECAY)
        return Nack(stream.machine, ranges, is_repeated), Reason.RETRY if is_repeated else Reason.NEW

    def on_duplicate(self, packet: Packet) -> None:
        """If we asked for it, then it was not lost but late, and we should have waited longer."""
        if packet.last_sequence <= self._requested_through.get(packet.sender, 0):
            del self._requested_through[packet.sender]
            self._nack_delay_ms = min(2.0 * self._nack_delay_ms, self._config.nack_delay_ms_max)

    def on_request(self, nack: Nack, now: Milliseconds) -> None:
        """Somebody lacks this. If we hold it, answer in due time; if we lack it too, do not ask as well."""
        stream = self._dag.streams[nack.machine]
        gap = self._gaps.get(nack.machine)
        if gap is not None and any(first <= gap.first_missing <= last for first, last in nack.ranges):
            gap.due = max(gap.due, now + self._retry_ms(1))
        if stream is not self._dag.own and not nack.is_repeated:
            return
        for first, last in nack.ranges:
            for packet in stream.held(first, last):
                self._schedule_answer(stream, packet, now)

    def on_packet(self, packet: Packet, now: Milliseconds) -> None:
        """The packet was on the network just now: whoever asked for it has been answered."""
        key = (packet.sender, packet.sequence)
        if self._answers.pop(key, None) is not None:
            self._answered[key] = now

    def answers_due(self, now: Milliseconds, size_of: Callable[[Packet], int]) -> list[Packet]:
        """Packets to retransmit now, lowest first, no faster than the configured rate."""
        if not self._answers or now < self._paced_until:
            return []
        due = sorted(key for key, at in self._answers.items() if at <= now)
        packets: list[Packet] = []
        spent = 0
        for key in due:
            if spent >= self._config.retransmit_bytes_per_ms:
                break
            del self._answers[key]
            machine, sequence = key
            held = self._dag.streams[machine].held(sequence, sequence)
            if held:  # it may have become stable in the meantime: then nobody lacks it
                packets.append(held[0])
                spent += size_of(held[0])
                self._answered[key] = now
        self._paced_until = now + spent / self._config.retransmit_bytes_per_ms
        return packets

    def _schedule_answer(self, stream: Stream, packet: Packet, now: Milliseconds) -> None:
        key = (packet.sender, packet.sequence)
        if key in self._answers or len(self._answers) >= self._config.answers_max:
            return
        self._forget_answered(now)
        if key in self._answered:
            return
        delay = 0.0
        if stream is not self._dag.own:
            patience_ms = max(self._config.answer_delay_ms, self._round_trip.smoothed_ms / 2.0)
            delay = patience_ms * (1.0 + 2.0 * self._random.random())
        self._answers[key] = now + delay

    def _forget_answered(self, now: Milliseconds) -> None:
        horizon = now - self._config.answer_hold_ms
        expired = []
        for key, at in self._answered.items():  # oldest first: entries are added as time goes on
            if at > horizon:
                break
            expired.append(key)
        for key in expired:
            del self._answered[key]

    def _retry_ms(self, attempts: int) -> Milliseconds:
        first_ms = max(self._config.nack_retry_ms, self._round_trip.bound_ms())
        doubled = first_ms * 2.0 ** min(attempts - 1, 16)
        return min(doubled, self._config.nack_retry_ms_max) * (1.0 + 0.5 * self._random.random())
