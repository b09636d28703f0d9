"""The machine on a network that loses exactly what the test says: requests, retransmissions, solicitations."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from tests.transport.harness import (
    AGREED,
    CAUSAL,
    A,
    B,
    C,
    Harness,
    is_packet,
)
from transport.effects import (
    Journal,
    Reason,
    TransportEvent,
)
from transport.messages import (
    Nack,
    Packet,
    Status,
)


def test_a_loss_is_recognised_from_the_chain_of_acknowledgements() -> None:
    """The example of section 3.1: of A1, A2, a2B1, B2, B3, b3C1 a receiver misses B3, which C1 shows it."""
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
    asked = [journal for journal in cluster.effects_of(Journal, "b") if journal.event is TransportEvent.NACKED]
    assert [journal.reason for journal in asked[:2]] == [Reason.NEW, Reason.RETRY]
    assert asked[0].details == {"ranges": [[1, 1]]}
    answered = [
        journal for journal in cluster.effects_of(Journal, "a") if journal.event is TransportEvent.RETRANSMITTED
    ]
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
