"""What becomes of messages in whole groups when their view ends: which are delivered in it, held back, refused."""

from __future__ import annotations

from random import Random

import pytest

from membership.config import MembershipConfig
from membership.effects import ChangeStarted, Refused, ViewChanged
from membership.stages import Stage
from tests.membership.builders import names
from tests.membership.harness import Cluster, is_ending, is_packet, settled
from transport.config import TransportConfig
from transport.effects import Broadcast, Delivered
from transport.lansis import ViewOver
from transport.messages import Envelope, Packet, Retransmission, Service, View


def test_nothing_is_sent_between_the_start_of_a_change_and_its_view() -> None:
    cluster = settled("abcd")
    cluster.drop(lambda source, target, frame: is_ending(frame) and cluster.random.random() < 0.8)  # takes a while
    cluster.crash("d")
    for number in range(300):
        cluster.multicast("abc"[number % 3], b"%d" % number)
        cluster.run(3.0)
    for name in "abc":
        is_changing = False
        for _, effect in cluster.log[name]:
            if isinstance(effect, ChangeStarted):
                is_changing = True
            elif isinstance(effect, ViewChanged):
                is_changing = False
            elif isinstance(effect, Broadcast):
                assert not (is_changing and any(isinstance(frame, Packet) for frame in effect.datagram.frames))


def test_every_change_of_view_is_announced_before() -> None:
    cluster = settled("abc")
    cluster.partition("ab|c")
    cluster.run_until_views("ab", "c")
    cluster.heal()
    cluster.run_until_views("abc")
    for name in "abc":
        changes = [effect for _, effect in cluster.log[name] if isinstance(effect, ChangeStarted | ViewChanged)]
        assert [type(change) for change in changes] == [ChangeStarted, ViewChanged] * 3
        assert [change.view for change in changes[::2]] == cluster.views[name][:-1]


def test_what_is_accepted_during_a_change_goes_out_in_the_next_view() -> None:
    cluster = settled("abc")
    cluster.crash("c")
    cluster.drop(lambda source, target, frame: target == "a" and is_ending(frame))
    cluster.run_until(cluster["a"].is_changing)
    cluster.multicast("a", b"held")
    cluster.run(100.0)
    assert cluster.delivered("a") == []
    cluster.heal()
    cluster.run_until_views("ab")
    cluster.run(10.0)
    assert cluster.history("a")[-2:] == cluster.history("b")[-2:] == ["ab", b"held"]
    (delivered,) = cluster.effects(Delivered, "b")
    assert delivered.messages[0].view == cluster["b"].view.id


def test_a_message_bound_to_a_view_that_is_ending_is_not_accepted() -> None:
    cluster = settled("abc")
    cluster.crash("c")
    cluster.drop(lambda source, target, frame: target == "a" and is_ending(frame))
    cluster.run_until(cluster["a"].is_changing)
    with pytest.raises(ViewOver):
        cluster.multicast("a", b"too late", bound=True)


def test_a_message_bound_to_a_view_that_ended_before_it_was_sent_is_refused() -> None:
    cluster = settled("abc", transport_config=TransportConfig(window_messages_max=6, packet_units_max=1))
    cluster.crash("c")  # so that the window fills
    bound = [b"bound %d" % number for number in range(10)]
    for payload in bound:
        cluster.multicast("a", payload, bound=True)
    cluster.multicast("a", b"free")
    cluster.run_until_views("ab")
    cluster.run(100.0)
    (refusal,) = cluster.effects(Refused, "a")
    refused = [payload for _, payload in refusal.messages]
    assert 0 < len(refused) < len(bound)
    before = bound[: -len(refused)]
    assert bound == before + refused
    assert cluster.history("a") == cluster.history("b") == ["abc", *before, "ab", b"free"]


