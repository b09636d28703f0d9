"""The causal DAG: what enters it and when, what is missing, what is stable, and when it is full."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeAlias

import pytest

from tests.transport.harness import A, B, C, D, machine, packet
from transport.config import TransportConfig
from transport.dag import CausalDag, PacketStream
from transport.messages import Acks, Machine, Packet, Ranges


def dag_of(names: str, config: TransportConfig | None = None, **base: int) -> CausalDag:
    """Returns the DAG of the first of these machines, after these last units of an earlier view."""
    settings = config or TransportConfig()
    return CausalDag(machine(names[0]), map(machine, names), settings, dict(acks(**base)))


def acks(**through: int) -> Acks:
    return tuple((machine(name), sequence) for name, sequence in through.items())


def missing(stream: PacketStream, ranges_max: int) -> Ranges:
    return stream.missing(ranges_max, 0, stream.known_through)


# Insertion


def test_a_packet_enters_after_its_predecessor() -> None:
    dag = dag_of("ab")
    first, second, third = (packet("b", sequence) for sequence in (1, 2, 3))
    assert dag.store(third) == []
    assert dag.store(second) == []
    assert dag.streams[B].pending_bytes > 0
    assert dag.store(first) == [first, second, third]
    assert dag.streams[B].inserted_through == 3
    assert dag.streams[B].pending_bytes == 0


def test_a_packet_enters_after_everything_it_acknowledges() -> None:
    dag = dag_of("abc")
    cause, effect = packet("b", 1), packet("c", 1, acks={"b": 1})
    assert dag.store(effect) == []
    assert dag.store(cause) == [cause, effect]


def test_what_unravels_enters_in_causal_order() -> None:
    dag = dag_of("abcd")
    b1, c1 = packet("b", 1), packet("c", 1, acks={"b": 1})
    d1, c2 = packet("d", 1, acks={"b": 1, "c": 1}), packet("c", 2, acks={"d": 1})
    for early in (c2, d1, c1):
        assert dag.store(early) == []
    assert dag.store(b1) == [b1, c1, d1, c2]


def test_a_run_enters_as_one() -> None:
    dag = dag_of("ab")
    run, after = packet("b", 1, payloads=[b"x"] * 5), packet("b", 6)
    dag.store(after)
    assert dag.store(run) == [run, after]
    assert dag.streams[B].inserted_through == 6
    assert dag.buffered_messages == 6


def test_our_own_packets_enter_whatever_is_missing_elsewhere() -> None:
    dag = dag_of("ab")
    dag.store(packet("b", 2))
    ours = packet("a", 1)
    assert dag.store(ours) == [ours]


def test_duplicates_are_recognised_inserted_or_pending() -> None:
    dag = dag_of("ab")
    inserted, pending, unseen = packet("b", 1), packet("b", 3), packet("b", 2)
    dag.store(inserted)
    dag.store(pending)
    stream = dag.streams[B]
    assert stream.has(inserted)
    assert stream.has(pending)
    assert not stream.has(unseen)


def history(random: Random, names: str, length: int) -> list[Packet]:
    """Returns a causally consistent past: every machine sends now and then, having seen some of what was sent."""
    sent = dict.fromkeys(names, 0)
    seen = {name: dict.fromkeys(names, 0) for name in names}
    packets = []
    for _ in range(length):
        name, teacher = random.choice(names), random.choice(names)
        for other in names:
            seen[name][other] = max(seen[name][other], seen[teacher][other])
        known = {other: through for other, through in seen[name].items() if other != name and through}
        packets.append(packet(name, sent[name] + 1, acks=known, payloads=[b"x"] * random.randint(1, 3)))
        sent[name] = seen[name][name] = packets[-1].last_sequence
    return packets


@pytest.mark.parametrize("seed", range(20))
def test_in_whatever_order_packets_arrive_they_enter_in_causal_order(seed: int) -> None:
    random = Random(seed)
    sent = history(random, "bcd", 80)
    arriving = random.sample(sent, len(sent))
    dag = dag_of("abcd")
    entered = [inserted for arrived in arriving for inserted in dag.store(arrived)]
    through = dict.fromkeys((B, C, D), 0)
    for inserted in entered:
        assert inserted.sequence == through[inserted.sender] + 1
        assert all(through[acknowledged] >= sequence for acknowledged, sequence in inserted.acks)
        through[inserted.sender] = inserted.last_sequence
    assert len(entered) == len(sent)
    assert not dag.has_gaps()


# What is missing


def test_nothing_is_missing_of_an_unknown_future() -> None:
    dag = dag_of("ab")
    dag.store(packet("b", 1))
    assert not dag.has_gaps()
    assert dag.streams[B].first_missing() is None
    assert missing(dag.streams[B], 8) == ()


def test_holes_between_packets_are_missing() -> None:
    dag = dag_of("ab")
    for arrived in (packet("b", 3), packet("b", 6, payloads=[b"x"] * 2), packet("b", 9)):
        dag.store(arrived)
    assert dag.incomplete() == [dag.streams[B]]
    assert dag.streams[B].first_missing() == 1
    assert missing(dag.streams[B], 8) == ((1, 2), (4, 5), (8, 8))


def test_a_loss_is_known_from_an_acknowledgement_and_from_a_promise() -> None:
    dag = dag_of("abc")
    dag.acknowledge(C, acks(b=4))
    dag.promise(C, 2, 10)
    assert missing(dag.streams[B], 8) == ((1, 4),)
    assert missing(dag.streams[C], 8) == ((1, 2),)


def test_missing_ranges_are_bounded_lowest_first() -> None:
    dag = dag_of("ab")
    for sequence in range(2, 200, 2):
        dag.store(packet("b", sequence))
    assert missing(dag.streams[B], 3) == ((1, 1), (3, 3), (5, 5))
    assert len(missing(dag.streams[B], 64)) == 64


def test_a_part_of_what_is_missing_can_be_asked_about() -> None:
    dag = dag_of("ab")
    for sequence in (3, 6, 9, 12, 15):
        dag.store(packet("b", sequence))
    stream = dag.streams[B]
    assert stream.missing(8, 4, 10) == ((5, 5), (7, 8), (10, 10))
    assert stream.missing(8, 0, 1) == ((1, 1),)
    assert stream.missing(8, 14, 15) == ()
    assert stream.missing(2, 4, 15) == ((5, 5), (7, 8))


def test_what_waits_only_for_another_stream_is_not_missing() -> None:
    dag = dag_of("abc")
    dag.store(packet("c", 1, acks={"b": 1}))
    assert dag.streams[C].first_missing() is None
    assert dag.streams[B].first_missing() == 1
    dag.store(packet("c", 3))
    assert dag.streams[C].first_missing() == 2


def test_a_gap_that_is_filled_is_forgotten() -> None:
    dag = dag_of("ab")
    dag.store(packet("b", 2))
    assert dag.has_gaps()
    dag.store(packet("b", 1))
    assert not dag.has_gaps()
    assert dag.incomplete() == []


# Stability


def test_a_packet_is_stable_when_everyone_has_acknowledged_it() -> None:
    dag = dag_of("abc")
    ours = packet("a", 1)
    dag.store(ours)
    dag.acknowledge(B, acks(a=1))
    assert dag.take_stable() == []
    dag.acknowledge(C, acks(a=1))
    assert dag.take_stable() == [ours]
    assert dag.own.stable_through == 1
    assert dag.take_stable() == []


def test_neither_the_sender_nor_we_need_to_acknowledge_what_we_both_have() -> None:
    dag = dag_of("abc")
    theirs = packet("b", 1)
    dag.store(theirs)
    assert dag.take_stable() == []
    dag.acknowledge(C, acks(b=1))
    assert dag.take_stable() == [theirs]


def test_acknowledgements_count_however_they_are_learned() -> None:
    dag = dag_of("abc")
    ours = packet("a", 1)
    dag.store(ours)
    dag.acknowledge(B, acks(a=1))
    dag.store(packet("c", 1, acks={"a": 1}))
    assert ours in dag.take_stable()


def test_an_acknowledgement_that_comes_late_takes_nothing_back() -> None:
    dag = dag_of("ab")
    for sequence in (1, 2, 3):
        dag.store(packet("a", sequence))
    dag.acknowledge(B, acks(a=3))
    dag.acknowledge(B, acks(a=1))
    assert len(dag.take_stable()) == 3
    assert dag.own.stable_through == 3


def test_the_buffers_shrink_with_what_is_stable() -> None:
    config = TransportConfig(packet_overhead_bytes=100)
    dag = dag_of("ab", config)
    dag.store(packet("a", 1, payloads=[b"12345", b"12345"]))
    dag.store(packet("b", 1, payloads=[b"123"]))
    assert (dag.buffered_messages, dag.buffered_bytes) == (3, 213)
    assert (dag.own.buffered_messages, dag.own.buffered_bytes) == (2, 110)
    dag.acknowledge(B, acks(a=2))
    dag.take_stable()
    assert (dag.buffered_messages, dag.buffered_bytes) == (0, 0)
    assert (dag.own.buffered_messages, dag.own.buffered_bytes) == (0, 0)
    assert not dag.own.buffer


def test_a_run_of_which_only_a_part_is_acknowledged_stays_as_a_whole() -> None:
    dag = dag_of("ab")
    dag.store(packet("a", 1, payloads=[b"x"] * 5))
    dag.acknowledge(B, acks(a=3))
    assert dag.take_stable() == []
    assert dag.own.stable_through == 3
    assert dag.buffered_messages == 5


def test_holders_can_send_again_what_is_buffered_or_pending_but_not_what_is_stable() -> None:
    dag = dag_of("ab")
    first, run, pending = packet("b", 1), packet("b", 2, payloads=[b"x"] * 4), packet("b", 8)
    dag.store(first)
    dag.take_stable()
    dag.store(run)
    dag.store(pending)
    assert dag.streams[B].held(((1, 9),)) == [run, pending]
    assert dag.streams[B].held(((4, 4),)) == [run]
    assert dag.streams[B].held(((6, 7),)) == []
    assert dag.streams[B].held(((1, 1), (3, 3), (5, 5), (7, 20))) == [run, pending]
    assert dag.streams[B].held(()) == []


def test_laggards_are_those_who_keep_something_from_being_stable() -> None:
    dag = dag_of("abc")
    assert dag.laggards(dag.streams) == []
    dag.store(packet("a", 1, payloads=[b"x"] * 2))
    assert dag.laggards(dag.streams) == [B, C]
    assert dag.laggards([B]) == []
    dag.acknowledge(B, acks(a=2))
    dag.acknowledge(C, acks(a=1))
    assert dag.laggards(dag.streams) == [C]
    assert dag.oldest_unstable() == {A: 1}


# Full buffers


def test_full_buffers_keep_others_out_and_open_again_when_something_is_stable() -> None:
    dag = dag_of("abc", TransportConfig(window_messages_max=3, buffer_windows_max=2))
    for sequence in range(1, 7):
        assert dag.store(packet("b", sequence))
    assert dag.is_full()
    seventh = packet("b", 7)
    assert dag.store(seventh) == []
    assert dag.streams[B].first_missing() is None  # it is here: no member needs to send it again
    dag.acknowledge(C, acks(b=1))
    dag.take_stable()
    assert dag.insert_pending() == [seventh]
    assert dag.is_full()


def test_full_buffers_do_not_keep_our_own_packets_out() -> None:
    dag = dag_of("abc", TransportConfig(window_messages_max=3, buffer_windows_max=2))
    dag.store(packet("b", 1, payloads=[b"x"] * 6))
    ours = packet("a", 1)
    assert dag.is_full()
    assert dag.store(ours) == [ours]


def test_buffers_are_full_by_bytes_with_what_each_packet_costs() -> None:
    config = TransportConfig(
        datagram_bytes_max=256, window_bytes_max=4_000, buffer_windows_max=2, packet_overhead_bytes=1_000
    )
    dag = dag_of("abc", config)
    for sequence in range(1, 8):
        dag.store(packet("b", sequence))
    assert not dag.is_full()
    dag.store(packet("b", 8))
    assert dag.is_full()


def test_in_a_small_window_there_is_room_for_what_every_member_may_send() -> None:
    config = TransportConfig(window_messages_max=1, window_bytes_max=3_000, buffer_windows_max=1)
    dag = dag_of("abcd", config)
    for sender in "bcd":
        assert dag.store(packet(sender, 1, payloads=[bytes(1_300)]))


# What continues what is here


def pending_between(dag: CausalDag) -> PacketStream:
    """Puts b's unit 1 into the DAG, and 5 to 7 as pending; returns b's stream."""
    dag.store(packet("b", 1, clock=10))
    dag.store(packet("b", 5, clock=20, payloads=[b"x"] * 3))
    return dag.streams[B]


@pytest.mark.parametrize(
    ("sequence", "clock", "units"), [(2, 11, 1), (2, 11, 3), (4, 19, 1), (8, 23, 1), (9, 99, 5)]
)
def test_a_packet_that_continues_what_is_here_fits(sequence: int, clock: int, units: int) -> None:
    stream = pending_between(dag_of("ab"))
    assert stream.fits_between(packet("b", sequence, clock=clock, payloads=[b"x"] * units))


@pytest.mark.parametrize(
    ("sequence", "clock", "units"),
    [(1, 11, 2), (2, 10, 1), (2, 11, 4), (4, 20, 1), (3, 18, 3), (6, 30, 9), (7, 30, 1), (8, 22, 1)],
)
def test_a_unit_twice_or_a_clock_out_of_order_does_not_fit(sequence: int, clock: int, units: int) -> None:
    stream = pending_between(dag_of("ab"))
    assert not stream.fits_between(packet("b", sequence, clock=clock, payloads=[b"x"] * units))


# Clocks


def test_a_promise_counts_at_once_when_nothing_before_it_is_missing() -> None:
    dag = dag_of("ab")
    dag.store(packet("b", 1, clock=5))
    assert dag.streams[B].heard_clock == 5
    dag.promise(B, 1, 9)
    assert dag.streams[B].heard_clock == 9
    dag.promise(B, 1, 7)
    assert dag.streams[B].heard_clock == 9


def test_a_promise_waits_for_what_was_sent_before_it() -> None:
    dag = dag_of("ab")
    dag.promise(B, 2, 9)
    assert dag.streams[B].heard_clock == 0
    dag.store(packet("b", 1, clock=5))
    assert dag.streams[B].heard_clock == 5
    dag.store(packet("b", 2, clock=6))
    assert dag.streams[B].heard_clock == 9


def test_the_last_clock_of_a_run_is_heard() -> None:
    dag = dag_of("ab")
    dag.store(packet("b", 1, clock=5, payloads=[b"x"] * 3))
    assert dag.streams[B].heard_clock == 7


def test_streams_heard_further_are_told_once() -> None:
    dag = dag_of("abc")
    dag.store(packet("b", 1))
    dag.promise(C, 0, 4)
    assert dag.take_heard() == [dag.streams[B], dag.streams[C]]
    assert dag.take_heard() == []
    dag.promise(C, 0, 4)
    assert dag.take_heard() == []


# Streams that began in an earlier view


def test_a_stream_goes_on_after_its_base() -> None:
    dag = dag_of("abc", a=4, b=7)
    assert dag.inserted() == acks(a=4, b=7, c=0)
    assert not dag.has_gaps()
    ours, eighth, first = packet("a", 5), packet("b", 8), packet("c", 1, acks={"a": 4, "b": 7})
    for following in (ours, eighth, first):
        assert dag.store(following) == [following]
    assert dag.inserted() == acks(a=5, b=8, c=1)


def test_of_a_stream_with_a_base_only_what_follows_it_can_be_missing() -> None:
    dag = dag_of("abc", b=7)
    dag.acknowledge(C, acks(b=7))
    dag.promise(B, 7, 30)
    assert not dag.has_gaps()
    assert dag.store(packet("b", 10)) == []
    assert missing(dag.streams[B], 8) == ((8, 9),)


def test_what_came_before_the_base_is_a_duplicate() -> None:
    stream = dag_of("ab", b=7).streams[B]
    assert stream.has(packet("b", 7))
    assert not stream.has(packet("b", 8))


def test_after_a_base_a_packet_is_stable_when_everyone_has_acknowledged_it() -> None:
    dag = dag_of("abc", a=4, b=7)
    ours = packet("a", 5)
    dag.store(ours)
    dag.acknowledge(B, acks(a=5))
    dag.acknowledge(C, acks(a=4))
    assert dag.take_stable() == []
    dag.acknowledge(C, acks(a=5))
    assert dag.take_stable() == [ours]


# The end of the view


def test_only_what_is_in_the_dag_is_had() -> None:
    dag = dag_of("abc")
    dag.store(packet("b", 1))
    dag.store(packet("c", 1, acks={"b": 2}))
    assert dag.has(())
    assert dag.has(acks(a=0, b=1))
    assert not dag.has(acks(b=2))
    assert not dag.has(acks(b=1, c=1))  # it is here, and what it follows is not
    assert dag.inserted() == acks(a=0, b=1, c=0)


def test_what_only_a_suspect_has_does_not_enter_and_is_not_missing() -> None:
    dag = dag_of("abc")
    first = packet("c", 1)
    dag.store(first)
    dag.suspect([C])
    assert dag.store(packet("c", 2)) == []
    assert dag.store(packet("c", 4)) == []
    assert dag.insert_pending() == []
    assert dag.inserted() == acks(a=0, b=0, c=1)
    assert not dag.has_gaps()


def test_what_was_pending_of_a_suspect_stays_out_too() -> None:
    dag = dag_of("abc")
    first, second = packet("c", 1), packet("c", 2)
    dag.store(second)
    dag.suspect([C])
    assert dag.store(first) == []
    assert dag.inserted() == acks(a=0, b=0, c=0)
    dag.require(acks(c=1))
    assert dag.insert_pending() == [first]


def test_what_was_required_because_of_a_foreign_machine_is_not_any_more_when_that_is_suspected() -> None:
    dag = dag_of("abc")
    dag.suspect([C])
    dag.require(acks(c=1))
    assert missing(dag.streams[C], 8) == ((1, 1),)
    dag.suspect([D])  # a machine that is not in the view
    assert missing(dag.streams[C], 8) == ()
    assert dag.store(packet("c", 1)) == []
    assert dag.inserted() == acks(a=0, b=0, c=0)


def test_to_suspect_foreign_machines_alone_ends_no_view() -> None:
    dag = dag_of("abc")
    dag.suspect([D])
    assert not dag.is_ending
    assert dag.store(packet("c", 1)) == [packet("c", 1)]


Mention: TypeAlias = Callable[[CausalDag, Machine], object]
MENTIONS: dict[str, Mention] = {
    "a packet": lambda dag, namer: dag.store(packet(namer.name, 1, acks={"c": 1})),
    "a packet that itself waits": lambda dag, namer: dag.store(packet(namer.name, 2, acks={"c": 1})),
    "a status": lambda dag, namer: dag.acknowledge(namer, acks(c=1)),
}
"""The ways in which a machine can say that it has c's first unit in its DAG."""


