"""The invariants notice the faults that they are there for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corel.invariants import UNCHANGED_MAX, Invariants
from corel.message_queue import MessageQueue
from corel.messages import Entry, MessageId
from transport.errors import BrokenInvariant
from transport.messages import Machine, ViewId

A, B = Machine("a", 1), Machine("b", 1)


def entry(stream: Machine, sequence: int, clock: int) -> Entry:
    return Entry(MessageId(stream, sequence), clock, ViewId(1, "a", 1), b"")


def queue() -> MessageQueue:
    """Returns a queue with two messages committed to, two received in the primary component since, and two red
    ones."""
    made = MessageQueue()
    for sequence, clock in ((1, 10), (2, 30)):
        made.add_red(entry(A, sequence, clock))
    made.turn_yellow()
    for sequence, clock in ((1, 40), (2, 50)):
        made.add_yellow(entry(B, sequence, clock))
    for sequence, clock in ((3, 60), (4, 70)):
        made.add_red(entry(A, sequence, clock))
    return made


def test_a_queue_that_is_right_passes_step_by_step() -> None:
    made = queue()
    watched = Invariants(made)
    watched.check(made)
    watched.turned_green(made.turn_green(3))
    watched.check(made)
    made.retreat(3)
    watched.check(made)


PLANTED: dict[str, Callable[[MessageQueue], object]] = {
    "green without a word": lambda made: made.turn_green(1),
    "another green order": lambda made: setattr(made, "green_digest", bytes(range(16))),
    "a sender's messages swapped": lambda made: made.yellow.__setitem__(slice(0, 2), made.yellow[1::-1]),
    "a message gone": lambda made: made.yellow.pop(0),
    "the last gone": lambda made: made.red.pop(),
    "yellow out of order": lambda made: made.yellow[3].__init__(made.yellow[3].id, 35, made.yellow[3].view, b""),  # type: ignore[misc]
    "red out of order": lambda made: made.red[1].__init__(made.red[1].id, 55, made.red[1].view, b""),  # type: ignore[misc]
    "a base that is not yellow": lambda made: setattr(made, "base", 5),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_what_is_wrong_is_noticed(plant: Callable[[MessageQueue], object]) -> None:
    made = queue()
    watched = Invariants(made)
    plant(made)
    with pytest.raises(BrokenInvariant):
        watched.check(made)


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_what_goes_wrong_after_a_check_is_noticed_soon(plant: Callable[[MessageQueue], object]) -> None:
    made = queue()
    watched = Invariants(made)
    watched.check(made)
    plant(made)
    with pytest.raises(BrokenInvariant):
        check_often(watched, made)


def check_often(watched: Invariants, made: MessageQueue) -> None:
    for _ in range(UNCHANGED_MAX + 1):
        watched.check(made)
