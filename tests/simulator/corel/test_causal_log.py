"""The checker of causal order looks only at what has changed in a queue, and finds what a look at all of it
finds."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from corel.corel import Corel
from corel.message_queue import MessageQueue
from corel.messages import Entry, MessageId
from tests.simulator.checkers import Violation
from tests.simulator.checkers.causal_log import CausalLog
from tests.simulator.checkers.log import History
from transport.messages import Machine, ViewId

STREAMS = [Machine(name, 1) for name in "abc"]


class Queue:
    """A node's queue, and the history in which each message was sent by a node that had all those before it."""

    def __init__(self) -> None:
        self.history = History()
        self.queue = MessageQueue()
        self.log = cast(Corel, SimpleNamespace(queue=self.queue))
        self._clock = 0

    def add(self, stream: Machine) -> None:
        self._clock += 1
        past = {**self.queue.green_last, **dict(self.queue.have())}
        entry = Entry(MessageId(stream, past.get(stream, 0) + 1), self._clock, ViewId(1, "a", 1), b"")
        self.history.pasts[entry.id] = past
        self.queue.add_red(entry)

    def turn_green(self, count: int) -> None:
        for entry in self.queue.turn_green(count):
            self.history.positions[entry.id] = len(self.history.order)
            self.history.order.append(entry.id)


def is_noticed(checker: CausalLog, made: Queue) -> bool:
    try:
        checker.stepped("a", made.log)
    except Violation:
        return True
    return False


@pytest.mark.parametrize("seed", range(50))
def test_looking_at_what_has_changed_finds_what_looking_at_all_finds(seed: int) -> None:
    random = Random(seed)
    made = Queue()
    checker = CausalLog(made.history)
    for _ in range(20):
        for _ in range(random.randint(0, 4)):
            made.add(random.choice(STREAMS))
        made.turn_green(random.randint(0, len(made.queue.red)))
        assert not is_noticed(checker, made)
    red = made.queue.red
    for _ in range(5):
        made.add(random.choice(STREAMS))
    assert not is_noticed(checker, made)
    place, other = random.sample(range(len(red)), 2)
    fault = random.choice(("swapped", "gone", "green unseen"))
    if fault == "swapped":
        red[place], red[other] = red[other], red[place]
    elif fault == "gone":
        del red[place]
    else:
        made.queue.turn_green(1)
    assert is_noticed(checker, made) == is_noticed(CausalLog(made.history), made)


def test_a_message_before_its_cause_is_noticed_where_all_others_were_looked_at() -> None:
    made = Queue()
    checker = CausalLog(made.history)
    for stream in (*STREAMS, *STREAMS):
        made.add(stream)
    assert not is_noticed(checker, made)
    made.queue.red[4], made.queue.red[5] = made.queue.red[5], made.queue.red[4]
    assert is_noticed(checker, made)