@pytest.mark.parametrize("is_named_before", [True, False])
@pytest.mark.parametrize("mention", MENTIONS)
def test_what_another_has_of_a_suspect_enters_and_no_more(mention: str, is_named_before: bool) -> None:
    dag = dag_of("abc")
    if is_named_before:
        MENTIONS[mention](dag, B)
    dag.suspect([C])
    if not is_named_before:
        MENTIONS[mention](dag, B)
    assert missing(dag.streams[C], 8) == ((1, 1),)
    assert dag.incomplete()[-1] is dag.streams[C]
    assert packet("c", 1) in dag.store(packet("c", 1))
    assert dag.store(packet("c", 2)) == []
    assert missing(dag.streams[C], 8) == ()


@pytest.mark.parametrize("mention", MENTIONS)
def test_what_is_here_of_a_suspect_enters_when_another_is_found_to_have_it(mention: str) -> None:
    dag = dag_of("abc")
    dag.suspect([C])
    dag.store(packet("c", 1))
    MENTIONS[mention](dag, B)
    dag.insert_pending()
    assert dag.has(acks(c=1))


@pytest.mark.parametrize("is_named_before", [True, False])
@pytest.mark.parametrize("mention", MENTIONS)
def test_what_only_suspects_have_does_not_enter(mention: str, is_named_before: bool) -> None:
    dag = dag_of("abcd")
    if is_named_before:
        MENTIONS[mention](dag, D)
    dag.suspect([C, D])
    if not is_named_before:
        MENTIONS[mention](dag, D)
    assert not dag.has_gaps()
    assert dag.store(packet("c", 1)) == []


