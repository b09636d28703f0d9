"""Packing: many small messages in one packet, one large message in many, and no datagram too large."""

from __future__ import annotations

from random import Random

import pytest

from tests.transport.harness import LATER, VIEW, A, machine, packet, status
from transport import codec
from transport.codec import Codec
from transport.config import TransportConfig
from transport.messages import NAME_BYTES_MAX, Acks, Datagram, Frame, Machine, Nack, Packet, Service, ViewId
from transport.packing import Run, SendQueue, into_datagrams

EVERYONE: Acks = tuple((Machine(f"member-{number}", 2**40), 2**40) for number in range(8))
MANY = 1_000


def queue_of(*payloads: bytes, config: TransportConfig | None = None) -> SendQueue:
    queue = SendQueue(A, VIEW, config or TransportConfig())
    for payload in payloads:
        queue.append(Service.AGREED, payload)
    return queue


def encoded_bytes(run: Run, acks: Acks = ()) -> int:
    """Returns the size of a datagram with this run in it, at the largest numbers there are."""
    largest = 2**62
    view = ViewId(largest, "a", largest)
    sent = Packet(A, view, largest, largest, run.service, acks, run.payloads, run.fragment)
    return len(Codec("packing").encode(Datagram(A, (sent,))))


def test_many_small_messages_share_a_packet() -> None:
    queue = queue_of(*[b"small"] * 100)
    assert queue.take_run((), MANY) == Run(Service.AGREED, (b"small",) * 100, None)
    assert len(queue) == queue.bytes == 0


def test_a_packet_takes_no_more_than_fits_a_datagram_and_leaves_little_room() -> None:
    queue = queue_of(*[bytes(90)] * 50)
    run = queue.take_run((), MANY)
    assert 1_100 < encoded_bytes(run) <= 1_400
    assert len(run.payloads) + len(queue) == 50


def test_a_packet_is_of_one_service() -> None:
    queue = SendQueue(A, VIEW, TransportConfig())
    for service in (Service.AGREED, Service.AGREED, Service.BASIC, Service.AGREED):
        queue.append(service, b"x")
    runs = [queue.take_run((), MANY) for _ in range(3)]
    assert [(run.service, len(run.payloads)) for run in runs] == [
        (Service.AGREED, 2),
        (Service.BASIC, 1),
        (Service.AGREED, 1),
    ]


def test_a_packet_takes_no_more_units_than_it_may() -> None:
    queue = queue_of(*[b""] * 30, config=TransportConfig(packet_units_max=20))
    assert len(queue.take_run((), 7).payloads) == 7
    assert len(queue.take_run((), MANY).payloads) == 20
    assert len(queue.take_run((), MANY).payloads) == 3


def test_empty_messages_are_messages() -> None:
    assert queue_of(b"", b"").take_run((), MANY).payloads == (b"", b"")


def test_a_message_too_large_for_a_datagram_goes_in_fragments() -> None:
    whole = Random(1).randbytes(5_000)
    queue = queue_of(whole, b"next")
    runs = [queue.take_run((), MANY) for _ in range(4)]
    parts = [run.fragment for run in runs if run.fragment]
    assert [fragment.part for fragment in parts] == [0, 1, 2, 3]
    assert [fragment.is_last for fragment in parts] == [False, False, False, True]
    assert b"".join(run.payloads[0] for run in runs) == whole
    assert max(map(encoded_bytes, runs)) <= 1_400
    assert queue.take_run((), MANY) == Run(Service.AGREED, (b"next",), None)


def test_a_small_message_before_a_large_one_is_not_held_back_for_it() -> None:
    queue = queue_of(b"small", bytes(2_000))
    assert queue.take_run((), MANY).payloads == (b"small",)
    assert queue.take_run((), MANY).fragment is not None


def test_fragments_take_what_the_acknowledgements_leave() -> None:
    queue = queue_of(bytes(5_000))
    lean, laden = queue.take_run((), MANY), queue.take_run(EVERYONE, MANY)
    assert len(laden.payloads[0]) < len(lean.payloads[0])
    assert encoded_bytes(laden, EVERYONE) <= 1_400


def test_a_message_that_fits_only_without_acknowledgements_goes_whole_or_in_fragments() -> None:
    almost = bytes(1_250)
    assert queue_of(almost).take_run((), MANY).fragment is None
    assert queue_of(almost).take_run(EVERYONE, MANY).fragment is not None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_sent_comes_out_whole_in_order_and_never_too_large(seed: int) -> None:
    random = Random(seed)
    config = TransportConfig(datagram_bytes_max=random.choice((700, 1_400, 9_000)))
    sent = [random.randbytes(random.choice((0, 5, 200, 1_200, 1_300, 20_000))) for _ in range(60)]
    queue = queue_of(*sent, config=config)
    came: list[bytes] = []
    partial = b""
    while queue:
        acks = EVERYONE[: random.randint(0, len(EVERYONE))]
        run = queue.take_run(acks, random.randint(1, 40))
        assert encoded_bytes(run, acks) <= config.datagram_bytes_max
        if run.fragment is None:
            came += run.payloads
        else:
            partial += run.payloads[0]
            if run.fragment.is_last:
                came.append(partial)
                partial = b""
    assert came == sent
    assert queue.bytes == 0


# The queue's bounds


