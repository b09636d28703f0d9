"""Marks: what the layer above says of its own progress, carried in statuses."""

from __future__ import annotations

import pytest

from tests.transport.harness import VIEW, A, B, Harness, machine, packet
from transport.config import TransportConfig
from transport.effects import Delivered, Journal, Marked, Reason
from transport.messages import Datagram, Packet, Service, Status


def test_marks_reach_every_member_at_once() -> None:
    cluster = Harness("abc")
    cluster.multicast("a", Service.AGREED, b"x")
    cluster.run(5.0)
    cluster["b"].mark((1, 0, 0))
    cluster.run(0.2)
    for name in "ac":
        assert cluster.effects_of(Marked, name) == [Marked(machine("b"), (1, 0, 0))]


def test_a_lost_mark_is_repeated_with_the_heartbeat() -> None:
    cluster = Harness("ab")
    cluster.multicast("a", Service.AGREED, b"x")
    cluster.run(5.0)
    cluster.drop(lambda source, target, frame: source == "b")
    cluster["b"].mark((1, 0))
    cluster.run(5.0)
    cluster.heal()
    assert not cluster.effects_of(Marked, "a")
    cluster.run(200.0)
    assert Marked(machine("b"), (1, 0)) in cluster.effects_of(Marked, "a")


def test_a_member_that_is_solicited_repeats_its_marks_at_once() -> None:
    cluster = Harness("ab")
    cluster.multicast("a", Service.AGREED, b"x")
    cluster.run(5.0)
    cluster.drop(lambda source, target, frame: source == "b")
    cluster["b"].mark((1, 0))
    cluster.run(1.0)
    cluster.heal()
    cluster["a"].solicit([machine("b")])
    cluster.run(0.5)
    assert cluster.effects_of(Marked, "a")[-1] == Marked(machine("b"), (1, 0))


# Packets have no marks


def busy_pair() -> Harness:
    """A message of a that b has received, and one of b that waits to leave in b's next tick."""
    cluster = Harness("ab")
    cluster.multicast("a", Service.AGREED, b"x")
    cluster.run(5.0)
    cluster.multicast("b", Service.AGREED, b"y")
    return cluster


def test_a_mark_is_sent_in_the_tick_in_which_a_packet_leaves() -> None:
    cluster = busy_pair()
    cluster["b"].mark((1, 0))
    cluster.run(0.2)
    assert cluster.effects_of(Marked, "a") == [Marked(B, (1, 0))]
    assert cluster.frames(Packet, "b"), "the packet has left too"


def test_the_mark_and_the_packet_are_one_datagram() -> None:
    cluster = busy_pair()
    cluster["b"].mark((1, 0))
    cluster.run(0.2)
    last = [sent.datagram for sent in cluster.sent if sent.source == "b"][-1]
    assert [type(frame) for frame in last.frames] == [Packet, Status]


def test_a_solicited_member_repeats_its_marks_though_a_packet_leaves() -> None:
    cluster = busy_pair()
    cluster.drop(lambda source, target, frame: source == "b")
    cluster["b"].mark((1, 0))
    cluster.run(1.0)
    cluster.heal()
    cluster.inject("b", Datagram(A, (Status(VIEW, 1, 1, 65_536, (), solicit=(B,)),)))
    cluster.multicast("b", Service.AGREED, b"z")
    cluster.run(0.2)
    assert cluster.effects_of(Marked, "a") == [Marked(B, (1, 0))]


def test_members_are_solicited_though_a_packet_leaves() -> None:
    cluster = busy_pair()
    cluster["b"].solicit([A])
    cluster.run(0.05)
    assert cluster.frames(Status, "b")[-1].solicit == (A,)


def test_a_packet_settles_what_it_acknowledges() -> None:
    cluster = Harness("ab")
    cluster.inject("b", Datagram(A, (packet("a", 1, service=Service.SAFE),)))
    cluster.multicast("b", Service.AGREED, b"y")
    cluster.run(0.05)
    assert [sent.acks for sent in cluster.frames(Packet, "b")] == [((A, 1),)]
    assert cluster.frames(Status, "b") == []


# Acknowledgements that go with a mark


def received(cluster: Harness, *services: Service) -> None:
    """Makes b receive messages of a that the layer above will mark."""
    cluster["b"].expect_mark()
    for service in services:
        cluster.multicast("a", service, b"x")
    cluster.run(1.0)


def test_an_acknowledgement_goes_with_the_mark_that_was_announced() -> None:
    cluster = Harness("ab")
    received(cluster, Service.AGREED)
    assert cluster.frames(Status, "b") == []
    assert not cluster.delivered["a"]
    cluster["b"].mark((1, 0))
    cluster.run(1.0)
    [sent] = cluster.frames(Status, "b")
    assert (sent.acks, sent.marks) == (((machine("a"), 1),), (1, 0))
    assert cluster.delivered["a"] == [b"x"]


def test_it_does_not_wait_for_long() -> None:
    cluster = Harness("ab", TransportConfig(ack_with_mark_ms=3.0))
    received(cluster, Service.AGREED)
    cluster.run(1.5)
    assert not cluster.delivered["a"]
    cluster.run(1.0)
    assert cluster.delivered["a"] == [b"x"]
    assert [sent.marks for sent in cluster.frames(Status, "b")] == [()]


def test_one_announcement_is_for_one_mark() -> None:
    cluster = Harness("ab")
    received(cluster, Service.AGREED)
    cluster["b"].mark((1, 0))
    cluster.run(1.0)
    cluster.multicast("a", Service.AGREED, b"y")
    cluster.run(1.0)
    assert cluster.delivered["a"] == [b"x", b"y"]


def test_safe_messages_are_acknowledged_at_once() -> None:
    cluster = Harness("ab")
    received(cluster, Service.SAFE)
    assert cluster.delivered["a"] == [b"x"]


def test_a_window_that_fills_is_acknowledged_at_once() -> None:
    cluster = Harness("ab", TransportConfig(window_messages_max=80, packet_units_max=1))
    received(cluster, *[Service.AGREED] * 10)
    assert cluster.frames(Status, "b")[0].acks == ((machine("a"), 10),)


@pytest.mark.parametrize(
    ("marks", "reason"), [((0,), Reason.NOT_A_MEMBER), ((1, 0), Reason.ACKS_UNSENT)], ids=["too few", "unsent"]
)
def test_marks_that_cannot_be_are_a_peers_error(marks: tuple[int, ...], reason: Reason) -> None:
    cluster = Harness("ab")
    cluster.inject("a", Datagram(machine("b"), (Status(VIEW, 1, 0, 65_536, (), (), marks),)))
    assert not cluster.effects_of(Marked, "a")
    assert [journal.reason for journal in cluster.effects_of(Journal, "a")] == [reason]


def test_marks_are_one_for_each_member() -> None:
    with pytest.raises(ValueError, match="2 marks for 3 members"):
        Harness("abc")["a"].mark((0, 0))


def test_what_the_end_of_a_view_settles_is_told_apart() -> None:
    cluster = Harness("ab")
    cluster.drop(lambda source, target, frame: source == "b")
    cluster.multicast("a", Service.AGREED, b"x")
    cluster.run(5.0)
    assert not cluster.delivered["a"]
    cluster.execute("a", cluster["a"].close())
    [delivered] = cluster.effects_of(Delivered, "a")
    assert delivered.is_closing