def test_what_is_required_enters_and_is_asked_for() -> None:
    dag = dag_of("abc")
    dag.suspect([C])
    dag.store(packet("c", 2))
    dag.require(acks(b=1, c=3))
    assert missing(dag.streams[B], 8) == ((1, 1),)
    assert missing(dag.streams[C], 8) == ((1, 1), (3, 3))
    assert dag.store(packet("c", 1)) == [packet("c", 1), packet("c", 2)]
    assert dag.store(packet("c", 3)) == [packet("c", 3)]
    assert dag.incomplete() == [dag.streams[B]]
    assert dag.store(packet("c", 4)) == []


def test_who_has_a_suspects_packet_has_what_that_follows() -> None:
    dag = dag_of("abcd")
    dag.suspect([C, D])
    d1, c1 = packet("d", 1), packet("c", 1, acks={"d": 1})
    assert dag.store(d1) == []
    assert dag.store(c1) == []
    earlier, later = packet("b", 1, acks={"d": 1}), packet("b", 2, acks={"c": 1})
    assert dag.store(later) == []
    assert dag.store(earlier) == [d1, c1, earlier, later]


def test_a_run_of_a_suspect_enters_as_a_whole_or_not_at_all() -> None:
    dag = dag_of("abc")
    dag.suspect([C])
    run = packet("c", 1, payloads=[b"x"] * 3)
    dag.require(acks(c=2))
    assert dag.store(run) == []
    dag.require(acks(c=3))
    assert dag.insert_pending() == [run]