def test_the_queue_is_full_by_messages_and_has_room_at_half() -> None:
    queue = queue_of(*[b""] * 9, config=TransportConfig(queue_messages_max=10, packet_units_max=1))
    assert not queue.is_full()
    queue.append(Service.AGREED, b"")
    assert queue.is_full()
    while len(queue) > 6:
        queue.take_run((), MANY)
        assert not queue.has_room()
    queue.take_run((), MANY)
    assert queue.has_room()


def test_the_queue_is_full_by_bytes_and_has_room_at_half() -> None:
    config = TransportConfig(queue_bytes_max=10_000, message_bytes_max=5_000)
    queue = queue_of(*[bytes(1_000)] * 10, config=config)
    assert queue.is_full()
    for _ in range(4):
        queue.take_run((), 1)
    assert (queue.is_full(), queue.has_room()) == (False, False)
    queue.take_run((), 1)
    assert queue.has_room()


def test_a_message_being_sent_in_fragments_takes_up_the_queue_until_its_last() -> None:
    queue = queue_of(bytes(3_000))
    queue.take_run((), MANY)
    queue.take_run((), MANY)
    assert (len(queue), queue.bytes) == (1, 3_000)
    queue.take_run((), MANY)
    assert (len(queue), queue.bytes) == (0, 0)


# From one view to the next


def test_in_the_next_view_a_message_half_sent_begins_anew() -> None:
    whole = Random(1).randbytes(5_000)
    queue = queue_of(whole, b"next")
    for part in (0, 1):
        assert queue.take_run((), MANY).fragment == (part, False)
    assert queue.enter_view(LATER) == []
    assert (len(queue), queue.bytes) == (2, 5_004)
    runs = [queue.take_run((), MANY) for _ in range(4)]
    assert [run.fragment for run in runs] == [(0, False), (1, False), (2, False), (3, True)]
    assert b"".join(run.payloads[0] for run in runs) == whole
    assert queue.take_run((), MANY) == Run(Service.AGREED, (b"next",), None)
    assert (len(queue), queue.bytes) == (0, 0)


def test_what_was_bound_to_the_old_view_is_returned_and_the_rest_keeps_its_order() -> None:
    queue = queue_of(b"first")
    queue.append(Service.SAFE, b"bound", is_bound=True)
    queue.append(Service.AGREED, b"second")
    queue.append(Service.CAUSAL, b"bound too", is_bound=True)
    assert queue.enter_view(LATER) == [(Service.SAFE, b"bound"), (Service.CAUSAL, b"bound too")]
    assert (len(queue), queue.bytes) == (2, 11)
    assert queue.take_run((), MANY) == Run(Service.AGREED, (b"first", b"second"), None)
    assert (len(queue), queue.bytes) == (0, 0)


def test_a_bound_message_half_sent_is_returned_whole() -> None:
    queue = SendQueue(A, VIEW, TransportConfig())
    queue.append(Service.AGREED, bytes(3_000), is_bound=True)
    queue.append(Service.AGREED, b"next")
    assert queue.take_run((), MANY).fragment is not None
    assert queue.enter_view(LATER) == [(Service.AGREED, bytes(3_000))]
    assert (len(queue), queue.bytes) == (1, 4)
    assert queue.take_run((), MANY) == Run(Service.AGREED, (b"next",), None)


def test_what_is_bound_to_the_current_view_is_sent_in_it() -> None:
    queue = queue_of(b"first")
    queue.append(Service.AGREED, b"bound", is_bound=True)
    assert queue.take_run((), MANY).payloads == (b"first", b"bound")
    assert queue.enter_view(LATER) == []


def test_packets_leave_room_for_the_name_of_the_view_they_are_sent_in() -> None:
    queue = queue_of(bytes(5_000))
    for view in (VIEW, ViewId(2**62, "v" * NAME_BYTES_MAX, 2**62), VIEW):
        queue.enter_view(view)
        run = queue.take_run((), MANY)
        full = Packet(A, view, 1, 1, run.service, (), run.payloads, run.fragment)
        assert codec.datagram_overhead_bytes(A) + codec.frame_bytes(full) == 1_400


# Frames into datagrams


def test_no_frames_make_no_datagram() -> None:
    assert into_datagrams(A, [], 1_400) == []


def test_frames_that_fit_share_a_datagram_in_their_order() -> None:
    frames: list[Frame] = [packet("a", 1), Nack(machine("b"), ((1, 2),), False), status(1)]
    assert into_datagrams(A, frames, 1_400) == [Datagram(A, tuple(frames))]


@pytest.mark.parametrize("seed", range(10))
def test_frames_that_do_not_fit_one_datagram_fill_several(seed: int) -> None:
    random = Random(seed)
    frames = [
        packet("a", 1 + number, payloads=[random.randbytes(random.randint(0, 1_200))]) for number in range(40)
    ]
    datagrams = into_datagrams(A, frames, 1_400)
    assert [frame for datagram in datagrams for frame in datagram.frames] == frames
    assert max(len(Codec("packing").encode(datagram)) for datagram in datagrams) <= 1_400
    assert len(datagrams) < len(frames)


def test_a_holder_with_a_long_name_can_send_again_what_filled_a_datagram() -> None:
    holder = Machine("h" * NAME_BYTES_MAX, 1)
    run = queue_of(*[bytes(60)] * 50).take_run((), MANY)
    full = Packet(A, VIEW, 2**31, 2**31, run.service, (), run.payloads)
    [datagram] = into_datagrams(holder, [full], 1_400)
    assert len(Codec("packing").encode(datagram)) <= 1_400
