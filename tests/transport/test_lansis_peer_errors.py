"""The machine and frames that cannot be right: they are dropped and counted, and change nothing."""

from __future__ import annotations

from enum import StrEnum

import pytest

from tests.transport.harness import (
    AGREED,
    BASIC,
    FOREIGN,
    LATER,
    VIEW,
    A,
    B,
    C,
    Harness,
    packet,
    status,
)
from transport.config import TransportConfig
from transport.effects import (
    Journal,
    Reason,
    TransportEffect,
    TransportEvent,
)
from transport.messages import (
    Datagram,
    Envelope,
    Frame,
    Machine,
    Nack,
    Packet,
    Retransmission,
    Service,
    Status,
)


def rejected(effects: list[TransportEffect]) -> list[StrEnum]:
    """Returns the reasons for which frames were dropped, from the journal."""
    return [
        effect.reason
        for effect in effects
        if isinstance(effect, Journal) and effect.event is TransportEvent.DROPPED
    ]


def test_datagrams_of_machines_outside_the_view_are_dropped_and_counted() -> None:
    cluster = Harness("ab")
    for outsider in (FOREIGN, Machine("b", 0), Machine("b", 2)):
        cluster.inject("a", Datagram(outsider, (status(9, 9), packet("b", 1, service=BASIC))))
    assert rejected(cluster.effects["a"]) == [Reason.NOT_A_MEMBER] * 3
    assert cluster["a"].counters["dropped_not_a_member"] == 3
    assert cluster.delivered["a"] == []


@pytest.mark.parametrize("incarnation", [0, 2])
def test_packets_of_another_incarnation_are_dropped_whoever_sends_them(incarnation: int) -> None:
    cluster = Harness("abc")
    other = Packet(Machine("b", incarnation), VIEW, 1, 1, BASIC, (), (b"x",))
    cluster.inject("a", Datagram(C, (other, Retransmission(other))))
    assert rejected(cluster.effects["a"]) == [Reason.NOT_A_MEMBER] * 2
    assert cluster.delivered["a"] == []


def test_frames_of_another_view_are_dropped() -> None:
    cluster = Harness("ab")
    stale = Packet(B, LATER, 1, 1, BASIC, (), (b"x",))
    cluster.inject("a", Datagram(B, (stale, Retransmission(stale), Status(LATER, 9, 9, 9, ()))))
    assert rejected(cluster.effects["a"]) == [Reason.OTHER_VIEW] * 3
    assert cluster["a"].counters["dropped_other_view"] == 3
    cluster.run(20.0)
    assert cluster.frames(Nack, "a") == []


JUMP = TransportConfig().sequence_jump_max
WRONG_FRAMES: dict[str, tuple[Frame, Reason]] = {
    "a packet's clock far ahead": (packet("b", 1, clock=2**40 + 1), Reason.CLOCK_JUMP),
    "a status's clock far ahead": (status(2**40 + 1), Reason.CLOCK_JUMP),
    "a packet far ahead": (packet("b", JUMP + 1), Reason.SEQUENCE_JUMP),
    "a status far ahead": (status(1, JUMP + 1), Reason.SEQUENCE_JUMP),
    "a packet's acknowledgement far ahead": (packet("b", 1, acks={"c": JUMP + 1}), Reason.SEQUENCE_JUMP),
    "a status's acknowledgement far ahead": (status(1, acks={"c": JUMP + 1}), Reason.SEQUENCE_JUMP),
    "a packet acknowledges what we never sent": (packet("b", 1, acks={"a": 1}), Reason.ACKS_UNSENT),
    "a status acknowledges what we never sent": (status(1, acks={"a": 1}), Reason.ACKS_UNSENT),
    "a packet acknowledges its own sender": (packet("b", 1, acks={"b": 1}), Reason.ACKS_UNSENT),
    "a status acknowledges its own sender": (status(1, acks={"b": 1}), Reason.ACKS_UNSENT),
    "a packet of ours that we never sent": (packet("a", 1), Reason.MY_OWN_NAME),
    "a packet sent again far ahead": (Retransmission(packet("b", JUMP + 1)), Reason.SEQUENCE_JUMP),
    "a packet acknowledges a foreign machine": (packet("b", 1, acks={"x": 1}), Reason.NOT_A_MEMBER),
    "a status acknowledges a foreign machine": (status(1, acks={"x": 1}), Reason.NOT_A_MEMBER),
    "a request for a foreign machine's": (Nack(FOREIGN, ((1, 1),), False), Reason.NOT_A_MEMBER),
    "what only the membership understands": (Envelope(b"x"), Reason.UNEXPECTED),
}


