"""The machine: stories of two to four machines on a network that loses exactly what it is told to lose."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from random import Random

import pytest

from tests.transport.harness import VIEW, DropRule, Harness, machine, packet, status
from transport.codec import Codec
from transport.config import TransportConfig
from transport.effects import (
    Backpressure,
    Broadcast,
    Delivered,
    Effect,
    Event,
    Journal,
    Reason,
    Received,
    WindowStuck,
)
from transport.lansis import Lansis, MessageTooLarge, QueueFull, ViewOver
from transport.messages import (
    ORDERED,
    Datagram,
    Envelope,
    Frame,
    Machine,
    Message,
    Nack,
    Packet,
    Retransmission,
    Service,
    Status,
    View,
    ViewId,
)

BASIC, CAUSAL, AGREED, SAFE = Service
A, B, C, D = map(machine, "abcd")
LATER = ViewId(2, "a", 1)
SMALL_WINDOW = TransportConfig(window_messages_max=30, packet_units_max=1)


def packet_in(frame: Frame) -> Packet | None:
    """The packet that a frame carries, for the first time or again."""
    carried = frame.packet if isinstance(frame, Retransmission) else frame
    return carried if isinstance(carried, Packet) else None


def is_packet(frame: Frame, sender: Machine, sequence: int) -> bool:
    carried = packet_in(frame)
    return carried is not None and (carried.sender, carried.sequence) == (sender, sequence)


def is_packet_of(frame: Frame, sender: Machine) -> bool:
    carried = packet_in(frame)
    return carried is not None and carried.sender == sender


def rejected(effects: list[Effect]) -> list[StrEnum]:
    """Why frames were dropped, as the journal has it."""
    return [effect.reason for effect in effects if isinstance(effect, Journal) and effect.event is Event.DROPPED]


# Delivery


@pytest.mark.parametrize("service", Service)
def test_a_message_reaches_everyone_its_sender_included(service: Service) -> None:
    cluster = Harness("abc")
    cluster.multicast("a", service, b"x")
    cluster.run(2.0)
    assert cluster.delivered == {"a": [b"x"], "b": [b"x"], "c": [b"x"]}
    assert cluster.messages["c"][0].sender == A
    assert cluster.messages["c"][0].service is service


@pytest.mark.parametrize("service", Service)
def test_alone_in_its_view_a_machine_delivers_without_waiting(service: Service) -> None:
    cluster = Harness("a")
    for payload in (b"1", b"2"):
        cluster.multicast("a", service, payload)
    cluster.run(1.0)
    assert cluster.delivered["a"] == [b"1", b"2"]


@pytest.mark.parametrize("seed", range(8))
def test_the_order_is_the_same_at_all_whatever_is_lost(seed: int) -> None:
    random = Random(seed)
    cluster = Harness("abcd", seed=seed)
    cluster.drop(lambda source, target, frame: random.random() < 0.2)
    sent = []
    for number in range(100):
        sent.append(b"%d" % number)
        cluster.multicast(random.choice("abcd"), random.choice((AGREED, SAFE)), sent[-1])
        cluster.run(random.choice((0.0, 0.3, 2.0)))
    cluster.heal()
    cluster.run(1_000.0)
    for name in "abcd":
        assert cluster.delivered[name] == cluster.delivered["a"]
    assert sorted(cluster.delivered["a"]) == sorted(sent)
    assert cluster.messages["a"] == sorted(cluster.messages["a"])


def test_ordered_messages_are_announced_before_they_are_delivered() -> None:
    cluster = Harness("abc")
    cluster.multicast("a", SAFE, b"x")
    cluster.run(2.0)
    for name in "abc":
        kinds = [type(effect) for effect in cluster.effects[name] if isinstance(effect, Received | Delivered)]
        assert kinds == [Received, Delivered]
        assert cluster.effects_of(Received, name)[0].messages == cluster.effects_of(Delivered, name)[0].messages


def test_without_a_member_agreed_waits_and_basic_and_causal_do_not() -> None:
    cluster = Harness("abc")
    cluster.drop(lambda source, target, frame: "c" in (source, target))
    for service in (BASIC, CAUSAL, AGREED):
        cluster.multicast("a", service, service.name.encode())
    cluster.run(500.0)
    assert cluster.delivered["b"] == [b"BASIC", b"CAUSAL"]
    cluster.heal()
    cluster.run(500.0)
    assert cluster.delivered["c"] == cluster.delivered["b"] == [b"BASIC", b"CAUSAL", b"AGREED"]


def test_safe_is_delivered_nowhere_while_one_member_lacks_it() -> None:
    cluster = Harness("abc")
    cluster.drop(lambda source, target, frame: packet_in(frame) is not None and target == "c")
    cluster.multicast("a", SAFE, b"safe")
    cluster.multicast("b", AGREED, b"agreed")
    cluster.run(300.0)
    assert cluster.delivered == {"a": [], "b": [], "c": []}
    cluster.heal()
    cluster.run(300.0)
    assert cluster.delivered["a"] == cluster.delivered["b"] == cluster.delivered["c"] == [b"safe", b"agreed"]


def test_basic_overtakes_what_was_lost_before_it() -> None:
    cluster = Harness("ab")
    cluster.drop(lambda source, target, frame: is_packet(frame, A, 1))
    for payload in (b"lost", b"not lost"):
        cluster.multicast("a", BASIC, payload)
        cluster.run(0.5)
    assert cluster.delivered["b"] == [b"not lost"]
    cluster.heal()
    cluster.run(20.0)
    assert cluster.delivered["b"] == [b"not lost", b"lost"]


def test_a_megabyte_arrives_whole_over_a_lossy_network() -> None:
    random = Random(3)
    cluster = Harness("abc")
    cluster.drop(lambda source, target, frame: random.random() < 0.05)
    megabyte = random.randbytes(2**20)
    cluster.multicast("a", SAFE, megabyte)
    cluster.multicast("b", AGREED, b"small")
    cluster.run(3_000.0)
    for name in "abc":
        assert sorted(cluster.delivered[name], key=len) == [b"small", megabyte]


@pytest.mark.parametrize("datagram_bytes_max", [321, 400, 1_400, 9_000])
def test_no_datagram_is_larger_than_allowed(datagram_bytes_max: int) -> None:
    random = Random(datagram_bytes_max)
    cluster = Harness("abc", TransportConfig(datagram_bytes_max=datagram_bytes_max))
    cluster.drop(lambda source, target, frame: random.random() < 0.3)
    for _ in range(200):
        cluster.multicast(random.choice("abc"), random.choice(list(Service)), bytes(random.choice((1, 90, 2_000))))
        cluster.run(0.5)
    sizes = [len(Codec("any").encode(sent.datagram)) for sent in cluster.sent]
    assert max(sizes) <= datagram_bytes_max


# Acknowledgements


def test_each_acknowledgement_travels_once_in_packets() -> None:
    cluster = Harness("abc")
    for sender in "aabbcb":
        cluster.multicast(sender, CAUSAL, b"x")
        cluster.run(0.5)
    assert [sent.acks for sent in cluster.frames(Packet, "a")] == [(), ()]
    assert [sent.acks for sent in cluster.frames(Packet, "b")] == [((A, 2),), (), ((C, 1),)]
    assert [sent.acks for sent in cluster.frames(Packet, "c")] == [((A, 2), (B, 2))]


def test_a_status_repeats_every_acknowledgement() -> None:
    cluster = Harness("abc")
    for sender in "aab":
        cluster.multicast(sender, CAUSAL, b"x")
        cluster.run(0.5)
    cluster.run(150.0)
    assert cluster.frames(Status, "c")[-1].acks == ((A, 2), (B, 1))
    assert cluster.frames(Status, "a")[-1] == status(clock=3, sequence=2, acks={"b": 1})


def test_data_carries_the_acknowledgement_and_no_status_is_needed() -> None:
    cluster = Harness("ab")
    cluster.inject("b", Datagram(A, (packet("a", 1),)))
    cluster.multicast("b", AGREED, b"answer")
    cluster.run(0.05)
    assert [sent.acks for sent in cluster.frames(Packet, "b")] == [((A, 1),)]
    assert cluster.frames(Status, "b") == []


def test_an_idle_network_sends_only_heartbeats() -> None:
    cluster = Harness("abc")
    for sender in "abc":
        cluster.multicast(sender, SAFE, b"x")
    cluster.run(200.0)
    busy = len(cluster.sent)
    cluster.run(1_000.0)
    idle = cluster.sent[busy:]
    assert len(idle) == 3 * 10
    for sent in idle:
        [heartbeat] = sent.datagram.frames
        assert isinstance(heartbeat, Status)
        assert not heartbeat.solicit


def test_what_nobody_waits_for_is_acknowledged_when_a_part_of_a_share_is_used() -> None:
    cluster = Harness("ab", TransportConfig(window_messages_max=80, packet_units_max=1, heartbeat_ms=10_000.0))
    for _ in range(9):
        cluster.multicast("a", CAUSAL, b"x")
    cluster.run(1.0)
    assert cluster.frames(Status, "b") == []
    cluster.multicast("a", CAUSAL, b"the tenth of forty")
    cluster.run(1.0)
    assert cluster.frames(Status, "b")[-1].acks == ((A, 10),)


# Losses


def test_a_loss_is_recognised_from_the_chain_of_acknowledgements() -> None:
    """The example of section 3.1: of A1, A2, a2B1, B2, B3, b3C1 a receiver misses B3, and C1 tells it."""
    cluster = Harness("abcd")
    cluster.drop(
        lambda source, target, frame: target == "d" and (isinstance(frame, Status) or is_packet(frame, B, 3))
    )
    for number, sender in enumerate("aabbbc"):
        cluster.multicast(sender, CAUSAL, b"%d" % number)
        cluster.run(0.5)
    assert cluster.delivered["d"] == [b"0", b"1", b"2", b"3"]
    cluster.run(2.0)
    assert cluster.frames(Nack, "d") == [Nack(B, ((3, 3),), is_repeated=False)]
    cluster.heal()
    cluster.run(20.0)
    assert cluster.delivered["d"] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_the_loss_of_a_last_message_is_found_from_a_heartbeat() -> None:
    cluster = Harness("ab")
    cluster.drop(lambda source, target, frame: isinstance(frame, Packet))
    cluster.multicast("a", CAUSAL, b"last")
    cluster.run(0.5)
    cluster.heal()
    cluster.run(110.0)
    assert cluster.delivered["b"] == [b"last"]
    assert cluster["a"].counters["packets_retransmitted"] == 1


def test_only_the_sender_answers_while_it_can() -> None:
    cluster = Harness("abcd")
    cluster.drop(lambda source, target, frame: target == "d" and is_packet(frame, A, 1))
    cluster.multicast("a", CAUSAL, b"lost")
    cluster.run(0.5)
    cluster.heal()
    cluster.multicast("a", CAUSAL, b"next")
    cluster.run(50.0)
    assert cluster.delivered["d"] == [b"lost", b"next"]
    assert [cluster[name].counters["packets_retransmitted"] for name in "abcd"] == [1, 0, 0, 0]


def test_when_the_sender_is_gone_one_of_the_holders_answers() -> None:
    cluster = Harness("abcd")
    cluster.drop(lambda source, target, frame: target == "d" and source == "a")
    cluster.multicast("a", CAUSAL, b"of the dead")
    cluster.run(0.5)
    cluster.drop(lambda source, target, frame: "a" in (source, target))
    cluster.run(250.0)
    assert cluster.delivered["d"] == [b"of the dead"]
    assert cluster["a"].counters["packets_retransmitted"] == 0
    assert sum(cluster[name].counters["packets_retransmitted"] for name in "bc") == 1


def test_one_request_serves_all_who_lost_the_same() -> None:
    cluster = Harness("abcd")
    cluster.drop(lambda source, target, frame: is_packet(frame, A, 1))
    cluster.multicast("a", CAUSAL, b"lost by all")
    cluster.run(0.5)
    cluster.heal()
    cluster.multicast("a", CAUSAL, b"next")
    cluster.run(50.0)
    assert all(cluster.delivered[name] == [b"lost by all", b"next"] for name in "bcd")
    assert sum(cluster[name].counters["nacks_sent"] for name in "bcd") < 3
    assert cluster["a"].counters["packets_retransmitted"] == 1


def test_losses_that_are_repaired_make_nobody_slower_to_ask() -> None:
    cluster = Harness("ab")
    cluster.drop(lambda source, target, frame: isinstance(frame, Packet) and frame.sequence % 2 == 1)
    waits = []
    for _ in range(8):
        for payload in (b"lost", b"tells"):
            cluster.multicast("a", CAUSAL, payload)
            cluster.run(0.5)
        told_at = cluster.now - 0.5 + cluster.delay_ms
        cluster.run(50.0)
        asked = [
            sent.at for sent in cluster.sent if any(isinstance(frame, Nack) for frame in sent.datagram.frames)
        ]
        waits.append(asked[-1] - told_at)
    assert cluster.delivered["b"] == [b"lost", b"tells"] * 8
    assert all(0.999 < wait < 2.001 for wait in waits)


def test_requests_and_answers_are_journaled_with_their_reasons() -> None:
    cluster = Harness("ab")
    cluster.drop(lambda source, target, frame: is_packet(frame, A, 1))
    for _ in range(2):
        cluster.multicast("a", CAUSAL, b"x")
        cluster.run(0.5)
    cluster.run(15.0)
    cluster.heal()
    cluster.run(50.0)
    asked = [journal for journal in cluster.effects_of(Journal, "b") if journal.event is Event.NACKED]
    assert [journal.reason for journal in asked[:2]] == [Reason.NEW, Reason.RETRY]
    assert asked[0].details == {"ranges": [[1, 1]]}
    answered = [journal for journal in cluster.effects_of(Journal, "a") if journal.event is Event.RETRANSMITTED]
    assert {(journal.id, journal.reason) for journal in answered} == {("a.1.1", Reason.REQUESTED)}


def test_a_lost_status_is_solicited() -> None:
    cluster = Harness("abc")
    cluster.drop(lambda source, target, frame: source == "c" and isinstance(frame, Status))
    cluster.multicast("a", AGREED, b"x")
    cluster.run(1.0)
    assert cluster.delivered == {"a": [], "b": [], "c": [b"x"]}
    cluster.heal()
    cluster.run(6.0)
    assert cluster.delivered == {"a": [b"x"], "b": [b"x"], "c": [b"x"]}
    assert [sent.solicit for sent in cluster.frames(Status, "a") if sent.solicit] == [(C,)]


def test_the_silent_are_solicited_ever_more_seldom_down_to_the_heartbeat() -> None:
    cluster = Harness("ab")
    cluster.drop(lambda source, target, frame: True)
    cluster.multicast("a", AGREED, b"x")
    cluster.run(1_000.0)
    solicited = [
        sent.at
        for sent in cluster.sent
        if sent.source == "a"
        and any(isinstance(frame, Status) and frame.solicit for frame in sent.datagram.frames)
    ]
    pauses = [later - earlier for earlier, later in pairwise(solicited)]
    assert solicited[0] == pytest.approx(4.0)
    assert pauses[:4] == pytest.approx([8.0, 16.0, 32.0, 64.0])
    assert set(map(round, pauses[4:])) == {100}


def test_on_a_slow_network_a_sender_learns_to_wait_for_acknowledgements() -> None:
    random = Random(1)
    cluster = Harness("abc")
    solicitations = []
    for _ in range(60):
        cluster.delay_ms = random.uniform(8.0, 12.0)
        cluster.multicast("a", AGREED, b"x")
        cluster.run(50.0)
        solicitations.append(sum(bool(sent.solicit) for sent in cluster.frames(Status, "a")))
    assert len(cluster.delivered["a"]) == 60
    assert solicitations[-1] - solicitations[29] <= 3  # while the last thirty were sent


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
    stuck = [journal for journal in cluster.effects_of(Journal, "a") if journal.event is Event.STUCK]
    assert stuck[0].details == {"laggards": ["c.1"]}
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
    [stuck] = [journal for journal in cluster.effects_of(Journal, "b") if journal.event is Event.STUCK]
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
    """Of c's datagrams only the small ones get through, as with a broken path MTU: it is never heard past."""
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
    """a cannot hear c; b and c hear everybody, and would go on for ever."""
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


