"""The four services: when each delivers, and what holds it up. The machine that delivers is always `a`."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from tests.transport.harness import AGREED, BASIC, CAUSAL, SAFE, B, C, machine, packet
from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.delivery import Delivery, Reassembly
from transport.messages import Fragment, Message, Packet, Service
from transport.ordering import LamportOrder


class Receiver:
    """A DAG and its deliveries, fed by hand; every call returns the payloads it delivers."""

    def __init__(self, config: TransportConfig | None = None) -> None:
        settings = config or TransportConfig()
        self.dag = CausalDag(machine("a"), map(machine, "abc"), settings)
        self.delivery = Delivery(self.dag, LamportOrder(self.dag.streams), settings)
        self.open: list[bytes] = []
        """The ordered messages that were announced before their place was known."""

    def arrive(self, *packets: Packet) -> list[bytes]:
        delivered: list[Message] = []
        for arrived in packets:
            delivered += self.delivery.arrived(arrived)
            for inserted in self.dag.store(arrived):
                now, later = self.delivery.inserted(inserted)
                delivered += now
                self.open += payloads(later)
        return payloads(delivered)

    def hear(self, clock: int, *names: str, **acks: int) -> list[bytes]:
        """These machines (all, unless named) promise a clock above this one and acknowledge this much."""
        for stream in self.dag.streams.values():
            if not names or stream.machine.name in names:
                self.dag.promise(stream.machine, stream.inserted_through, clock)
                self.dag.acknowledge(stream.machine, tuple((machine(name), acks[name]) for name in acks))
        self.dag.take_stable()
        return payloads(self.delivery.settle())

    def close(self) -> list[bytes]:
        return payloads(self.delivery.close())


def payloads(messages: Iterable[Message]) -> list[bytes]:
    return [message.payload for message in messages]


def fragments(sender: str, first: int, service: Service, *parts: bytes) -> list[Packet]:
    return [
        packet(
            sender, first + part, service=service, payloads=[data], fragment=Fragment(part, part == len(parts) - 1)
        )
        for part, data in enumerate(parts)
    ]


# Basic


def test_basic_is_delivered_on_arrival_and_only_then() -> None:
    receiver = Receiver()
    assert receiver.arrive(packet("b", 2, service=BASIC, payloads=[b"late"])) == [b"late"]
    assert receiver.arrive(packet("b", 1, service=BASIC, payloads=[b"early"])) == [b"early"]
    assert receiver.hear(9, b=2) == []


def test_a_run_of_basic_messages_is_delivered_in_its_order() -> None:
    receiver = Receiver()
    assert receiver.arrive(packet("b", 5, service=BASIC, payloads=[b"1", b"2", b"3"])) == [b"1", b"2", b"3"]


def test_a_fragmented_basic_message_waits_until_its_fragments_are_in_the_dag() -> None:
    receiver = Receiver()
    one, two, three = fragments("b", 1, BASIC, b"in", b" par", b"ts")
    assert receiver.arrive(three, two) == []
    assert receiver.arrive(one) == [b"in parts"]


# Causal


def test_causal_waits_for_what_it_follows() -> None:
    receiver = Receiver()
    cause = packet("b", 1, service=CAUSAL, payloads=[b"cause"])
    effect = packet("c", 1, service=CAUSAL, payloads=[b"effect"], acks={"b": 1})
    assert receiver.arrive(effect) == []
    assert receiver.arrive(cause) == [b"cause", b"effect"]


def test_causal_does_not_wait_for_anyone_to_be_heard() -> None:
    receiver = Receiver()
    assert receiver.arrive(packet("b", 1, service=CAUSAL, payloads=[b"x"])) == [b"x"]


def test_causal_is_held_behind_an_agreed_cause_that_is_not_delivered() -> None:
    receiver = Receiver()
    cause = packet("b", 1, service=AGREED, payloads=[b"cause"], clock=5)
    effect = packet("c", 1, service=CAUSAL, payloads=[b"effect"], clock=6, acks={"b": 1})
    assert receiver.arrive(cause, effect) == []
    assert receiver.hear(4, "a") == []
    assert receiver.hear(5) == [b"cause", b"effect"]


def test_causal_is_held_behind_its_own_senders_agreed_message() -> None:
    receiver = Receiver()
    receiver.arrive(packet("b", 1, payloads=[b"agreed"], clock=5))
    assert receiver.arrive(packet("b", 2, service=CAUSAL, payloads=[b"causal"], clock=6)) == []
    assert receiver.hear(5) == [b"agreed", b"causal"]


def test_the_causal_past_reaches_back_through_earlier_packets() -> None:
    receiver = Receiver()
    receiver.arrive(packet("b", 1, payloads=[b"cause"], clock=5))
    receiver.arrive(packet("c", 1, service=BASIC, payloads=[b"hears of it"], clock=6, acks={"b": 1}))
    assert receiver.arrive(packet("c", 2, service=CAUSAL, payloads=[b"effect"], clock=7)) == []
    assert receiver.hear(5) == [b"cause", b"effect"]


def test_causal_that_does_not_follow_an_undelivered_message_is_not_held() -> None:
    receiver = Receiver()
    receiver.arrive(packet("b", 1, payloads=[b"agreed"], clock=5))
    assert receiver.arrive(packet("c", 1, service=CAUSAL, payloads=[b"unrelated"])) == [b"unrelated"]
    receiver.arrive(packet("b", 2, payloads=[b"later"], clock=6))
    assert receiver.arrive(packet("c", 2, service=CAUSAL, payloads=[b"follows"], acks={"b": 1})) == []
    assert receiver.hear(5) == [b"agreed", b"follows"]


def test_held_causal_messages_come_between_the_ordered_ones_they_separate() -> None:
    receiver = Receiver()
    receiver.arrive(packet("b", 1, payloads=[b"first"], clock=1))
    receiver.arrive(packet("c", 1, service=CAUSAL, payloads=[b"between"], clock=2, acks={"b": 1}))
    receiver.arrive(packet("c", 2, service=CAUSAL, payloads=[b"and"], clock=3))
    receiver.arrive(packet("b", 2, payloads=[b"second"], clock=4, acks={"c": 2}))
    assert receiver.hear(9) == [b"first", b"between", b"and", b"second"]


def test_causal_messages_held_by_several_come_out_in_causal_order() -> None:
    receiver = Receiver()
    receiver.arrive(packet("b", 1, payloads=[b"first"], clock=1), packet("a", 1, payloads=[b"second"], clock=2))
    earlier = packet("c", 1, service=CAUSAL, payloads=[b"earlier"], clock=5, acks={"b": 1})
    later = packet("b", 2, service=CAUSAL, payloads=[b"later"], clock=6, acks={"a": 1, "c": 1})
    last = packet("c", 2, service=CAUSAL, payloads=[b"last"], clock=7, acks={"a": 1, "b": 2})
    assert receiver.arrive(earlier, later, last) == []
    assert receiver.hear(9) == [b"first", b"earlier", b"second", b"later", b"last"]


# Agreed


def test_agreed_is_announced_at_once_and_delivered_when_everyone_has_been_heard() -> None:
    receiver = Receiver()
    assert receiver.arrive(packet("b", 1, payloads=[b"x"], clock=5)) == []
    assert receiver.open == [b"x"]
    assert receiver.delivery.undelivered_count == 1
    assert receiver.hear(5, "a") == []
    assert receiver.delivery.awaited() == [C]
    assert receiver.hear(5, "c") == [b"x"]
    assert receiver.delivery.undelivered_count == 0


def test_agreed_is_delivered_in_timestamp_order_not_in_order_of_arrival() -> None:
    receiver = Receiver()
    receiver.arrive(packet("c", 1, payloads=[b"c"], clock=2), packet("b", 1, payloads=[b"b"], clock=2))
    receiver.arrive(packet("a", 1, payloads=[b"a"], clock=3), packet("c", 2, payloads=[b"c again"], clock=8))
    assert receiver.hear(7) == [b"b", b"c", b"a"]
    assert receiver.hear(8) == [b"c again"]


def test_our_own_agreed_message_waits_for_the_others_too() -> None:
    receiver = Receiver()
    assert receiver.arrive(packet("a", 1, payloads=[b"ours"], clock=4)) == []
    assert receiver.hear(4, "a", "b") == []
    assert receiver.hear(4, "c") == [b"ours"]


# Safe


def test_safe_waits_until_everyone_has_acknowledged_it() -> None:
    receiver = Receiver()
    receiver.arrive(packet("b", 1, service=SAFE, payloads=[b"x"], clock=5))
    assert receiver.hear(9) == []
    assert receiver.delivery.awaited() == [C]
    assert receiver.hear(9, "c", b=1) == [b"x"]


def test_our_own_safe_message_waits_for_every_other() -> None:
    receiver = Receiver()
    receiver.arrive(packet("a", 1, service=SAFE, payloads=[b"x"], clock=5))
    assert receiver.hear(9) == []
    assert receiver.delivery.awaited() == [B, C]
    assert receiver.hear(9, "b", a=1) == []
    assert receiver.hear(9, "c", a=1) == [b"x"]


def test_a_safe_message_holds_up_the_agreed_ones_behind_it() -> None:
    receiver = Receiver()
    receiver.arrive(packet("c", 1, payloads=[b"before"], clock=4))
    receiver.arrive(packet("b", 1, service=SAFE, payloads=[b"safe"], clock=5))
    receiver.arrive(packet("c", 2, payloads=[b"behind"], clock=6))
    assert receiver.hear(9) == [b"before"]
    assert receiver.delivery.undelivered_count == 2
    assert receiver.hear(9, "c", b=1) == [b"safe", b"behind"]


def test_a_causal_message_is_held_behind_a_safe_cause() -> None:
    receiver = Receiver()
    receiver.arrive(packet("b", 1, service=SAFE, payloads=[b"safe"], clock=5))
    assert receiver.arrive(packet("c", 1, service=CAUSAL, payloads=[b"effect"], clock=6, acks={"b": 1})) == []
    assert receiver.hear(9) == [b"safe", b"effect"]  # the effect's packet is the acknowledgement


def test_each_message_of_a_safe_run_is_delivered_when_it_is_acknowledged() -> None:
    receiver = Receiver()
    receiver.arrive(packet("b", 1, service=SAFE, payloads=[b"1", b"2", b"3"], clock=5))
    assert receiver.hear(9, b=2) == [b"1", b"2"]
    assert receiver.hear(9, b=3) == [b"3"]


# Fragments


def test_a_megabyte_in_fragments_arrives_as_one_message() -> None:
    receiver = Receiver()
    whole = Random(1).randbytes(2**20)
    parts = [whole[at : at + 1_300] for at in range(0, len(whole), 1_300)]
    receiver.arrive(*fragments("b", 1, AGREED, *parts))
    assert receiver.open == [whole]
    assert receiver.hear(len(parts)) == [whole]


def test_a_fragmented_message_stands_where_its_last_fragment_stands() -> None:
    receiver = Receiver()
    receiver.arrive(*fragments("b", 1, AGREED, b"large", b" one"), packet("c", 1, payloads=[b"small"], clock=1))
    assert receiver.hear(9) == [b"small", b"large one"]
    assert receiver.dag.streams[B].inserted_through == 2


def test_a_fragmented_safe_message_waits_for_the_acknowledgement_of_its_last_fragment() -> None:
    receiver = Receiver()
    receiver.arrive(*fragments("b", 1, SAFE, b"all", b" of", b" it"))
    assert receiver.hear(9, b=2) == []
    assert receiver.hear(9, b=3) == [b"all of it"]


def test_fragments_of_several_senders_do_not_mix() -> None:
    receiver = Receiver()
    ours, theirs = fragments("b", 1, CAUSAL, b"b1", b"b2"), fragments("c", 1, CAUSAL, b"c1", b"c2")
    assert receiver.arrive(ours[0], theirs[0], theirs[1], ours[1]) == [b"c1c2", b"b1b2"]


def add(reassembly: Reassembly, *parts: Packet) -> list[bytes]:
    """Returns the payloads that these parts complete."""
    return payloads(message for part in parts if part.fragment for message in reassembly.add(part, part.fragment))


def test_a_series_without_its_beginning_is_dropped_and_the_next_is_not() -> None:
    reassembly = Reassembly(100)
    _, middle, last = fragments("b", 1, CAUSAL, b"1", b"2", b"3")
    assert add(reassembly, middle, last) == []
    assert add(reassembly, *fragments("b", 4, CAUSAL, b"x", b"y")) == [b"xy"]


def test_a_series_with_a_hole_is_dropped() -> None:
    first, _, last = fragments("b", 1, CAUSAL, b"1", b"2", b"3")
    assert add(Reassembly(100), first, last) == []


def test_a_series_that_begins_anew_replaces_the_one_it_interrupts() -> None:
    reassembly = Reassembly(100)
    interrupted, *_ = fragments("b", 1, CAUSAL, b"1", b"2", b"3")
    assert add(reassembly, interrupted, *fragments("b", 2, CAUSAL, b"x", b"y")) == [b"xy"]


def test_a_series_larger_than_any_message_is_dropped() -> None:
    reassembly = Reassembly(10)
    assert add(reassembly, *fragments("b", 1, CAUSAL, b"12345", b"67890", b"1")) == []
    assert add(reassembly, *fragments("b", 4, CAUSAL, b"12345", b"67890")) == [b"1234567890"]


# Too much to deliver


def test_undelivered_messages_are_counted_with_what_they_cost() -> None:
    receiver = Receiver(TransportConfig(packet_overhead_bytes=100))
    receiver.arrive(packet("b", 1, payloads=[b"12345", b"123"], clock=5))
    assert receiver.delivery.undelivered_bytes == 208
    receiver.hear(5)
    assert (receiver.delivery.undelivered_count, receiver.delivery.undelivered_bytes) == (1, 103)
    receiver.hear(6)
    assert (receiver.delivery.undelivered_count, receiver.delivery.undelivered_bytes) == (0, 0)


def test_the_first_undelivered_message_is_the_next_of_the_order() -> None:
    receiver = Receiver()
    assert receiver.delivery.first_undelivered() is None
    receiver.arrive(packet("b", 1, service=SAFE, clock=5), packet("b", 2, clock=9))
    for heard in (4, 9):  # before its place is known, and when it only waits to be safe
        receiver.hear(heard)
        first = receiver.delivery.first_undelivered()
        assert first is not None
        assert first.clock == 5


# The end of the view


def test_at_the_end_what_is_left_is_delivered_in_timestamp_order() -> None:
    receiver = Receiver(TransportConfig(packet_overhead_bytes=100))
    receiver.arrive(packet("c", 1, payloads=[b"second", b"third"], clock=6))
    receiver.arrive(packet("b", 1, payloads=[b"first"], clock=5), packet("b", 2, payloads=[b"fourth"], clock=8))
    assert receiver.hear(9, "b", "c") == []
    assert receiver.close() == [b"first", b"second", b"third", b"fourth"]
    assert (receiver.delivery.undelivered_count, receiver.delivery.undelivered_bytes) == (0, 0)
    assert receiver.delivery.delivered_count == 4
    assert receiver.delivery.first_undelivered() is None
    assert receiver.close() == []


def test_at_the_end_safe_messages_do_not_wait_to_be_acknowledged() -> None:
    receiver = Receiver()
    receiver.arrive(packet("b", 1, service=SAFE, payloads=[b"its place is known"], clock=5))
    receiver.arrive(packet("c", 1, payloads=[b"behind it"], clock=6))
    assert receiver.hear(6) == []
    receiver.arrive(packet("b", 2, service=SAFE, payloads=[b"it is not"], clock=8))
    receiver.arrive(packet("c", 2, payloads=[b"between"], clock=7))
    assert receiver.close() == [b"its place is known", b"behind it", b"between", b"it is not"]


def test_at_the_end_causal_messages_follow_the_ordered_ones_they_were_held_for() -> None:
    receiver = Receiver()
    receiver.arrive(packet("b", 1, service=SAFE, payloads=[b"cause"], clock=5))
    receiver.arrive(packet("c", 1, service=CAUSAL, payloads=[b"effect"], clock=6, acks={"b": 1}))
    receiver.arrive(packet("c", 2, payloads=[b"ordered"], clock=7))
    assert receiver.arrive(packet("b", 2, service=CAUSAL, payloads=[b"last"], clock=8, acks={"c": 2})) == []
    assert receiver.close() == [b"cause", b"effect", b"ordered", b"last"]


def test_at_the_end_a_message_without_all_its_fragments_is_not_delivered() -> None:
    receiver = Receiver()
    receiver.arrive(*fragments("b", 1, AGREED, b"in", b" par", b"ts")[:2], packet("c", 1, payloads=[b"whole"]))
    assert receiver.close() == [b"whole"]