@pytest.mark.parametrize("error", WRONG_FRAMES)
def test_what_cannot_be_right_is_dropped_and_leaves_no_trace(error: str) -> None:
    frame, reason = WRONG_FRAMES[error]
    cluster = Harness("abc")
    cluster.inject("a", Datagram(B, (frame,)))
    assert rejected(cluster.effects["a"]) == [reason]
    assert cluster["a"].counters[f"dropped_{reason}"] == 1
    assert cluster["a"].clock == 0
    cluster.run(50.0)
    assert cluster.frames(Nack, "a") == []
    cluster.multicast("b", AGREED, b"right")
    cluster.run(5.0)
    assert cluster.delivered["a"] == [b"right"]


def test_what_is_just_within_the_bounds_is_taken() -> None:
    cluster = Harness("abc")
    far = packet("b", JUMP, clock=2**40, service=BASIC)
    cluster.inject("a", Datagram(B, (far,)))
    assert rejected(cluster.effects["a"]) == []
    assert cluster.delivered["a"] == [b"x"]


def test_a_clock_that_does_not_rise_is_refused() -> None:
    cluster = Harness("ab")
    cluster.inject("a", Datagram(B, (packet("b", 1, clock=5), packet("b", 2, clock=5))))
    cluster.inject("a", Datagram(B, (status(9, 1), packet("b", 2, clock=9))))
    assert rejected(cluster.effects["a"]) == [Reason.OUT_OF_ORDER] * 2


def test_a_clock_that_leaves_no_room_to_count_on_is_refused() -> None:
    cluster = Harness("ab", TransportConfig(clock_jump_max=2**63))
    cluster.inject("a", Datagram(B, (packet("b", 1, clock=2**62), status(2**62))))
    assert rejected(cluster.effects["a"]) == [Reason.CLOCK_JUMP] * 2


def test_a_packet_that_repeats_units_in_another_run_is_refused() -> None:
    cluster = Harness("ab")
    cluster.inject("a", Datagram(B, (packet("b", 1, payloads=[b"1", b"2"]),)))
    cluster.inject("a", Datagram(B, (packet("b", 2, clock=9, payloads=[b"2", b"3"]),)))
    assert rejected(cluster.effects["a"]) == [Reason.OUT_OF_ORDER]


def test_runs_that_contradict_each_other_harm_nobody() -> None:
    cluster = Harness("abc")
    after = packet("b", 3, clock=13, payloads=[b"x"] * 9)  # 3 to 11, while 1 and 2 are missing
    before = packet("b", 1, clock=1, payloads=[b"x"] * 4)  # 1 to 4: both cannot be true
    cluster.inject("a", Datagram(B, (after,)))
    cluster.inject("a", Datagram(B, (before,)))
    cluster.run(500.0)
    cluster.multicast("a", BASIC, b"alive")
    cluster.run(1.0)
    assert b"alive" in cluster.delivered["c"]


def test_no_more_is_kept_of_a_sender_than_allowed_but_the_next_always_is() -> None:
    cluster = Harness("ab", TransportConfig(window_bytes_max=3_000))
    for sequence in (2, 3, 4, 5):
        cluster.inject("a", Datagram(B, (packet("b", sequence),)))
    assert rejected(cluster.effects["a"]) == [Reason.PENDING_FULL]
    cluster.inject("a", Datagram(B, (packet("b", 1),)))
    assert cluster["a"].received_through()[B] == 4
    assert cluster["a"].pending_bytes() == 0


def test_datagrams_in_our_own_name_are_dropped_and_counted() -> None:
    cluster = Harness("ab")
    cluster.multicast("a", AGREED, b"x")
    cluster.run(2.0)
    clock = cluster["a"].clock
    forged = (packet("b", 5, service=BASIC), status(99, 99), Nack(A, ((1, 1),), True))
    cluster.inject("a", Datagram(A, forged))
    assert rejected(cluster.effects["a"]) == [Reason.MY_OWN_NAME]
    assert cluster["a"].counters["dropped_my_own_name"] == 1
    assert cluster["a"].clock == clock
    assert cluster.delivered["a"] == [b"x"]


def test_our_own_packets_sent_again_by_another_are_duplicates() -> None:
    cluster = Harness("ab")
    cluster.multicast("a", BASIC, b"x")
    cluster.run(1.0)
    [ours] = cluster.frames(Packet, "a")
    cluster.inject("a", Datagram(B, (Retransmission(ours), ours)))
    assert cluster["a"].counters["duplicates"] == 2
    assert cluster.delivered["a"] == [b"x"]


@pytest.mark.parametrize("service", Service)
def test_duplicates_are_counted_and_not_delivered_again(service: Service) -> None:
    cluster = Harness("ab")
    cluster.multicast("a", service, b"x")
    cluster.run(2.0)
    for _ in range(3):
        cluster.inject("b", Datagram(A, tuple(cluster.frames(Packet, "a"))))
    cluster.run(2.0)
    assert cluster["b"].counters["duplicates"] == 3
    assert cluster.delivered["b"] == [b"x"]
