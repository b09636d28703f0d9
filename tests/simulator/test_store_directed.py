"""What happens too seldom for seeds to show it: a store over a log that does what the test says."""

from __future__ import annotations

from corel.corel import Stage
from corel.effects import Logged
from corel.message_queue import MessageQueue
from corel.messages import Color, Entry, MessageId
from kvstore.machine import Accepted, Ack, Answer, Machine
from kvstore.operations import Put, Write
from kvstore.write_codec import encode_write
from tests.simulator.memory_tree import MemoryTree
from transport.messages import Machine as Member
from transport.messages import ViewId

FIRST = MessageId(Member("a", 1), 1)


class EmptyLog:
    """Nothing is in it; what it is told to send stays on its way."""

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
    machine = Machine(log, MemoryTree(), lambda body: FIRST, lambda number: None)
    answers: list[Answer] = []
    machine.write(encode_write(Write((Put("k", b"v"),))), Ack.AUTO, 1e9, answers.append)
    machine.dispatch()
    log.stage = Stage.NON_PRIMARY
    machine.stage_changed()
    assert not answers, "it is in no view yet"
    machine.logged(Logged((Entry(FIRST, 1, ViewId(1, "a", 1), b""),)))
    assert answers == [Accepted("a.1.1.0", Color.RED)]
