"""Marks: what the layer above says of its own progress, carried in statuses."""

from __future__ import annotations

import pytest

from tests.transport.harness import VIEW, Harness, machine
from transport.config import TransportConfig
from transport.effects import Delivered, Journal, Marked, Reason
from transport.messages import Datagram, Service, Status


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
