"""The machine when it may not send: a full window, too much undelivered, a full queue."""

from __future__ import annotations

import pytest

from tests.transport.harness import (
    AGREED,
    CAUSAL,
    SAFE,
    SMALL_WINDOW,
    B,
    C,
    Harness,
    is_packet_of,
    packet_in,
    status,
)
from transport.config import TransportConfig
from transport.effects import (
    Backpressure,
    Journal,
    Reason,
    TransportEvent,
    WindowStuck,
)
from transport.lansis import MessageTooLarge, QueueFull
from transport.messages import (
    Datagram,
    Frame,
)

# The window


def test_a_stuck_window_is_reported_again_and_again_naming_who_holds_it() -> None:
    cluster = Harness("abc", SMALL_WINDOW)
    cluster.drop(lambda source, target, frame: source == "c")
    for _ in range(20):
        cluster.multicast("a", CAUSAL, b"x")
    cluster.run(900.0)
    assert cluster.effects_of(WindowStuck, "a") == []
    cluster.run(2_500.0)
    assert cluster.effects_of(WindowStuck, "a") == [WindowStuck((C,))] * 3
    stuck = [journal for journal in cluster.effects_of(Journal, "a") if journal.event is TransportEvent.STUCK]
    assert stuck[0].details == {"machines": ["c.1"]}
    assert stuck[0].reason is Reason.SHARE_USED


def test_a_window_that_was_stuck_opens_when_the_laggard_is_heard() -> None:
    cluster = Harness("abc", SMALL_WINDOW)
    cluster.drop(lambda source, target, frame: "c" in (source, target))
    for number in range(40):
        cluster.multicast("a", CAUSAL, b"%d" % number)
    cluster.run(1_500.0)
    assert len(cluster.delivered["b"]) == 10
    cluster.heal()
    cluster.run(300.0)
    assert cluster.delivered["c"] == [b"%d" % number for number in range(40)]
    reports = len(cluster.effects_of(WindowStuck, "a"))
    cluster.run(3_000.0)
    assert len(cluster.effects_of(WindowStuck, "a")) == reports


def test_a_window_that_moves_is_not_stuck_however_full() -> None:
    cluster = Harness("abc", SMALL_WINDOW, delay_ms=5.0)
    for _ in range(3_000):
        cluster.multicast("a", AGREED, b"x")
    cluster.run(2_500.0)
    assert cluster["a"].queued_messages() > 0
    assert cluster.effects_of(WindowStuck, "a") == []


def test_who_cannot_know_what_is_stable_stops_taking_in_and_goes_on_when_it_can() -> None:
    config = TransportConfig(window_messages_max=9, buffer_windows_max=2, packet_units_max=1, stuck_after_ms=50.0)
    cluster = Harness("abc", config)
    cluster.drop(lambda source, target, frame: source == "c" and target == "b")
    for _ in range(60):
        cluster.multicast("a", CAUSAL, b"x")
    cluster.run(500.0)
    assert len(cluster.delivered["b"]) == 18
    assert cluster["b"].pending_bytes() > 0
    assert cluster.effects_of(WindowStuck, "a")[-1] == WindowStuck((B,))
    cluster.heal()
    cluster.run(500.0)
    assert len(cluster.delivered["b"]) == len(cluster.delivered["c"]) == 60


def test_a_message_that_nobody_can_deliver_is_reported_too_naming_who_is_not_heard() -> None:
    cluster = Harness("abc")
    cluster.drop(lambda source, target, frame: source == "c")
    cluster.multicast("a", AGREED, b"x")
    cluster.run(1_500.0)
    assert cluster.effects_of(WindowStuck, "a") == cluster.effects_of(WindowStuck, "b") == [WindowStuck((C,))]
    assert cluster.effects_of(WindowStuck, "c") == []
    [stuck] = [journal for journal in cluster.effects_of(Journal, "b") if journal.event is TransportEvent.STUCK]
    assert stuck.reason is Reason.BACKLOG


def test_the_window_is_what_the_smallest_receive_buffer_bears() -> None:
    cluster = Harness("abc", TransportConfig(packet_units_max=1))
    cluster.inject("a", Datagram(C, (status(0, window_bytes=30_000),)))
    cluster.drop(lambda source, target, frame: source != "a")
    for _ in range(100):
        cluster.multicast("a", CAUSAL, b"x")
    cluster.run(100.0)
    _, ours = cluster["a"].window_bytes()
    assert 5_000 < ours <= 10_000


# Too much to deliver


def unheard(source: str, target: str, frame: Frame) -> bool:
    """Only c's small datagrams get through, as with a broken path MTU, so no machine hears it past its message."""
    return is_packet_of(frame, C)


