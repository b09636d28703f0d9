"""Bytes on the network: versioned, cluster-scoped framing over msgpack.

    version  1 byte    datagrams of another version are not decoded; they need not be an attack
    flags    1 byte    0; reserved to say that an authentication tag follows the cluster id
    cluster  4 bytes   digest of the cluster's name: two clusters on one LAN ignore each other
    roster   4 bytes   digest of the roster: nodes with different rosters must not agree on anything
    origin   4 bytes   digest of the generation of the cluster that the sender is bound to, or 0: nodes bound to
                       different generations ignore each other, because one of them was left over when the cluster
                       was bootstrapped anew (decision 20)
    body     msgpack   [sender name, sender incarnation, frame, frame, ...]

A frame is an array that begins with its kind. Whatever arrives, decoding either returns a datagram whose every
part has been checked, or raises `DecodeError`, and allocates no more than `DECODE_BYTES_MAX`: an array that
announces more elements than any datagram of ours has is refused before it is allocated (a few bytes can
announce a thousand large arrays within each other; they are freed again at once, but must not be huge).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain

import msgpack

from transport.effects import Reason
from transport.messages import (
    NAME_BYTES_MAX,
    SEQUENCE_MAX,
    Acks,
    Datagram,
    Envelope,
    Fragment,
    Frame,
    Machine,
    Nack,
    Packet,
    Ranges,
    Retransmission,
    Service,
    Status,
    ViewId,
)

VERSION = 6
HEADER_BYTES = 14
DATAGRAM_BYTES_MAX = 65_507
"""The largest UDP payload: nothing larger can arrive."""

DECODE_ARRAY_MAX = 1_024
"""The longest array in a datagram, whatever it holds. It is above `packet_units_max`, and above what the flat
acknowledgements of 64 members need. An array takes a little more than 8 bytes per element, and the decoder nests
at most 1,024 arrays: that, doubled for what else a datagram can make it allocate, is `DECODE_BYTES_MAX`."""

DECODE_BYTES_MAX = 2 * DECODE_ARRAY_MAX * 8 * 1_024

_PACKET, _STATUS, _NACK, _RETRANSMISSION, _ENVELOPE = 0, 1, 2, 3, 4
_SERVICES = tuple(Service)
_SHORT_DIGEST_BYTES = 4
_UNBOUND = bytes(_SHORT_DIGEST_BYTES)
_INTEGER_BYTES = 9
_BINARY_HEADER_BYTES = 5
_ARRAY_HEADER_BYTES = 3


class DecodeError(Exception):
    """The datagram is not one of ours: malformed, truncated, oversized, foreign. `reason` says which."""

    def __init__(self, message: str, reason: Reason = Reason.UNDECODABLE) -> None:
        super().__init__(message)
        self.reason = reason


def short_digest(what: bytes) -> bytes:
    return hashlib.blake2b(what, digest_size=_SHORT_DIGEST_BYTES).digest()


class Codec:
    """Encodes and decodes the datagrams of one cluster, with one roster."""

    def __init__(self, cluster: str, roster: bytes = b"") -> None:
        self._cluster_header = bytes((VERSION, 0)) + short_digest(cluster.encode())
        self._roster_header = self._cluster_header + short_digest(roster)
        self._header = self._roster_header + _UNBOUND

    def bind(self, generation: bytes) -> None:
        """From now on this node belongs to this generation of the cluster; to none if it is empty."""
        self._header = self._roster_header + (short_digest(generation) if generation else _UNBOUND)

    def encode(self, datagram: Datagram) -> bytes:
        body = [*datagram.sender, *map(_frame_to_list, datagram.frames)]
        packed: bytes = msgpack.packb(body)
        return self._header + packed

    def decode(self, data: bytes) -> Datagram:
        """Returns the datagram, every part of it checked; raises `DecodeError` if it is not one of ours."""
        body = self._unpack(data)
        try:
            sender = _machine(body[0], body[1])
            return Datagram(sender, tuple([_frame(item) for item in body[2:]]))
        except DecodeError:
            raise
        except (ValueError, TypeError, IndexError) as error:
            raise DecodeError(f"malformed frame: {error}") from None

    def sender(self, data: bytes) -> Machine:
        """Returns the machine that transmitted a datagram, for a caller that needs nothing else (`chaos`)."""
        body = self._unpack(data)
        return _machine(body[0], body[1])

    def _unpack(self, data: bytes) -> list[object]:
        if not data.startswith(self._header):
            self._check_header(data)
        if len(data) > DATAGRAM_BYTES_MAX:
            raise DecodeError(f"{len(data)} bytes do not fit a datagram", Reason.OVERSIZED)
        try:
            body = msgpack.unpackb(
                memoryview(data)[HEADER_BYTES:],
                strict_map_key=True,
                max_array_len=DECODE_ARRAY_MAX,
                max_map_len=0,
                max_ext_len=0,
            )
        except Exception as error:  # msgpack raises ValueError, its own classes, RecursionError, MemoryError …
            raise DecodeError(f"not msgpack: {type(error).__name__}") from None
        if type(body) is not list or len(body) < 2:
            raise DecodeError("the body is not an array of a sender and frames")
        return body

    def _check_header(self, data: bytes) -> None:
        """Raises `DecodeError` if this is not a header for us, with the reason."""
        if len(data) < HEADER_BYTES:
            raise DecodeError(f"{len(data)} bytes are too few for a header")
        if data[0] != VERSION:
            raise DecodeError(f"version {data[0]}, we speak {VERSION}")
        if data[1] != 0:
            raise DecodeError(f"unknown flags {data[1]:#04x}")
        if not data.startswith(self._cluster_header):
            raise DecodeError("another cluster's datagram", Reason.FOREIGN_CLUSTER)
        if not data.startswith(self._roster_header):
            raise DecodeError(
                "the sender has another roster than we have; give all nodes of the cluster the same roster",
                Reason.OTHER_ROSTER,
            )
        ours, theirs = self._header[-_SHORT_DIGEST_BYTES:], data[HEADER_BYTES - _SHORT_DIGEST_BYTES : HEADER_BYTES]
        if _UNBOUND not in (ours, theirs):
            raise DecodeError(
                "the sender belongs to another cluster of this name, from before or after a bootstrap; stop the "
                "node that was left over, move its data directory away, and start it again without --bootstrap",
                Reason.OTHER_CLUSTER,
            )


# Sizes. Packing must know what fits before anything is encoded; these are upper bounds, not estimates.


def datagram_overhead_bytes(sender: Machine) -> int:
    return HEADER_BYTES + _ARRAY_HEADER_BYTES + _machine_bytes(sender)


def packet_overhead_bytes(sender: Machine, view: ViewId, acks: Acks) -> int:
    """Returns the size of everything in a packet but its payloads."""
    machines = _machine_bytes(sender) + _machine_bytes(Machine(view.name, view.incarnation))
    return 2 * _ARRAY_HEADER_BYTES + machines + 8 * _INTEGER_BYTES + _acks_bytes(acks)


def unit_bytes(payload: bytes) -> int:
    return _BINARY_HEADER_BYTES + len(payload)


def frame_bytes(frame: Frame) -> int:
    if isinstance(frame, Packet):
        units = sum(map(len, frame.payloads)) + _BINARY_HEADER_BYTES * len(frame.payloads)
        return packet_overhead_bytes(frame.sender, frame.view, frame.acks) + units
    if isinstance(frame, Retransmission):
        return frame_bytes(frame.packet)
    if isinstance(frame, Status):
        machines = sum(map(_machine_bytes, (*frame.solicit, Machine(frame.view.name, frame.view.incarnation))))
        integers = (5 + len(frame.marks)) * _INTEGER_BYTES
        return 4 * _ARRAY_HEADER_BYTES + integers + _acks_bytes(frame.acks) + machines
    if isinstance(frame, Envelope):
        return _ARRAY_HEADER_BYTES + _INTEGER_BYTES + _BINARY_HEADER_BYTES + len(frame.body)
    ranges = 2 * _INTEGER_BYTES * len(frame.ranges)
    return 2 * _ARRAY_HEADER_BYTES + 2 * _INTEGER_BYTES + _machine_bytes(frame.machine) + ranges


def nack_ranges_fitting(datagram_bytes: int) -> int:
    """Returns how many ranges one request may name and still fit a datagram of this size, whatever its names."""
    longest = Machine("x" * NAME_BYTES_MAX, 0)
    overhead = datagram_overhead_bytes(longest) + frame_bytes(Nack(longest, (), False))
    return max(1, (datagram_bytes - overhead) // (2 * _INTEGER_BYTES))


def _machine_bytes(machine: Machine) -> int:
    name = machine.name
    return 2 + (len(name) if name.isascii() else len(name.encode())) + _INTEGER_BYTES


def _acks_bytes(acks: Acks) -> int:
    return _ARRAY_HEADER_BYTES + sum(_machine_bytes(machine) + _INTEGER_BYTES for machine, _ in acks)


# From frames to flat lists.


def _frame_to_list(frame: Frame) -> list[object]:
    if isinstance(frame, Packet):
        return _packet_to_list(_PACKET, frame)
    if isinstance(frame, Retransmission):
        return _packet_to_list(_RETRANSMISSION, frame.packet)
    if isinstance(frame, Status):
        acks = [part for machine, sequence in frame.acks for part in (*machine, sequence)]
        solicit = [part for machine in frame.solicit for part in machine]
        marks = frame.marks
        return [_STATUS, *frame.view, frame.clock, frame.sequence, frame.window_bytes, acks, solicit, marks]
    if isinstance(frame, Envelope):
        return [_ENVELOPE, frame.body]
    return [_NACK, *frame.machine, frame.is_repeated, list(chain.from_iterable(frame.ranges))]


def _packet_to_list(kind: int, packet: Packet) -> list[object]:
    return [
        kind,
        *packet.sender,
        *packet.view,
        packet.sequence,
        packet.clock,
        int(packet.service),
        [part for machine, sequence in packet.acks for part in (*machine, sequence)],
        packet.payloads,
        *(packet.fragment or ()),
    ]


# From lists to frames. What is wrong raises DecodeError, or another error that `Codec.decode` turns into one.


def _frame(item: object) -> Frame:
    fields = _list(item)
    kind = _natural(fields[0])
    if kind == _PACKET:
        return _packet(fields)
    if kind == _RETRANSMISSION:
        return Retransmission(_packet(fields))
    if kind == _STATUS:
        _, at, by, of, clock, sequence, window_bytes, acks, solicit, marks = fields
        pairs = _list(solicit)
        machines = tuple(_machine(name, incarnation) for name, incarnation in _groups(pairs, 2))
        numbers = (_natural(clock), _natural(sequence), _natural(window_bytes))
        return Status(_view(at, by, of), *numbers, _acks(acks), machines, tuple(map(_natural, _list(marks))))
    if kind == _NACK:
        _, name, incarnation, is_repeated, flat = fields
        ranges: Ranges = tuple((_natural(first), _natural(last)) for first, last in _groups(_list(flat), 2))
        return Nack(_machine(name, incarnation), ranges, _boolean(is_repeated))
    if kind == _ENVELOPE:
        _, body = fields
        if type(body) is not bytes:
            raise TypeError("an envelope holds bytes")
        return Envelope(body)
    raise ValueError(f"unknown frame kind {kind!r}")


def _packet(fields: list[object]) -> Packet:
    _, name, incarnation, at, by, of, sequence, clock, service, acks, payloads, *rest = fields
    units = _list(payloads)
    for unit in units:
        if type(unit) is not bytes:
            raise TypeError("a payload is bytes")
    fragment = None
    if rest:
        part, is_last = rest
        fragment = Fragment(_natural(part), _boolean(is_last))
    packet = Packet(
        _machine(name, incarnation),
        _view(at, by, of),
        _natural(sequence),
        _natural(clock),
        _SERVICES[_natural(service)],
        _acks(acks),
        tuple(units),  # type: ignore[arg-type]  # checked above, one by one
        fragment,
    )
    if packet.last_sequence > SEQUENCE_MAX or packet.last_clock > SEQUENCE_MAX:
        raise ValueError("a run beyond the largest sequence or clock")
    return packet


def _acks(item: object) -> Acks:
    return tuple(
        [
            (_machine(name, incarnation), _natural(sequence))
            for name, incarnation, sequence in _groups(_list(item), 3)
        ]
    )


def _machine(name: object, incarnation: object) -> Machine:
    if type(name) is not str or not 0 < len(name) <= NAME_BYTES_MAX or len(name.encode()) > NAME_BYTES_MAX:
        raise DecodeError("a machine's name is text of 1 to 64 bytes")
    return Machine(name, _natural(incarnation))


def _view(clock: object, name: object, incarnation: object) -> ViewId:
    return ViewId(_natural(clock), *_machine(name, incarnation))


def _natural(item: object) -> int:
    if type(item) is not int or not 0 <= item <= SEQUENCE_MAX:
        raise DecodeError("expected a natural number")
    return item


def _boolean(item: object) -> bool:
    if type(item) is not bool:
        raise DecodeError("expected true or false")
    return item


def _list(item: object) -> list[object]:
    if type(item) is not list:
        raise DecodeError("expected an array")
    return item


def _groups(items: list[object], size: int) -> Iterator[tuple[object, ...]]:
    if len(items) % size:
        raise DecodeError(f"expected groups of {size}")
    return zip(*[iter(items)] * size, strict=True)
