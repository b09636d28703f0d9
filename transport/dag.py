"""The causal DAG of Lansis (section 3.1): which packets are here, what members have acknowledged, what is missing.

A packet enters the DAG when its sender's previous packet and everything it acknowledges are in it; until then
it is *pending*. Being in the DAG is therefore the same as being causally deliverable, and the DAG needs no arcs:
per machine, what is in it is a prefix of that machine's units, so an acknowledgement is one number and a
packet's causal past is one number per machine.

Packets stay in the retransmission buffer until every member is known to have acknowledged them (*stable*).

A difference from the paper: it sends an acknowledgement only for the leaves of the DAG, because the chain
implies the rest. We name every machine whose last unit has changed since our previous packet, also once each.
That is at most one number per member and packet, and lets a receiver compute a packet's past, and see every
loss it reveals, without having the packets in between.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice

from transport.config import TransportConfig
from transport.messages import Acks, Machine, Packet, Ranges


class PacketStream:
    """What is known of the units of one machine, and what that machine is known to have."""

    __slots__ = (
        "machine", "inserted_through", "received_through", "known_through", "heard_clock",
        "pending", "pending_sequences", "pending_bytes", "buffer", "buffered_messages", "buffered_bytes",
        "acks", "stable_through", "promised_sequence", "promised_clock", "required_through",
    )  # fmt: skip

    def __init__(self, machine: Machine, base: int = 0) -> None:
        self.machine = machine
        self.inserted_through = base
        """All units up to this one are in the DAG, or belong to earlier views."""
        self.received_through = base
        """All units up to this one are in the DAG or pending."""
        self.known_through = base
        """The highest unit that any member has mentioned."""
        self.required_through: int | None = None
        """If the machine is suspected: its last unit that a member that is not suspected has in its DAG."""
        self.heard_clock = 0
        """Every unit that is not in the DAG has a higher clock than this."""
        self.pending: dict[int, Packet] = {}
        """Packets that have been received and cannot enter the DAG yet, by first sequence."""
        self.pending_sequences: list[int] = []
        """The keys of `pending`, in order."""
        self.pending_bytes = 0
        self.buffer: deque[Packet] = deque()
        """Packets that are in the DAG and not known to be stable, in order."""
        self.buffered_messages = 0
        self.buffered_bytes = 0
        self.acks: dict[Machine, int] = {}
        """What this machine has acknowledged, by whatever route we learned it."""
        self.stable_through = base
        self.promised_sequence = 0
        self.promised_clock = 0

    def has(self, packet: Packet) -> bool:
        """Returns whether the packet is in the DAG or pending."""
        return packet.last_sequence <= self.inserted_through or packet.sequence in self.pending

    def fits_between(self, packet: Packet) -> bool:
        """Returns whether a packet that we do not have fits what we have: no unit twice, no clock out of order."""
        if packet.sequence <= self.inserted_through or packet.clock <= self.heard_clock:
            return False
        place = bisect_left(self.pending_sequences, packet.sequence)
        if place > 0:
            before = self.pending[self.pending_sequences[place - 1]]
            if before.last_sequence >= packet.sequence or before.last_clock >= packet.clock:
                return False
        if place < len(self.pending_sequences):
            after = self.pending[self.pending_sequences[place]]
            if after.sequence <= packet.last_sequence or after.clock <= packet.last_clock:
                return False
        return True

    def first_missing(self) -> int | None:
        """Returns the lowest unit that is known to exist and has not been received."""
        return self.received_through + 1 if self.known_through > self.received_through else None

    def missing(self, ranges_max: int, after: int, through: int) -> Ranges:
        """Returns the ranges of units that are missing after `after` and up to `through`, lowest first."""
        ranges: list[tuple[int, int]] = []
        expected = max(self.received_through, after) + 1
        place = bisect_left(self.pending_sequences, expected)
        if place > 0:
            expected = max(expected, self.pending[self.pending_sequences[place - 1]].last_sequence + 1)
        for sequence in islice(self.pending_sequences, place, None):
            if sequence > through or len(ranges) == ranges_max:
                break
            if expected < sequence:
                ranges.append((expected, sequence - 1))
            expected = self.pending[sequence].last_sequence + 1
        if expected <= through and len(ranges) < ranges_max:
            ranges.append((expected, through))
        return tuple(ranges)

    def add_pending(self, packet: Packet, cost_bytes: int) -> None:
        self.pending[packet.sequence] = packet
        insort(self.pending_sequences, packet.sequence)
        self.pending_bytes += cost_bytes
        while (following := self.pending.get(self.received_through + 1)) is not None:
            self.received_through = following.last_sequence

    def take_first_pending(self, cost_bytes: int) -> None:
        del self.pending[self.pending_sequences.pop(0)]
        self.pending_bytes -= cost_bytes

    def held(self, ranges: Ranges) -> list[Packet]:
        """Returns the packets that we can retransmit to answer a request for these units, lowest first."""
        held: list[Packet] = []
        wanted = iter(ranges)
        first, last = next(wanted, (0, 0))
        for packet in (*self.buffer, *(self.pending[sequence] for sequence in self.pending_sequences)):
            while last and last < packet.sequence:
                first, last = next(wanted, (0, 0))
            if not last:
                break
            if packet.last_sequence >= first:
                held.append(packet)
        return held


class CausalDag:
    """One machine's DAG over the members of one view.

    Counts of bytes include what a packet costs besides its payloads. When the buffers are full, packets of other
    machines stay pending, and so unacknowledged, until some are stable. The buffers hold several times what all
    members may have in flight together, so they fill only with what is stable but not known here to be.

    While the view is ending, members may be *suspected*: of what they sent, only what some other member has in its
    DAG may still enter ours. The buffers then take whatever comes: members that are gone acknowledge nothing, and
    no member sends more.
    """

    def __init__(
        self,
        me: Machine,
        members: Iterable[Machine],
        config: TransportConfig,
        base: Mapping[Machine, int] | None = None,
    ) -> None:
        self.me = me
        base = base or {}
        self.streams = {machine: PacketStream(machine, base.get(machine, 0)) for machine in members}
        self.own = self.streams[me]
        self._others = [stream for machine, stream in self.streams.items() if machine != me]
        self._overhead_bytes = config.packet_overhead_bytes
        count = len(self.streams)
        largest = config.datagram_bytes_max + config.packet_overhead_bytes
        self._messages_max = config.buffer_windows_max * max(config.window_messages_max, count)
        self._bytes_max = config.buffer_windows_max * max(config.window_bytes_max, count * largest)
        self.buffered_messages = 0
        self.buffered_bytes = 0
        self.is_ending = False
        # Dictionaries serve as sets that keep their order: iteration must not depend on hash seeds.
        self._waiting: dict[Machine, None] = {}
        """The machines that have pending packets."""
        self._maybe_stable: dict[Machine, None] = {}
        """The machines of whose packets more may have become stable."""
        self._heard: dict[Machine, PacketStream] = {}
        """The streams that have been heard further."""
        self._incomplete: dict[Machine, None] = {}
        """The machines of whose units some that exist are not in the DAG."""
        self._suspects: dict[Machine, None] = {}

    def cost_bytes(self, packet: Packet) -> int:
        """Returns what a packet takes up in our buffers and in a kernel's."""
        return packet.payload_bytes + self._overhead_bytes

    def store(self, packet: Packet) -> list[Packet]:
        """Stores a new packet; returns the packets that thereby entered the DAG, in causal order."""
        stream = self.streams[packet.sender]
        self._mention(stream, packet.last_sequence)
        if packet.sender not in self._suspects:
            for machine, sequence in packet.acks:
                self._require(self.streams[machine], sequence)
        if (stream is self.own or not self._waiting) and self._may_enter(stream, packet):
            self._insert(stream, packet)
            return [packet]
        stream.add_pending(packet, self.cost_bytes(packet))
        self._waiting[packet.sender] = None
        return self.insert_pending()

    def insert_pending(self) -> list[Packet]:
        """Moves into the DAG, and returns, the pending packets that may now enter."""
        inserted: list[Packet] = []
        progress = bool(self._waiting)
        while progress:
            progress = False
            for machine in list(self._waiting):
                stream = self.streams[machine]
                while stream.pending_sequences:
                    packet = stream.pending[stream.pending_sequences[0]]
                    if not self._may_enter(stream, packet):
                        break
                    stream.take_first_pending(self.cost_bytes(packet))
                    self._insert(stream, packet)
                    inserted.append(packet)
                    progress = True
                if not stream.pending:
                    del self._waiting[machine]
        return inserted

    def acknowledge(self, machine: Machine, acks: Acks) -> None:
        """Notes that the machine has all this, whether or not its own packets that say so have reached us."""
        known = self.streams[machine].acks
        is_suspect = machine in self._suspects
        for acknowledged, sequence in acks:
            if sequence > known.get(acknowledged, 0):
                known[acknowledged] = sequence
                self._maybe_stable[acknowledged] = None
                if not is_suspect:
                    self._require(self.streams[acknowledged], sequence)

    def promise(self, machine: Machine, sequence: int, clock: int) -> None:
        """Notes that everything the machine sends after `sequence` will have a clock above `clock`."""
        stream = self.streams[machine]
        self._mention(stream, sequence)
        if sequence > stream.inserted_through:
            if clock > stream.promised_clock:
                stream.promised_sequence, stream.promised_clock = sequence, clock
        elif clock > stream.heard_clock:
            stream.heard_clock = clock
            self._heard[machine] = stream

    def take_stable(self) -> list[Packet]:
        """Removes from the buffers, and returns, the packets that every member is now known to have."""
        stable: list[Packet] = []
        for machine in self._maybe_stable:
            stream = self.streams[machine]
            through = stream.inserted_through
            for other in self._others:
                if other is not stream:
                    through = min(through, other.acks.get(machine, 0))
            stream.stable_through = through
            buffer = stream.buffer
            while buffer and buffer[0].last_sequence <= through:
                packet = buffer.popleft()
                stable.append(packet)
                self._count(stream, packet, -1)
        self._maybe_stable.clear()
        return stable

    def take_heard(self) -> list[PacketStream]:
        """Returns the streams that have been heard further since the last call."""
        heard = list(self._heard.values())
        self._heard.clear()
        return heard

    def has_gaps(self) -> bool:
        return bool(self._incomplete)

    def incomplete(self) -> list[PacketStream]:
        """Returns the streams of which something that exists is not in the DAG."""
        return [self.streams[machine] for machine in self._incomplete]

    def oldest_unstable(self) -> dict[Machine, int]:
        """Returns the first sequence of each stream's first buffered packet."""
        return {machine: stream.buffer[0].sequence for machine, stream in self.streams.items() if stream.buffer}

    def laggards(self, machines: Iterable[Machine]) -> list[Machine]:
        """Returns the members whose acknowledgements these machines' first buffered packets lack to be stable."""
        lagging: dict[Machine, None] = {}
        for machine in machines:
            stream = self.streams[machine]
            if stream.buffer:
                oldest = stream.buffer[0].last_sequence
                for other in self._others:
                    if other is not stream and other.acks.get(machine, 0) < oldest:
                        lagging[other.machine] = None
        return list(lagging)

    # The end of the view

    def inserted(self) -> Acks:
        """Returns what is in the DAG: of each machine, everything up to a sequence."""
        return tuple((machine, stream.inserted_through) for machine, stream in self.streams.items())

    def has(self, cover: Acks) -> bool:
        """Returns whether all this is in the DAG."""
        streams = self.streams
        return all(m in streams and streams[m].inserted_through >= sequence for m, sequence in cover)

    def suspect(self, machines: Iterable[Machine]) -> None:
        """Lets only those units of these machines enter, from now on, that other members have. What was required
        before must be required again: the machines that had it may be among the suspects now, or outside the view
        and suspected there."""
        self._suspects.update((machine, None) for machine in machines if machine in self.streams)
        if not self._suspects:
            return
        self.is_ending = True
        trusted = [stream for machine, stream in self.streams.items() if machine not in self._suspects]
        for machine in self._suspects:
            stream = self.streams[machine]
            required = stream.inserted_through
            for other in trusted:
                mentions = [other.acks.get(machine, 0)]
                mentions += [dict(packet.acks).get(machine, 0) for packet in other.pending.values()]
                required = max(required, *mentions)
            stream.required_through = stream.known_through = required
            if required > stream.inserted_through:
                self._incomplete[machine] = None
            else:
                self._incomplete.pop(machine, None)

    def require(self, cover: Acks) -> None:
        """Notes that a machine that is not suspected has all this in its DAG: it must enter ours, too."""
        for machine, sequence in cover:
            if machine in self.streams:
                self._require(self.streams[machine], sequence)

    def is_full(self) -> bool:
        """Returns whether the buffers take no more packets of other machines."""
        return self.buffered_messages >= self._messages_max or self.buffered_bytes >= self._bytes_max

    def _require(self, stream: PacketStream, sequence: int) -> None:
        if stream.required_through is not None and sequence > stream.required_through:
            stream.required_through = sequence
            if sequence > stream.inserted_through:
                stream.known_through = max(stream.known_through, sequence)
                self._incomplete[stream.machine] = None
        else:
            self._mention(stream, sequence)

    def _mention(self, stream: PacketStream, sequence: int) -> None:
        """Notes that the unit exists. Units of a suspect that are not required count as never sent."""
        if sequence > stream.known_through and stream.required_through is None:
            stream.known_through = sequence
            if sequence > stream.inserted_through:
                self._incomplete[stream.machine] = None

    def _may_enter(self, stream: PacketStream, packet: Packet) -> bool:
        if packet.sequence != stream.inserted_through + 1:
            return False
        if stream.required_through is not None and packet.last_sequence > stream.required_through:
            return False
        if self.is_full() and stream is not self.own and not self.is_ending:
            return False
        streams = self.streams
        for machine, sequence in packet.acks:
            if streams[machine].inserted_through < sequence:
                return False
        return True

    def _insert(self, stream: PacketStream, packet: Packet) -> None:
        stream.inserted_through = packet.last_sequence
        stream.received_through = max(stream.received_through, packet.last_sequence)
        heard_clock = packet.last_clock
        if stream.promised_sequence <= packet.last_sequence:
            heard_clock = max(heard_clock, stream.promised_clock)
        stream.heard_clock = max(heard_clock, stream.heard_clock)
        self._heard[stream.machine] = stream
        if stream.known_through <= packet.last_sequence:
            stream.known_through = packet.last_sequence
            self._incomplete.pop(stream.machine, None)
        stream.buffer.append(packet)
        self._count(stream, packet, 1)
        self._maybe_stable[stream.machine] = None
        if packet.acks:
            self.acknowledge(stream.machine, packet.acks)

    def _count(self, stream: PacketStream, packet: Packet, sign: int) -> None:
        messages = sign * len(packet.payloads)
        cost = sign * self.cost_bytes(packet)
        stream.buffered_messages += messages
        stream.buffered_bytes += cost
        self.buffered_messages += messages
        self.buffered_bytes += cost