# Peers' errors: dropped, counted, forgotten


def test_datagrams_of_machines_outside_the_view_are_dropped_and_counted() -> None:
    cluster = Harness("ab")
    for stranger in (Machine("x", 1), Machine("b", 0), Machine("b", 2)):
        cluster.inject("a", Datagram(stranger, (status(9, 9), packet("b", 1, service=BASIC))))
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


STRANGER = Machine("x", 1)
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
    "a packet acknowledges a stranger": (packet("b", 1, acks={"x": 1}), Reason.NOT_A_MEMBER),
    "a status acknowledges a stranger": (status(1, acks={"x": 1}), Reason.NOT_A_MEMBER),
    "a request for a stranger's": (Nack(STRANGER, ((1, 1),), False), Reason.NOT_A_MEMBER),
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


# Clocks


def test_clocks_rise_above_everything_heard() -> None:
    cluster = Harness("abc")
    for sender in "abcabc":
        cluster.multicast(sender, CAUSAL, b"x")
        cluster.run(0.5)
    clocks = [message.clock for message in cluster.messages["a"]]
    assert clocks == [1, 2, 3, 4, 5, 6]
    assert [cluster[name].clock for name in "abc"] == [6, 6, 6]


def test_clocks_rise_above_what_a_third_machine_sends_again() -> None:
    cluster = Harness("abc")
    cluster.inject("a", Datagram(C, (Retransmission(packet("b", 1, clock=77, service=CAUSAL)),)))
    assert cluster["a"].clock == 77
    cluster.multicast("a", CAUSAL, b"later")
    cluster.run(1.0)
    assert cluster.messages["a"][-1].clock == 78


