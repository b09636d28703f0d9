"""What `corel.lmdb_log` keeps in LMDB, in memory: the same records, the same rules of restoring."""

from __future__ import annotations

from collections.abc import Sequence

from corel.messages import Entry
from corel.storage import Image, Lines, LogWrite, Record, Yellow, restore


class MemoryLog:
    """The result of all writes applied so far, which are durable at once."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.yellow = Yellow()
        self.messages: list[Record] = []
        self.order: list[int] = []

    def apply(self, write: LogWrite) -> None:
        self.messages.extend(write.records)
        self.order.extend(write.greened)
        if write.yellow is not None:
            self.yellow = write.yellow
        self.lines = write.lines
        assert len(self.order) == write.lines.green
        assert len(self.messages) == write.lines.next_arrival
        assert all(
            record.arrival == place for place, record in enumerate(self.messages[-5:], len(self.messages[:-5]))
        )

    def load(self) -> Image:
        logged = [record.entry() for record in self.messages[self.lines.open_from :]]
        for entry in logged:
            entry.body = None  # it is on disk
        return restore(self.lines, self.yellow, logged)

    def body(self, arrival: int) -> bytes:
        return self.messages[arrival].body

    def green(self, first: int, count: int) -> Sequence[Entry]:
        return [self.messages[arrival].entry() for arrival in self.order[first : first + count]]