def test_frames_of_a_view_we_do_not_have_yet_are_kept_for_it() -> None:
    cluster = settled("abc")
    cluster.crash("c")
    cluster.drop(lambda source, target, frame: source + target == "ba" and is_ending(frame))
    cluster.run_until(lambda: names(cluster["b"].view.members) == "ab")
    cluster.multicast("b", b"early", Service.CAUSAL)
    cluster.run(2.0)
    assert cluster["a"].stage is Stage.FAULTS
    packets = [frame for sent in cluster.sent for frame in sent.datagram.frames if isinstance(frame, Packet)]
    assert [packet.payloads for packet in packets] == [(b"early",)]
    cluster.drop(lambda source, target, frame: is_packet(frame))  # it is not sent again
    cluster.run_until_views("ab")
    assert cluster.history("a")[-2:] == ["ab", b"early"]


def test_what_is_kept_of_early_frames_is_bounded_and_the_rest_is_asked_for() -> None:
    cluster = settled("abc", config=MembershipConfig(early_bytes_max=1_000))
    cluster.crash("c")
    cluster.drop(lambda source, target, frame: source + target == "ba" and is_ending(frame))
    cluster.run_until(lambda: names(cluster["b"].view.members) == "ab")
    for _ in range(20):
        cluster.multicast("b", bytes(400))
        cluster.run(1.0)
    assert 0 < cluster["a"]._early.bytes <= 1_000
    cluster.heal()
    cluster.run_until_views("ab")
    cluster.run(100.0)
    assert cluster.delivered("a") == [bytes(400)] * 20


def test_a_closed_view_answers_a_slower_survivor() -> None:
    cluster = settled("abc")
    cluster.drop(lambda source, target, frame: target == "a" and not isinstance(frame, Envelope))
    cluster.multicast("c", b"only b has it")
    cluster.run(0.5)
    cluster.crash("c")
    cluster.run_until(lambda: names(cluster["b"].view.members) == "ab")
    cluster.run(50.0)
    assert cluster["a"].stage is Stage.FAULTS  # b's FA tells it that something is missing, and nothing else does
    cluster.heal()
    cluster.run_until_views("ab", within_ms=500.0)
    assert cluster.history("a")[-2:] == cluster.history("b")[-2:] == [b"only b has it", "ab"]
    again = [frame for sent in cluster.sent for frame in sent.datagram.frames if isinstance(frame, Retransmission)]
    assert {frame.packet.view for frame in again} == {cluster.views["b"][-2].id}


def test_closed_views_are_forgotten_when_everybody_is_in_the_current_one() -> None:
    cluster = settled("abc")
    cluster.crash("c")
    cluster.run_until_views("ab")
    assert len(cluster["a"]._closed) == 1
    cluster.run(300.0)
    assert len(cluster["a"]._closed) == 0


def test_messages_flow_while_views_come_and_go() -> None:
    random = Random(5)
    cluster = settled("abcd")
    for components in ("ab|cd", "abcd", "a|bcd", "abcd"):
        cluster.partition(components)
        for number in range(200):
            cluster.multicast(random.choice("abcd"), b"%d" % number, random.choice((Service.AGREED, Service.SAFE)))
            cluster.run(random.choice((0.0, 5.0, 10.0)))
        cluster.run_until_views(*components.split("|"))
    cluster.run(500.0)
    last = cluster.views["a"][-1]
    for name in "bcd":
        assert since(cluster, name, last) == since(cluster, "a", last)
        assert len(cluster.delivered(name)) > 200


def since(cluster: Cluster, name: str, view: View) -> list[bytes]:
    """Returns the messages that this machine has delivered in a view."""
    messages = [message for effect in cluster.effects(Delivered, name) for message in effect.messages]
    return [message.payload for message in messages if message.view == view.id]


def test_a_lansis_of_the_view_before_still_counts_in_the_same_counters() -> None:
    cluster = settled("ab")
    cluster.multicast("a", b"x")
    cluster.run(10.0)
    cluster.crash("b")
    cluster.run_until_views("a")
    cluster.multicast("a", b"y")
    cluster.run(10.0)
    assert cluster["a"].counters["messages_delivered"] == 2