def test_clocks_rise_above_what_is_stored_and_not_yet_in_its_place() -> None:
    cluster = Harness("ab")
    cluster.inject("a", Datagram(B, (packet("b", 9, clock=40, payloads=[b"x"] * 3),)))
    assert cluster["a"].received_through()[B] == 0
    assert cluster["a"].clock == 42


# Views


def machine_in(view: View, me: Machine = A, config: TransportConfig | None = None) -> Lansis:
    return Lansis(me, view, config or TransportConfig(), Random(1), 0.0)


def test_a_machine_must_be_a_member_of_its_view() -> None:
    with pytest.raises(ValueError, match=r"a\.1 is not a member of view 5\.b\.2"):
        machine_in(View(ViewId(5, "b", 2), (B, C)))
    with pytest.raises(ValueError, match=r"a\.2 is not a member"):
        machine_in(View(ViewId(5, "b", 2), (A, B)), me=Machine("a", 2))


def test_a_view_has_no_more_members_than_the_protocol_is_good_for() -> None:
    members = tuple(machine(f"n{number:02}") for number in range(9))
    config = TransportConfig(members_max=8)
    assert machine_in(View(VIEW, members[:8]), members[0], config)
    with pytest.raises(ValueError, match="9 members are more than members_max, 8"):
        machine_in(View(VIEW, members), members[0], config)


