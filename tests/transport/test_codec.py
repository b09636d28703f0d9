"""The codec: what we encode comes back, sizes are bounds, and whatever else arrives is a `DecodeError`."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transport.strategies import (
    acks,
    almost_frames,
    datagrams,
    frames,
    machines,
    payloads,
    structures,
    thorough,
    view_ids,
)
from transport import codec
from transport.codec import Codec, DecodeError
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
    Retransmission,
    Service,
    Status,
    ViewId,
)

OURS = Codec("ours")
HEADER = bytes((codec.VERSION, 0)) + codec.short_digest(b"ours") + codec.short_digest(b"") + bytes(4)
SENDER = Machine("b", 3)
VIEW = ViewId(7, "a", 2)
EXAMPLE = Datagram(
    SENDER,
    (
        Packet(Machine("a", 1), VIEW, 3, 9, Service.AGREED, ((SENDER, 4),), (b"one", b"two")),
        Packet(Machine("a", 1), VIEW, 5, 12, Service.SAFE, (), (b"part",), Fragment(1, True)),
        Retransmission(Packet(Machine("a", 1), VIEW, 1, 2, Service.CAUSAL, (), (b"again",))),
        Status(VIEW, 12, 5, 9_000, ((Machine("a", 1), 4),), (Machine("c", 2),), (0, 4, 7)),
        Nack(Machine("c", 2), ((3, 4), (7, 9)), True),
        Envelope(b"of membership"),
    ),
)


def decode(body: object) -> Datagram:
    """Decodes this structure behind a valid header."""
    return OURS.decode(HEADER + msgpack.packb(body))


# Round trips


@thorough
@given(frames)
def test_every_frame_kind_comes_back_as_it_was_sent(frame: Frame) -> None:
    datagram = Datagram(SENDER, (frame,))
    assert OURS.decode(OURS.encode(datagram)) == datagram


@thorough
@given(datagrams)
def test_a_datagram_of_many_frames_comes_back_in_order(datagram: Datagram) -> None:
    data = OURS.encode(datagram)
    assert OURS.decode(data) == datagram
    assert OURS.sender(data) == datagram.sender


def test_a_decoded_packet_knows_where_its_run_ends() -> None:
    run, fragment, *_ = OURS.decode(OURS.encode(EXAMPLE)).frames
    assert isinstance(run, Packet)
    assert (run.last_sequence, run.last_clock, run.payload_bytes) == (4, 10, 6)
    assert isinstance(fragment, Packet)
    assert fragment.fragment == Fragment(1, True)
    assert type(run.service) is Service


# Sizes


@thorough
@given(machines, frames)
def test_frame_bytes_is_an_upper_bound(sender: Machine, frame: Frame) -> None:
    alone = len(OURS.encode(Datagram(sender, ())))
    assert len(OURS.encode(Datagram(sender, (frame,)))) - alone <= codec.frame_bytes(frame)


@thorough
@given(datagrams)
def test_the_parts_of_a_datagram_bound_the_whole(datagram: Datagram) -> None:
    bound = codec.datagram_overhead_bytes(datagram.sender) + sum(map(codec.frame_bytes, datagram.frames))
    assert len(OURS.encode(datagram)) <= bound


@thorough
@given(machines, view_ids, acks, st.lists(payloads, min_size=1, max_size=20))
def test_packet_overhead_and_units_are_what_a_packet_takes(
    sender: Machine, view: ViewId, acknowledged: Acks, units: list[bytes]
) -> None:
    packet = Packet(sender, view, 1, 1, Service.BASIC, acknowledged, tuple(units))
    reckoned = codec.packet_overhead_bytes(sender, view, acknowledged) + sum(map(codec.unit_bytes, units))
    assert reckoned == codec.frame_bytes(packet)


def test_the_bounds_hold_where_everything_is_as_wide_as_it_gets() -> None:
    widest = Machine("n" * NAME_BYTES_MAX, SEQUENCE_MAX)
    view = ViewId(SEQUENCE_MAX, *widest)
    everyone = ((widest, SEQUENCE_MAX),) * 64
    units = (bytes(255), bytes(256), bytes(20_000)) * 2
    ranges = tuple((SEQUENCE_MAX - 2 * number - 1, SEQUENCE_MAX - 2 * number) for number in reversed(range(64)))
    run = Packet(widest, view, SEQUENCE_MAX - 5, SEQUENCE_MAX - 5, Service.SAFE, everyone, units)
    fragment = Fragment(SEQUENCE_MAX - 1, True)
    last = Packet(widest, view, SEQUENCE_MAX, 1, Service.SAFE, everyone, (bytes(65_536),), fragment)
    status = Status(view, SEQUENCE_MAX, SEQUENCE_MAX, SEQUENCE_MAX, everyone, (widest,) * 64, (SEQUENCE_MAX,) * 64)
    envelope = Envelope(bytes(65_536))
    for frame in (run, last, Retransmission(last), status, Nack(widest, ranges, True), envelope):
        bound = codec.datagram_overhead_bytes(widest) + codec.frame_bytes(frame)
        assert len(OURS.encode(Datagram(widest, (frame,)))) <= bound


# Headers


def test_another_version_is_not_understood() -> None:
    data = OURS.encode(EXAMPLE)
    with pytest.raises(DecodeError, match="version 1, we speak 6") as raised:
        OURS.decode(b"\x01" + data[1:])
    assert raised.value.reason is Reason.UNDECODABLE


def test_unknown_flags_are_not_understood() -> None:
    data = OURS.encode(EXAMPLE)
    with pytest.raises(DecodeError, match="unknown flags 0x80") as raised:
        OURS.decode(data[:1] + b"\x80" + data[2:])
    assert raised.value.reason is Reason.UNDECODABLE


def test_another_cluster_is_foreign_not_malformed() -> None:
    data = Codec("theirs").encode(EXAMPLE)
    with pytest.raises(DecodeError) as raised:
        OURS.decode(data)
    assert raised.value.reason is Reason.FOREIGN_CLUSTER
    with pytest.raises(DecodeError) as raised:
        OURS.sender(data)
    assert raised.value.reason is Reason.FOREIGN_CLUSTER


def test_nodes_of_one_cluster_with_different_rosters_do_not_hear_each_other() -> None:
    data = Codec("ours", b"a b c").encode(EXAMPLE)
    assert Codec("ours", b"a b c").decode(data) == EXAMPLE
    with pytest.raises(DecodeError, match="give all nodes of the cluster the same roster") as raised:
        Codec("ours", b"a b").decode(data)
    assert raised.value.reason is Reason.OTHER_ROSTER


def test_nodes_bound_to_different_generations_of_a_cluster_ignore_each_other() -> None:
    old, new, fresh = Codec("ours"), Codec("ours"), Codec("ours")
    old.bind(b"before")
    new.bind(b"after")
    with pytest.raises(DecodeError, match="another cluster of this name") as refused:
        new.decode(old.encode(EXAMPLE))
    assert refused.value.reason is Reason.OTHER_CLUSTER
    assert old.decode(fresh.encode(EXAMPLE)) == fresh.decode(old.encode(EXAMPLE)) == EXAMPLE
    fresh.bind(b"after")
    assert new.decode(fresh.encode(EXAMPLE)) == EXAMPLE


def test_a_datagram_truncated_anywhere_is_refused() -> None:
    data = OURS.encode(EXAMPLE)
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            OURS.decode(data[:length])


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(DecodeError):
        OURS.decode(OURS.encode(EXAMPLE) + b"\x00")


def test_what_no_udp_datagram_can_hold_is_oversized() -> None:
    payload = bytes(codec.DATAGRAM_BYTES_MAX)
    data = OURS.encode(Datagram(SENDER, (Packet(SENDER, VIEW, 1, 1, Service.BASIC, (), (payload,)),)))
    with pytest.raises(DecodeError) as raised:
        OURS.decode(data)
    assert raised.value.reason is Reason.OVERSIZED


def test_the_largest_udp_datagram_is_not_oversized() -> None:
    def of(size: int) -> Datagram:
        return Datagram(SENDER, (Packet(SENDER, VIEW, 1, 1, Service.BASIC, (), (bytes(size),)),))

    around = len(OURS.encode(of(60_000))) - 60_000
    largest = of(codec.DATAGRAM_BYTES_MAX - around)
    data = OURS.encode(largest)
    assert len(data) == codec.DATAGRAM_BYTES_MAX
    assert OURS.decode(data) == largest


# Every field of every kind, with everything that does not belong there

Values: TypeAlias = tuple[object, ...]

NOT_NATURAL: Values = (None, True, 1.0, -1, 2**63, "1", b"1", [], {})
NOT_POSITIVE: Values = (*NOT_NATURAL, 0)
NOT_A_NAME: Values = (None, 1, True, b"a", "", "n" * 65, "é" * 33, [], {})
NOT_AN_ARRAY: Values = (None, 1, True, "a", b"a", {})
NOT_A_BOOLEAN: Values = (None, 0, 1, 1.0, "true", [], {})
NOT_ACKS: Values = (
    *NOT_AN_ARRAY,
    ["a"],
    ["a", 1],
    ["a", 1, 2, "b"],
    ["", 1, 2],
    [b"a", 1, 2],
    ["a", -1, 2],
    ["a", 1, None],
)
NOT_PAYLOADS: Values = (*NOT_AN_ARRAY, [], ["text"], [None], [1], [[b"x"]], [b"x", "text"])
NOT_MACHINES: Values = (*NOT_AN_ARRAY, ["a"], ["a", 1, "b"], [1, "a"], ["a", 2**63], ["", 1])
NOT_RANGES: Values = (*NOT_AN_ARRAY, [1], [1, 2, 3], [0, 1], [3, 2], [1, 4, 4, 5], [5, 6, 1, 2], [1, "2"], [-1, 2])

PACKET: list[object] = [0, "b", 1, 7, "a", 1, 3, 9, 2, ["a", 1, 4], [b"x"]]
PACKET_FIELDS: tuple[Values, ...] = (
    (None, "0", 4, 5, [], {}), NOT_A_NAME, NOT_NATURAL, NOT_NATURAL, NOT_A_NAME, NOT_NATURAL, NOT_POSITIVE,
    NOT_POSITIVE, (*NOT_NATURAL, 4), NOT_ACKS, NOT_PAYLOADS,
)  # fmt: skip
FRAGMENT: list[object] = [*PACKET, 1, False]
FRAGMENT_FIELDS: tuple[Values, ...] = (
    *PACKET_FIELDS[:-1],
    (*NOT_PAYLOADS, [b"x", b"y"], [b""]),
    (*NOT_NATURAL, 3),
    NOT_A_BOOLEAN,
)
STATUS: list[object] = [1, 7, "a", 1, 9, 3, 9_000, ["a", 1, 4], ["c", 1], [2, 4]]
STATUS_FIELDS: tuple[Values, ...] = (
    (None, "1", 4, 5, []), NOT_NATURAL, NOT_A_NAME, NOT_NATURAL, NOT_NATURAL, NOT_NATURAL, NOT_NATURAL, NOT_ACKS,
    NOT_MACHINES, (None, 1, "x", {}, [-1], ["1"], [True], [1.0], [[1]]),
)  # fmt: skip
NACK: list[object] = [2, "a", 1, True, [3, 4, 7, 9]]
NACK_FIELDS: tuple[Values, ...] = ((None, "2", 4, 5, []), NOT_A_NAME, NOT_NATURAL, NOT_A_BOOLEAN, NOT_RANGES)
ENVELOPE: list[object] = [4, b"of membership"]
ENVELOPE_FIELDS: tuple[Values, ...] = (
    (None, "4", 0, 1, 2, 3, 5, []),
    (None, 1, True, 1.0, "text", [], [b"x"], {}),
)

KINDS = {
    "packet": (PACKET, PACKET_FIELDS),
    "fragment": (FRAGMENT, FRAGMENT_FIELDS),
    "retransmission": ([3, *PACKET[1:]], PACKET_FIELDS),
    "retransmitted fragment": ([3, *FRAGMENT[1:]], FRAGMENT_FIELDS),
    "status": (STATUS, STATUS_FIELDS),
    "nack": (NACK, NACK_FIELDS),
    "envelope": (ENVELOPE, ENVELOPE_FIELDS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_value_in_any_field_is_refused(kind: str) -> None:
    frame, wrong_values = KINDS[kind]
    assert len(frame) == len(wrong_values)
    assert len(decode(["b", 1, frame]).frames) == 1
    for index, values in enumerate(wrong_values):
        for value in values:
            broken = [*frame[:index], value, *frame[index + 1 :]]
            with pytest.raises(DecodeError):
                pytest.fail(f"field {index} may be {value!r}: {decode(['b', 1, broken])}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_too_few_or_too_many_is_refused(kind: str) -> None:
    frame, _ = KINDS[kind]
    for broken in ([], frame[:-1], [*frame, 0], [*frame, 0, True, 0]):
        with pytest.raises(DecodeError):
            pytest.fail(str(decode(["b", 1, broken])))


@pytest.mark.parametrize("kind", [0.0, False, 1.0, True, 2.0, 3.0, 4.0])
def test_the_kind_of_a_frame_is_an_integer_and_nothing_that_equals_one(kind: float) -> None:
    frame = (PACKET, STATUS, NACK, PACKET, ENVELOPE)[int(kind)]
    with pytest.raises(DecodeError):
        pytest.fail(str(decode(["b", 1, [kind, *frame[1:]]])))


@pytest.mark.parametrize("body", [None, 1, "b", b"b", {}, [], ["b"], [1, "b"], [b"b", 1], ["b", -1], ["", 1]])
def test_a_body_that_does_not_begin_with_a_machine_is_refused(body: object) -> None:
    with pytest.raises(DecodeError):
        decode(body)
    with pytest.raises(DecodeError):
        OURS.sender(HEADER + msgpack.packb(body))


def test_a_run_beyond_the_largest_sequence_or_clock_is_refused() -> None:
    for sequence, clock in ((SEQUENCE_MAX, 1), (1, SEQUENCE_MAX)):
        one, two = ([0, "b", 1, 7, "a", 1, sequence, clock, 0, [], [b"x"] * units] for units in (1, 2))
        assert len(decode(["b", 1, one]).frames) == 1
        with pytest.raises(DecodeError, match="beyond the largest"):
            decode(["b", 1, two])


def test_an_array_longer_than_any_of_ours_is_refused() -> None:
    longest = [0, "b", 1, 7, "a", 1, 1, 1, 0, [], [b""] * codec.DECODE_ARRAY_MAX]
    assert len(decode(["b", 1, longest]).frames) == 1
    with pytest.raises(DecodeError, match="not msgpack"):
        decode(["b", 1, [*longest[:-1], [b""] * (codec.DECODE_ARRAY_MAX + 1)]])


# Anything else


@thorough
@given(st.binary(max_size=2_000), st.booleans())
def test_arbitrary_bytes_decode_or_raise_decode_error(noise: bytes, has_header: bool) -> None:
    data = HEADER + noise if has_header else noise
    with suppress(DecodeError):
        OURS.decode(data)
    with suppress(DecodeError):
        OURS.sender(data)


@thorough
@given(structures)
def test_arbitrary_structures_decode_or_raise_decode_error(body: object) -> None:
    with suppress(DecodeError):
        decode(body)


@thorough
@given(st.lists(almost_frames, max_size=2))
def test_structures_that_resemble_frames_decode_or_raise_decode_error(almost: list[list[object]]) -> None:
    with suppress(DecodeError):
        datagram = decode(["b", 1, *almost])
        assert OURS.decode(OURS.encode(datagram)) == datagram