def test_nothing_of_a_suspect_is_asked_for_that_nobody_else_has() -> None:
    dag = dag_of("abcd")
    dag.promise(C, 9, 50)
    dag.acknowledge(B, acks(c=4))
    dag.acknowledge(D, acks(c=11))
    assert missing(dag.streams[C], 8) == ((1, 11),)
    dag.suspect([C, D])
    assert missing(dag.streams[C], 8) == ((1, 4),)
    dag.promise(C, 12, 60)
    dag.acknowledge(D, acks(c=13))
    dag.store(packet("d", 1, acks={"c": 14}))
    dag.store(packet("c", 8))
    assert missing(dag.streams[C], 8) == ((1, 4),)
    dag.require(acks(c=6))
    assert missing(dag.streams[C], 8) == ((1, 6),)


def test_what_was_missing_of_a_suspect_and_no_other_has_is_given_up() -> None:
    dag = dag_of("abc")
    dag.promise(C, 3, 50)
    assert dag.has_gaps()
    dag.suspect([C])
    assert not dag.has_gaps()


def test_of_those_who_are_not_suspected_everything_is_missing_and_enters_as_before() -> None:
    dag = dag_of("abc")
    dag.suspect([C])
    dag.promise(B, 2, 50)
    assert missing(dag.streams[B], 8) == ((1, 2),)
    assert dag.store(packet("b", 1)) == [packet("b", 1)]