def test_datagrams_must_leave_room_for_data_beside_the_acknowledgements() -> None:
    members = tuple(machine(f"a-member-with-a-long-name-{number}") for number in range(9))
    assert machine_in(View(VIEW, members), members[0])
    with pytest.raises(ValueError, match="datagram_bytes_max is 256: raise it or shorten the names"):
        machine_in(View(VIEW, members), members[0], TransportConfig(datagram_bytes_max=256))


def test_a_status_that_solicits_everyone_fits_a_datagram() -> None:
    """In the largest view of the longest names that is accepted."""
    names = [f"{number:02}".ljust(64, "n") for number in range(64)]
    for count in range(64, 0, -1):
        members = tuple(map(machine, names[:count]))
        try:
            soliciting = machine_in(View(ViewId(2**62, names[0], 2**62), members), members[0])
        except ValueError:
            continue
        acks = tuple((member, 2**62) for member in members[1:])
        soliciting.multicast(SAFE, b"x")
        effects = [effect for now in (0.0, 500.0) for effect in soliciting.tick(now)]
        broadcasts = [effect.datagram for effect in effects if isinstance(effect, Broadcast)]
        frames = [frame for datagram in broadcasts for frame in datagram.frames]
        [sent] = [frame for frame in frames if isinstance(frame, Status)]
        assert len(sent.solicit) == count - 1
        widest = Status(soliciting.view.id, 2**62, 2**62, 2**62, acks, sent.solicit)
        assert len(Codec("any").encode(Datagram(members[0], (widest,)))) <= 1_400
        return
    pytest.fail("no view is accepted")