def test_with_too_much_to_deliver_sending_stops_and_goes_on_when_it_can_be_delivered() -> None:
    cluster = Harness("abc", TransportConfig(undelivered_bytes_max=20_000, packet_units_max=1))
    cluster.drop(unheard)
    cluster.multicast("c", AGREED, b"lost for now")
    cluster.run(1.0)
    for _ in range(200):
        cluster.multicast("b", AGREED, b"x")
        cluster.run(1.0)
    assert cluster["b"].queued_messages() > 150
    assert cluster["a"].undelivered_bytes() < 25_000
    cluster.heal()
    cluster.run(500.0)
    assert [len(cluster.delivered[name]) for name in "abc"] == [201, 201, 201]


def is_late(source: str, target: str, frame: Frame) -> bool:
    """The end of b's flood reaches a later than the rest."""
    carried = packet_in(frame)
    return target == "a" and carried is not None and carried.sender == B and carried.sequence > 25


def test_what_is_waited_for_is_not_kept_out_by_what_has_to_wait() -> None:
    """With too much to deliver, a waits for c, whose packet follows some of b's."""
    cluster = Harness("abc", TransportConfig(undelivered_bytes_max=20_000, packet_units_max=1))
    cluster.drop(lambda source, target, frame: target == "c")
    cluster.multicast("a", CAUSAL, b"so that b's clock is ahead of c's")
    cluster.run(0.5)
    cluster.drop(unheard)
    cluster.multicast("c", AGREED, b"first of c")
    cluster.run(200.0)
    cluster.drop(lambda *frame: unheard(*frame) or is_late(*frame))
    for count in (19, 30):
        for _ in range(count):
            cluster.multicast("b", AGREED, b"x")
        cluster.run(5.0)
    cluster.drop(unheard)
    cluster.run(300.0)
    cluster.multicast("c", AGREED, b"second of c")
    cluster.run(5.0)
    cluster.heal()
    cluster.run(10_000.0)
    assert [len(cluster.delivered[name]) for name in "abc"] == [52, 52, 52]


def test_with_too_much_undelivered_a_member_stops_the_others_too() -> None:
    """a cannot hear c; b and c hear every member, and would go on for ever."""
    cluster = Harness("abc", TransportConfig(undelivered_bytes_max=20_000, window_messages_max=30))
    cluster.drop(lambda source, target, frame: source == "c" and target == "a")
    for _ in range(100):
        cluster.multicast("b", SAFE, b"x")
    cluster.run(3_000.0)
    assert cluster.machines["a"].undelivered_bytes() <= 20_000 + 30 * 1_100
    assert cluster.machines["b"].blocked() is not None
    assert 0 < len(cluster.delivered["b"]) < 100
    cluster.heal()
    cluster.run(1_000.0)
    assert [len(cluster.delivered[name]) for name in "abc"] == [100, 100, 100]


# Backpressure


def test_a_full_queue_says_so_and_says_when_there_is_room() -> None:
    cluster = Harness("ab", TransportConfig(queue_messages_max=4))
    for _ in range(4):
        cluster.multicast("a", AGREED, b"x")
    assert cluster.effects["a"] == [Backpressure(full=True)]
    with pytest.raises(QueueFull, match="4 messages of 4 bytes"):
        cluster.multicast("a", AGREED, b"one too many")
    cluster.run(5.0)
    assert cluster.effects_of(Backpressure, "a") == [Backpressure(full=True), Backpressure(full=False)]
    cluster.multicast("a", AGREED, b"now")
    cluster.run(5.0)
    assert cluster.delivered["b"] == [b"x", b"x", b"x", b"x", b"now"]


def test_a_full_queue_stays_full_while_the_window_is_blocked() -> None:
    cluster = Harness("ab", TransportConfig(queue_messages_max=20, window_messages_max=10))
    cluster.drop(lambda source, target, frame: True)
    for _ in range(20):
        cluster.multicast("a", AGREED, b"x")
    cluster.run(500.0)
    assert cluster["a"].queued_messages() == 15
    assert cluster.effects_of(Backpressure, "a") == [Backpressure(full=True)]
    cluster.heal()
    cluster.run(500.0)
    assert cluster.effects_of(Backpressure, "a")[-1] == Backpressure(full=False)
    assert len(cluster.delivered["b"]) == 20


def test_a_message_larger_than_any_is_refused() -> None:
    cluster = Harness("ab", TransportConfig(message_bytes_max=2_000))
    with pytest.raises(MessageTooLarge, match="2001 bytes, at most 2000"):
        cluster.multicast("a", AGREED, bytes(2_001))
    cluster.multicast("a", AGREED, bytes(2_000))
    cluster.run(5.0)
    assert cluster.delivered["b"] == [bytes(2_000)]
