"""The agreed criterion: timestamp order, released as far as every member has been heard."""

from __future__ import annotations

from random import Random

import pytest

from tests.transport.harness import VIEW, A, B, C, machine, packet
from transport.messages import Machine, Message, Service
from transport.ordering import LamportOrder


def message(sender: Machine, clock: int) -> Message:
    return Message(clock, sender, clock, Service.AGREED, VIEW, b"")


def insert(order: LamportOrder, *messages: Message) -> None:
    for inserted in messages:
        order.insert(packet(inserted.sender.name, inserted.sequence), [inserted])


def hear(order: LamportOrder, **clocks: int) -> None:
    for name, clock in clocks.items():
        order.heard(machine(name), clock)


def test_nothing_is_released_before_everyone_has_been_heard_past_it() -> None:
    order = LamportOrder((A, B, C))
    first = message(A, 3)
    insert(order, first)
    hear(order, a=3, b=9)
    assert order.release() == []
    hear(order, c=2)
    assert order.release() == []
    hear(order, c=3)
    assert order.release() == [first]


def test_messages_are_released_in_the_order_of_their_clocks() -> None:
    order = LamportOrder((A, B))
    first, second, third = message(B, 1), message(A, 2), message(B, 3)
    insert(order, second, first, third)
    hear(order, a=5, b=5)
    assert order.release() == [first, second, third]


def test_equal_clocks_are_ordered_by_name() -> None:
    order = LamportOrder((A, B, C))
    by_name = [message(sender, 4) for sender in (A, B, C)]
    insert(order, *reversed(by_name))
    hear(order, a=4, b=4, c=4)
    assert order.release() == by_name


def test_only_the_part_that_is_decided_is_released() -> None:
    order = LamportOrder((A, B))
    early, late = message(A, 1), message(A, 8)
    insert(order, early, late)
    hear(order, a=8, b=5)
    assert order.release() == [early]
    assert order.release() == []
    hear(order, b=8)
    assert order.release() == [late]


def test_those_who_have_not_been_heard_past_the_next_message_are_awaited() -> None:
    order = LamportOrder((A, B, C))
    assert order.awaited() == []
    assert order.first() is None
    insert(order, message(B, 4), message(A, 7))
    hear(order, a=7, b=4, c=3)
    assert order.awaited() == [C]
    assert order.first() == message(B, 4)
    hear(order, c=4)
    order.release()
    assert order.awaited() == [B, C]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_heard_first_the_order_is_the_same(seed: int) -> None:
    random = Random(seed)
    members = (A, B, C)
    sent = {
        sender: [message(sender, clock) for clock in sorted(random.sample(range(1, 99), 20))] for sender in members
    }
    order = LamportOrder(members)
    places = dict.fromkeys(members, 0)
    released: list[Message] = []
    while any(places[sender] < 20 for sender in members):
        sender = random.choice([sender for sender in members if places[sender] < 20])
        following = sent[sender][places[sender]]
        insert(order, following)
        order.heard(sender, following.clock)
        places[sender] += 1
        if random.random() < 0.3:
            released += order.release()
    hear(order, a=100, b=100, c=100)
    released += order.release()
    assert released == sorted(message for messages in sent.values() for message in messages)


def test_draining_releases_the_rest_in_timestamp_order_whoever_has_been_heard() -> None:
    order = LamportOrder((A, B, C))
    insert(order, message(A, 2), message(A, 7), message(B, 5), message(C, 5), message(B, 9))
    hear(order, a=7, b=9, c=2)
    assert order.release() == [message(A, 2)]
    assert order.drain() == [message(B, 5), message(C, 5), message(A, 7), message(B, 9)]


def test_what_has_been_drained_does_not_wait_any_more() -> None:
    order = LamportOrder((A, B))
    insert(order, message(A, 2), message(B, 3))
    order.drain()
    hear(order, a=9, b=9)
    assert order.release() == order.drain() == []
    assert order.first() is None
    assert order.awaited() == []