# The end of a view


def apart(*sides: str) -> DropRule:
    """Only machines of the same side hear each other."""
    return lambda source, target, frame: not any(source in side and target in side for side in sides)


def end_view(cluster: Harness, survivors: str) -> None:
    """As membership does: they tell each other what they have, and close the view when everyone has all of it."""
    for name in survivors:
        cluster[name].hold()
        cluster[name].suspect(member for member in cluster[name].view.members if member.name not in survivors)
    covers = [cluster[name].cover() for name in survivors]
    for name in survivors:
        for cover in covers:
            cluster.execute(name, cluster[name].require(cover, cluster.now))
    cluster.run(1_000.0)
    for name in survivors:
        assert all(cluster[name].has(cover) for cover in covers)
        cluster.execute(name, cluster[name].close())


def enter_view(cluster: Harness, names: str, view: ViewId = LATER) -> dict[str, Lansis]:
    """Each goes on from its last view, in one with the others. Returns the closed machines."""
    closed = {name: cluster[name] for name in names}
    base = {machine(name): dict(closed[name].cover())[machine(name)] for name in names}
    for name, predecessor in closed.items():
        cluster.machines[name] = Lansis(
            machine(name),
            View(view, tuple(base)),
            predecessor.config,
            Random(1),
            cluster.now,
            base=base,
            predecessor=predecessor,
        )
    return closed


def ordered(messages: list[Message]) -> list[Message]:
    return [message for message in messages if message.service in ORDERED]


# Holding


def test_a_held_machine_wants_no_tick_for_what_it_may_not_send() -> None:
    held = machine_in(View(VIEW, (A, B)))
    held.multicast(AGREED, b"waits")
    assert not held.is_held()
    held.hold()
    assert held.is_held()
    held.tick(0.0)
    assert held.next_deadline() > 0.0
    assert held.queued_messages() == 1


def test_a_held_machine_sends_no_messages_and_goes_on_saying_what_it_has() -> None:
    cluster = Harness("abc")
    cluster.multicast("a", AGREED, b"sent")
    cluster.run(5.0)
    for payload in (b"before", b"after"):
        cluster.multicast("a", AGREED, payload)
        cluster["a"].hold()
    cluster.multicast("b", AGREED, b"of another")
    before = len(cluster.sent)
    cluster.run(300.0)
    frames = [frame for sent in cluster.sent[before:] if sent.source == "a" for frame in sent.datagram.frames]
    assert len(frames) >= 3
    assert all(isinstance(frame, Status) for frame in frames)
    assert cluster.frames(Status, "a")[-1].acks == ((B, 1),)
    assert cluster["a"].queued_messages() == 2
    assert [cluster.delivered[name] for name in "abc"] == [[b"sent", b"of another"]] * 3


def test_in_a_held_view_what_was_lost_is_repaired() -> None:
    cluster = Harness("abc")
    cluster.drop(lambda source, target, frame: packet_in(frame) is not None)
    for sender in "ab":
        cluster.multicast(sender, AGREED, sender.encode())
    cluster.run(0.5)
    for name in "abc":
        cluster[name].hold()
    cluster.heal()
    cluster.run(300.0)
    assert [cluster.delivered[name] for name in "abc"] == [[b"a", b"b"]] * 3


def test_a_held_machine_does_not_wait_for_the_window() -> None:
    cluster = Harness("abc", SMALL_WINDOW)
    cluster.drop(lambda source, target, frame: source == "c")
    for _ in range(20):
        cluster.multicast("a", CAUSAL, b"x")
    cluster.run(50.0)
    assert cluster["a"].blocked() is not None
    cluster["a"].hold()
    assert cluster["a"].blocked() is None
    cluster.run(3_000.0)
    assert cluster["a"].blocked() is None
    assert cluster.effects_of(WindowStuck, "a") == []


def test_a_held_machine_takes_in_what_its_buffers_had_no_room_for() -> None:
    config = TransportConfig(window_messages_max=9, buffer_windows_max=2, packet_units_max=1)
    cluster = Harness("abc", config)
    cluster.drop(lambda source, target, frame: source == "c" and target == "b")
    for _ in range(60):
        cluster.multicast("a", CAUSAL, b"x")
    cluster.run(500.0)
    assert cluster["b"].pending_bytes() > 0
    cluster["b"].hold()
    cluster.execute("b", cluster["b"].require(cluster["a"].cover(), cluster.now))
    assert cluster["b"].pending_bytes() == 0
    assert cluster["b"].has(cluster["a"].cover())
    assert len(cluster.delivered["b"]) == len(cluster.delivered["a"]) > 18


def test_what_is_required_and_missing_is_asked_for_soon() -> None:
    cluster = Harness("abc", TransportConfig(heartbeat_ms=10_000.0))
    cluster["b"].hold()
    cluster["b"].suspect([C])
    cluster.run(1.0)
    cluster.execute("b", cluster["b"].require(((C, 2),), cluster.now))
    cluster.run(5.0)
    assert cluster.frames(Nack, "b") == [Nack(C, ((1, 2),), is_repeated=False)]


