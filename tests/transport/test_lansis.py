"""The machine: what it delivers and acknowledges, its clocks and the views it accepts."""

from __future__ import annotations

from random import Random

import pytest

from tests.transport.harness import (
    AGREED,
    BASIC,
    CAUSAL,
    SAFE,
    VIEW,
    A,
    B,
    C,
    Harness,
    is_packet,
    machine,
    machine_in,
    packet,
    packet_in,
    status,
)
from transport.codec import Codec
from transport.config import TransportConfig
from transport.effects import (
    Broadcast,
    Delivered,
    Received,
)
from transport.messages import (
    Datagram,
    Machine,
    Packet,
    Retransmission,
    Service,
    Status,
    View,
    ViewId,
)

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


@pytest.mark.parametrize("datagram_bytes_max", [325, 400, 1_400, 9_000])
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
    """This holds in the largest view of the longest names that is accepted."""
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
