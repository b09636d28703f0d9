"""What `corel.lmdb_log` keeps in LMDB, in memory: the same records, the same rules of restoring."""

from __future__ import annotations

from collections.abc import Sequence

from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST, Entry, digest_of
from corel.storage import Image, Lines, LogWrite, Record, Yellow, restore


class MemoryLog:
    """The result of all writes applied so far, which are durable at once."""

    def __init__(self, lines: Lines, disk: str = "") -> None:
        self.lines = lines
        self.disk = digest_of(disk.encode())
        self.yellow = Yellow()
        self.messages: list[Record] = []
        self.order: list[int] = []
        self.digests: dict[int, bytes] = {0: EMPTY_DIGEST}
        """Digests of the green order, by line: those that a write has brought."""

    def apply(self, write: LogWrite) -> None:
        self.messages.extend(write.records)
        self.order.extend(write.greened)
        if write.yellow is not None:
            self.yellow = write.yellow
        self.lines = write.lines
        self.digests[write.lines.green] = write.lines.green_digest
        assert len(self.order) == write.lines.green
        assert len(self.messages) == write.lines.next_arrival
        assert all(
            record.arrival == place for place, record in enumerate(self.messages[-5:], len(self.messages[:-5]))
        )

    def load(self) -> Image:
        logged = [record.entry() for record in self.messages[self.lines.open_from :]]
        for entry in logged:
            entry.body = None  # it is on disk
        return restore(self.lines, self.yellow, logged, self.disk)

    def body(self, arrival: int) -> bytes:
        return self.messages[arrival].body

    def green(self, first: int, count: int) -> Sequence[Entry]:
        return [self.messages[arrival].entry() for arrival in self.order[first : first + count]]

    def green_digest(self, line: int) -> bytes:
        start = max(known for known in self.digests if known <= line)
        return chained(self.digests[start], self.green(start, line - start))