def test_a_message_for_one_view_is_sent_in_it_or_refused() -> None:
    cluster = Harness("ab")
    cluster.execute("a", cluster["a"].multicast(AGREED, b"in time", view=VIEW))
    cluster.run(5.0)
    assert cluster.delivered["b"] == [b"in time"]
    with pytest.raises(ViewOver, match=r"view 2\.a\.1 is over or ending"):
        cluster["a"].multicast(AGREED, b"too early", view=LATER)
    cluster["a"].hold()
    with pytest.raises(ViewOver, match=r"view 1\.a\.1 is over or ending"):
        cluster["a"].multicast(AGREED, b"too late", view=VIEW)
    assert cluster["a"].queued_messages() == 0
    cluster["a"].multicast(AGREED, b"in whichever view")
    assert cluster["a"].queued_messages() == 1


# Closing


def test_closing_delivers_what_is_here_in_timestamp_order() -> None:
    cluster = Harness("abc")
    cluster.drop(apart("ab", "c"))
    for sender, service in (("b", AGREED), ("a", SAFE), ("b", SAFE), ("a", AGREED), ("b", CAUSAL)):
        cluster.multicast(sender, service, b"%d" % len(cluster.sent))
        cluster.run(2.0)
    assert cluster.delivered["a"] == cluster.delivered["b"] == []
    end_view(cluster, "ab")
    assert cluster.messages["a"] == cluster.messages["b"] == sorted(cluster.messages["a"])
    assert [message.service for message in cluster.messages["a"]] == [AGREED, SAFE, SAFE, AGREED, CAUSAL]
    assert cluster["a"].undelivered_bytes() == 0
    assert cluster["a"].counters["messages_delivered"] == 5


def test_what_one_survivor_has_of_the_dead_all_deliver() -> None:
    cluster = Harness("abc")
    cluster.drop(lambda source, target, frame: source == "c" and target == "b")
    cluster.multicast("c", AGREED, b"of the dead")
    cluster.run(0.5)
    cluster.drop(apart("ab", "c"))
    cluster.multicast("a", SAFE, b"of the living")
    end_view(cluster, "ab")
    assert cluster.delivered["a"] == cluster.delivered["b"] == [b"of the dead"]
    enter_view(cluster, "ab")
    cluster.run(5.0)
    assert cluster.delivered["a"] == cluster.delivered["b"] == [b"of the dead", b"of the living"]


def test_what_the_suspected_send_after_that_is_neither_delivered_nor_asked_for() -> None:
    cluster = Harness("abc")
    for name in "ab":
        cluster[name].hold()
        cluster[name].suspect([C])
    cluster.drop(lambda source, target, frame: is_packet(frame, C, 1))
    for payload in (b"lost", b"late"):
        cluster.multicast("c", AGREED, payload)
        cluster.run(0.5)
    end_view(cluster, "ab")
    assert cluster.delivered["a"] == cluster.delivered["b"] == []
    assert cluster.frames(Nack, "a") == cluster.frames(Nack, "b") == []
    assert cluster["a"].cover() == ((A, 0), (B, 0), (C, 0))


@pytest.mark.parametrize("seed", range(8))
def test_survivors_deliver_the_same_and_go_on_whatever_is_lost(seed: int) -> None:
    random = Random(seed)
    cluster = Harness("abcd", TransportConfig(window_messages_max=60), seed=seed)
    sent: dict[str, list[bytes]] = {name: [] for name in "abcd"}

    def multicast_some() -> None:
        for number in range(60):
            name = random.choice(list(sent))
            sent[name].append(b"%d" % number + bytes(random.choice((1, 90, 3_000))))
            cluster.multicast(name, random.choice((CAUSAL, AGREED, SAFE)), sent[name][-1])
            cluster.run(random.choice((0.0, 0.3, 2.0)))

    cut = apart("abc", "d")
    cluster.drop(lambda source, target, frame: random.random() < 0.3)
    multicast_some()
    cluster.drop(lambda *frame: cut(*frame) or random.random() < 0.3)
    end_view(cluster, "abc")
    assert sorted(cluster.messages["a"]) == sorted(cluster.messages["b"]) == sorted(cluster.messages["c"])
    enter_view(cluster, "abc")
    of_the_dead = {message.payload for message in cluster.messages["a"] if message.sender == D}
    assert of_the_dead <= set(sent.pop("d"))
    multicast_some()
    cluster.drop(cut)
    cluster.run(1_000.0)
    for name in "abc":
        assert ordered(cluster.messages[name]) == ordered(cluster.messages["a"])
        assert ordered(cluster.messages[name]) == sorted(ordered(cluster.messages[name]))
        for sender in "abc":
            received = [m.payload for m in cluster.messages[name] if m.sender == machine(sender)]
            assert sorted(received) == sorted(sent[sender])
    assert {message.view for message in cluster.messages["a"]} == {VIEW, LATER}


# From one view to the next