def test_when_the_one_who_had_it_is_suspected_too_it_does_not_enter() -> None:
    dag = dag_of("abcd")
    dag.acknowledge(B, acks(c=1))
    dag.suspect([C])
    assert dag.has_gaps()
    dag.suspect([B])
    assert not dag.has_gaps()
    assert dag.store(packet("c", 1)) == []


def test_machines_of_other_views_may_be_suspected() -> None:
    dag = dag_of("ab")
    dag.suspect([C])
    assert dag.store(packet("b", 1)) == [packet("b", 1)]


def test_when_the_view_is_ending_the_buffers_are_never_full() -> None:
    dag = dag_of("abcd", TransportConfig(window_messages_max=4, buffer_windows_max=1))
    dag.store(packet("b", 1, payloads=[b"x"] * 4))
    fifth, sixth = packet("b", 5), packet("b", 6)
    assert dag.store(fifth) == []
    dag.suspect([D])
    assert dag.insert_pending() == [fifth]
    assert dag.store(sixth) == [sixth]


@pytest.mark.parametrize("seed", range(20))
def test_survivors_end_with_what_any_of_them_had(seed: int) -> None:
    random = Random(seed)
    sent = history(random, "abcd", 80)
    late = packet("d", max(packed.last_sequence for packed in sent if packed.sender == D) + 1)
    dags = {name: dag_of(name + "abcd".replace(name, "")) for name in "abc"}
    for name, dag in dags.items():
        last = [packed for packed in sent if packed.sender == machine(name)][-1]
        past = {**dict(last.acks), last.sender: last.sequence}
        for packed in sent:
            if packed.sequence <= past.get(packed.sender, 0) or random.random() < 0.3:
                dag.store(packed)
        dag.suspect([D])
    covers = [dag.inserted() for dag in dags.values()]
    union = {machine: max(dict(cover)[machine] for cover in covers) for machine in (A, B, C, D)}
    for dag in dags.values():
        for cover in covers:
            dag.require(cover)
        dag.insert_pending()
        for packed in random.sample([*sent, late], len(sent) + 1):
            if not dag.streams[packed.sender].has(packed):
                dag.store(packed)
        assert dict(dag.inserted()) == union
        assert not dag.has_gaps()
