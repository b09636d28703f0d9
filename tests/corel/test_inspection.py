"""The queue, as operators see it."""

from __future__ import annotations

from corel.config import CorelConfig
from corel.corel import Corel
from corel.inspection import inspect
from corel.messages import Color, Entry, MessageId
from corel.quorum import Roster
from corel.storage import Lines, LogWrite, Record
from tests.simulator.corel.memory_log import MemoryLog
from transport.messages import Machine, View, ViewId

A = Machine("a", 1)
VIEW = View(ViewId(1, "a", 1), (A,), (A,))


def entry(sequence: int) -> Entry:
    made = Entry(MessageId(A, sequence), 10 * sequence, VIEW.id, b"body")
    made.arrival = sequence - 1
    return made


def test_every_message_has_its_place_and_colour_whatever_is_on_disk_of_it() -> None:
    log = MemoryLog(Lines(is_voter=True))
    corel = Corel(A, VIEW, Roster.of("ab"), CorelConfig(), log.load(), log)
    for sequence in (1, 2, 3):
        corel.queue.add_red(entry(sequence))
    corel.queue.turn_yellow()
    corel.queue.add_red(entry(4))
    log.apply(LogWrite(tuple(map(Record.of, corel.queue)), (0,), None, Lines(next_arrival=4, green=1)))
    corel._state.turn_green(2, [])
    corel._writer._to_green = corel._writer._to_green[1:]  # the first is on disk by now
    seen = inspect(corel, log, 0, 10)
    assert [(one.position, one.color) for one in seen] == [
        (0, Color.GREEN),
        (1, Color.GREEN),
        (2, Color.YELLOW),
        (3, Color.RED),
    ]
    assert [one.id.sequence for one in inspect(corel, log, 1, 2)] == [2, 3]
    assert {one.size_bytes for one in seen} == {4}
