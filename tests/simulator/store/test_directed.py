"""Cases too rare for seeds to show them: a store over a log that does what the test says."""

from __future__ import annotations

from corel.effects import Logged, StageChanged
from corel.message_queue import MessageQueue
from corel.messages import Color, Entry, MessageId
from corel.stages import Cause, Stage
from kvstore.store.operations import Put, Write
from kvstore.store.replies import Accepted, Ack, Answer
from kvstore.store.store import Store
from kvstore.store.write_codec import encode_write
from tests.simulator.store.memory_tree import MemoryTree
from transport.messages import Machine, ViewId

FIRST = MessageId(Machine("a", 1), 1)


class EmptyLog:
    """A log with nothing in it; what is submitted is never logged by itself."""

    def __init__(self) -> None:
        self.stage = Stage.PRIMARY
        self.is_open = True
        self.queue = MessageQueue()

    def body_of(self, entry: Entry) -> bytes:
        raise AssertionError

    def read_green(self, first: int, count: int) -> list[Entry]:
        return []


def test_outside_a_primary_component_a_write_is_accepted_when_it_is_logged_not_before() -> None:
    log = EmptyLog()
    store = Store(log, MemoryTree(), lambda body: FIRST, lambda number: None)
    answers: list[Answer] = []
    store.write(encode_write(Write((Put("k", b"v"),))), Ack.AUTO, 1e9, answers.append)
    store.dispatch()
    log.stage = Stage.NON_PRIMARY
    store.handle(StageChanged(Stage.NON_PRIMARY, Cause.NO_MAJORITY, ViewId(1, "a", 1), 0, 0, 0, 0, 0))
    assert not answers, "it is in no view yet"
    store.handle(Logged((Entry(FIRST, 1, ViewId(1, "a", 1), b""),)))
    assert answers == [Accepted("a.1.1.0", Color.RED)]