def test_a_successor_goes_on_with_clock_sequence_queue_and_counters() -> None:
    cluster = Harness("abc")
    for sender in "aab":
        cluster.multicast(sender, AGREED, b"x")
        cluster.run(5.0)
    cluster["a"].hold()
    cluster.multicast("a", AGREED, b"queued")
    end_view(cluster, "abc")
    closed = enter_view(cluster, "abc")
    assert [cluster[name].clock for name in "abc"] == [3, 3, 3]
    assert (cluster["a"].queued_messages(), closed["a"].queued_messages()) == (1, 0)
    cluster.run(5.0)
    for name in "abc":
        assert cluster.messages[name][3:] == [Message(4, A, 3, AGREED, LATER, b"queued")]
    assert cluster.frames(Packet, "a")[-1].acks == ()  # of this view there is nothing to acknowledge
    assert cluster["a"].counters["packets_sent"] == 3
    assert cluster["a"].refused == []


def test_a_successor_says_at_once_that_it_is_there() -> None:
    cluster = Harness("ab")
    cluster.multicast("b", AGREED, b"x")
    cluster.run(5.0)
    end_view(cluster, "ab")
    enter_view(cluster, "ab")
    before = len(cluster.sent)
    cluster.run(0.0)
    frames = {sent.source: sent.datagram.frames for sent in cluster.sent[before:]}
    window_bytes = TransportConfig().window_bytes_max
    assert frames == {
        "a": (Status(LATER, 1, 0, window_bytes, ((B, 1),)),),
        "b": (Status(LATER, 1, 1, window_bytes, ()),),
    }


def test_a_successor_refuses_what_was_for_the_old_view_only() -> None:
    cluster = Harness("ab", SMALL_WINDOW)
    cluster.drop(lambda source, target, frame: True)
    for number in range(20):
        view = VIEW if number % 2 else None
        cluster.execute("a", cluster["a"].multicast(AGREED, b"%d" % number, view=view))
    cluster.run(5.0)
    assert cluster["a"].queued_messages() == 5
    cluster.heal()
    end_view(cluster, "ab")
    enter_view(cluster, "ab")
    assert cluster["a"].refused == [(AGREED, b"15"), (AGREED, b"17"), (AGREED, b"19")]
    cluster.run(50.0)
    left = [b"%d" % number for number in range(20) if number not in (15, 17, 19)]
    assert cluster.delivered["a"] == cluster.delivered["b"] == left


def test_a_message_half_sent_in_the_old_view_is_delivered_once_in_the_new() -> None:
    cluster = Harness("ab", SMALL_WINDOW)
    cluster.drop(lambda source, target, frame: True)
    large = Random(1).randbytes(30_000)
    cluster.multicast("a", AGREED, large)
    cluster.run(5.0)
    assert len(cluster.frames(Packet, "a")) == 15
    cluster.heal()
    end_view(cluster, "ab")
    assert cluster.delivered["b"] == []
    enter_view(cluster, "ab")
    cluster.run(50.0)
    assert cluster.delivered["a"] == cluster.delivered["b"] == [large]
    assert cluster.messages["b"][0].view == LATER


def test_a_queue_that_was_full_in_the_old_view_says_in_the_new_when_there_is_room() -> None:
    cluster = Harness("ab", TransportConfig(queue_messages_max=4))
    cluster["a"].hold()
    for _ in range(4):
        cluster.multicast("a", AGREED, b"x")
    end_view(cluster, "ab")
    assert cluster.effects_of(Backpressure, "a") == [Backpressure(full=True)]
    enter_view(cluster, "ab")
    cluster.run(5.0)
    assert cluster.effects_of(Backpressure, "a") == [Backpressure(full=True), Backpressure(full=False)]


def test_a_successor_knows_how_slow_the_network_is() -> None:
    cluster = Harness("ab", delay_ms=20.0)
    for _ in range(20):
        cluster.multicast("a", AGREED, b"x")
        cluster.run(100.0)
    solicited = sum(bool(sent.solicit) for sent in cluster.frames(Status, "a"))
    assert solicited > 0
    end_view(cluster, "ab")
    enter_view(cluster, "ab")
    cluster.run(100.0)
    cluster.multicast("a", AGREED, b"x")
    cluster.run(100.0)
    assert len(cluster.delivered["b"]) == 21
    assert sum(bool(sent.solicit) for sent in cluster.frames(Status, "a")) == solicited


def test_sides_that_worked_apart_exchange_messages_of_every_service_when_they_are_joined() -> None:
    cluster = Harness("abcd")
    cluster.multicast("a", AGREED, b"together")
    cluster.run(5.0)
    cluster.drop(apart("ab", "cd"))
    for side, count in (("ab", 3), ("cd", 9)):
        end_view(cluster, side)
        enter_view(cluster, side, ViewId(2, side[0], 1))
        for _ in range(count):
            cluster.multicast(side[0], SAFE, b"apart")
        cluster.run(5.0)
        assert cluster.delivered[side[1]] == [b"together"] + [b"apart"] * count
        end_view(cluster, side)
    cluster.heal()
    enter_view(cluster, "abcd", ViewId(11, "c", 1))
    for payload in (b"1", b"2"):
        for sender in "abcd":
            for service in Service:
                cluster.multicast(sender, service, payload)
    cluster.run(50.0)
    joined = {
        name: [message for message in cluster.messages[name] if message.view == ViewId(11, "c", 1)]
        for name in "abcd"
    }
    for messages in joined.values():
        assert len(messages) == 32
        assert ordered(messages) == ordered(joined["a"]) == sorted(ordered(messages))
    cluster.run(200.0)
    assert [cluster[name].window_messages() for name in "abcd"] == [(0, 0)] * 4


