"""The machine at the end of its view: holding, closing, and the machine of the next view."""

from __future__ import annotations

from random import Random

import pytest

from tests.transport.harness import (
    AGREED,
    CAUSAL,
    FOREIGN,
    LATER,
    SAFE,
    SMALL_WINDOW,
    VIEW,
    A,
    B,
    C,
    D,
    DropRule,
    Harness,
    is_packet,
    machine,
    machine_in,
    packet_in,
    status,
)
from transport.config import TransportConfig
from transport.effects import (
    Backpressure,
    Broadcast,
    TransportEffect,
    WindowStuck,
)
from transport.lansis import Lansis, ViewOver
from transport.messages import (
    ORDERED,
    Datagram,
    Message,
    Nack,
    Packet,
    Retransmission,
    Service,
    Status,
    View,
    ViewId,
)


def apart(*sides: str) -> DropRule:
    """Drops everything but what machines of the same side send each other."""
    return lambda source, target, frame: not any(source in side and target in side for side in sides)


def end_view(cluster: Harness, survivors: str) -> None:
    """Does as membership does: survivors exchange what they have, and close the view when all have all of it."""
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
    """Puts each into a new view with the others, going on from its last. Returns the closed machines."""
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


def with_full_buffers() -> Harness:
    """`b` does not hear `c`, cannot tell what is stable, and has no room left for all that `a` sends."""
    config = TransportConfig(window_messages_max=9, buffer_windows_max=2, packet_units_max=1)
    cluster = Harness("abc", config)
    cluster.drop(lambda source, target, frame: source == "c" and target == "b")
    for _ in range(60):
        cluster.multicast("a", CAUSAL, b"x")
    cluster.run(500.0)
    assert cluster["b"].pending_bytes() > 0
    return cluster


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
    cluster = with_full_buffers()
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


def test_holding_takes_in_what_full_buffers_kept_out() -> None:
    cluster = with_full_buffers()
    cluster["b"].hold()
    cluster.run(500.0)
    assert cluster["b"].pending_bytes() == 0


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


def test_backpressure_ends_though_everything_queued_was_refused() -> None:
    cluster = Harness("ab", TransportConfig(queue_messages_max=4))
    for _ in range(4):
        cluster.execute("a", cluster["a"].multicast(AGREED, b"x", view=VIEW))
    end_view(cluster, "a")
    enter_view(cluster, "a")
    assert len(cluster["a"].refused) == 4
    cluster.run(1_000.0)
    assert cluster.effects_of(Backpressure, "a") == [Backpressure(full=True), Backpressure(full=False)]


# A closed view


def closed_by_the_faster(cluster: Harness) -> Lansis:
    """`c` is dead; its only message has reached `a`, which has closed the view; `b` has no message of either."""
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


def broadcasts(effects: list[TransportEffect]) -> list[Datagram]:
    return [effect.datagram for effect in effects if isinstance(effect, Broadcast)]


def test_a_closed_machine_answers_at_once_for_itself_and_for_others_in_due_time() -> None:
    cluster = Harness("abc")
    closed = closed_by_the_faster(cluster)
    assert closed.answers_deadline() == float("inf")
    closed.answer(Nack(C, ((1, 1),), is_repeated=False), cluster.now)
    closed.answer(Nack(FOREIGN, ((1, 1),), is_repeated=True), cluster.now)
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