# A closed view


def closed_by_the_faster(cluster: Harness) -> Lansis:
    """`c` is dead, its only message has reached `a`, who has closed the view; `b` has none of theirs."""
    cluster.drop(lambda source, target, frame: target == "b")
    for sender in "ca":
        cluster.multicast(sender, AGREED, sender.encode())
        cluster.run(0.5)
    cluster.drop(lambda source, target, frame: True)
    end_view(cluster, "a")
    assert cluster.delivered["a"] == [b"c", b"a"]
    return cluster["a"]


def test_a_closed_machine_answers_who_is_slower() -> None:
    cluster = Harness("abc")
    closed = closed_by_the_faster(cluster)
    cluster["b"].hold()
    cluster["b"].suspect([C])
    cluster.execute("b", cluster["b"].require(closed.cover(), cluster.now))
    cluster.run(100.0)
    for nack in cluster.frames(Nack, "b"):
        closed.answer(nack, cluster.now)
    answers: list[Datagram] = []
    while (due := closed.answers_deadline()) < cluster.now + 50.0:
        answers += [effect.datagram for effect in closed.answers_due(due) if isinstance(effect, Broadcast)]
    for answer in answers:
        cluster.inject("b", answer)
    assert cluster["b"].has(closed.cover())
    cluster.execute("b", cluster["b"].close())
    assert cluster.delivered["b"] == [b"c", b"a"]
    assert closed.counters["packets_retransmitted"] == 2


def broadcasts(effects: list[Effect]) -> list[Datagram]:
    return [effect.datagram for effect in effects if isinstance(effect, Broadcast)]


def test_a_closed_machine_answers_at_once_for_itself_and_for_others_in_due_time() -> None:
    cluster = Harness("abc")
    closed = closed_by_the_faster(cluster)
    assert closed.answers_deadline() == float("inf")
    closed.answer(Nack(C, ((1, 1),), is_repeated=False), cluster.now)
    closed.answer(Nack(STRANGER, ((1, 1),), is_repeated=True), cluster.now)
    assert closed.answers_deadline() == float("inf")
    closed.answer(Nack(A, ((1, 1),), is_repeated=False), cluster.now)
    closed.answer(Nack(C, ((1, 1),), is_repeated=True), cluster.now)
    [ours], [theirs] = cluster.frames(Packet, "a"), cluster.frames(Packet, "c")
    assert broadcasts(closed.answers_due(cluster.now)) == [Datagram(A, (Retransmission(ours),))]
    assert closed.answers_due(cluster.now) == []
    later = closed.answers_deadline()
    assert cluster.now < later < cluster.now + 50.0
    assert broadcasts(closed.answers_due(later)) == [Datagram(A, (Retransmission(theirs),))]
    assert closed.answers_deadline() == float("inf")


def test_a_closed_machine_does_not_answer_what_another_has() -> None:
    cluster = Harness("abc")
    closed = closed_by_the_faster(cluster)
    closed.answer(Nack(C, ((1, 1),), is_repeated=True), cluster.now)
    [theirs] = cluster.frames(Packet, "c")
    closed.heard_answer(theirs, B, cluster.now)
    assert closed.answers_deadline() == float("inf")


def test_backpressure_ends_though_everything_queued_was_refused() -> None:
    cluster = Harness("ab", TransportConfig(queue_messages_max=4))
    for _ in range(4):
        cluster.execute("a", cluster["a"].multicast(AGREED, b"x", view=VIEW))
    end_view(cluster, "a")
    enter_view(cluster, "a")
    assert len(cluster["a"].refused) == 4
    cluster.run(1_000.0)
    assert cluster.effects_of(Backpressure, "a") == [Backpressure(full=True), Backpressure(full=False)]


def test_a_repeated_request_asks_only_for_what_is_required() -> None:
    cluster = Harness("abc")
    cluster.drop(lambda source, target, frame: True)
    cluster.inject("a", Datagram(C, (status(1, 10),)))
    cluster.run(5.0)
    assert cluster.frames(Nack, "a") == [Nack(C, ((1, 10),), False)]
    cluster["a"].hold()
    cluster["a"].suspect([C])
    cluster.execute("a", cluster["a"].require(((C, 5),), cluster.now))
    cluster.run(200.0)
    _, *later = cluster.frames(Nack, "a")
    assert {nack.ranges for nack in later} == {((1, 5),)}


def test_holding_takes_in_what_full_buffers_kept_out() -> None:
    config = TransportConfig(window_messages_max=9, buffer_windows_max=2, packet_units_max=1)
    cluster = Harness("abc", config)
    cluster.drop(lambda source, target, frame: source == "c" and target == "b")
    for _ in range(60):
        cluster.multicast("a", CAUSAL, b"x")
    cluster.run(500.0)
    assert cluster["b"].pending_bytes() > 0
    cluster["b"].hold()
    cluster.run(500.0)
    assert cluster["b"].pending_bytes() == 0
