"""What `corel.lmdb_log` keeps in LMDB, in memory: the same records, the same rules of restoring."""

from __future__ import annotations

from collections.abc import Sequence

from corel.disk_errors import DamagedLog
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST, Entry, digest_of
from corel.storage import Image, Lines, LogWrite, Record, Yellow, restore
from tests.simulator.corel.disk_space import DiskSpace, write_bytes


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
        self.space = DiskSpace()
        self.rotten: set[int] = set()
        """The arrivals of records whose checksum is wrong."""

    def write(self, write: LogWrite, also_bytes: int = 0) -> None:
        """Applies a write, with this many bytes of something else, or raises `DiskError`, and nothing of it is
        there."""
        self.space.take(write_bytes(write) + also_bytes)
        self.apply(write)

    def rot(self, place: float) -> None:
        """Damages a record: 0 is the place of the first, 1 that of the last."""
        self.rotten.add(int(place * (len(self.messages) - 1)))

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
        for arrival in range(self.lines.open_from, len(self.messages)):
            self._check(arrival)
        logged = [record.entry() for record in self.messages[self.lines.open_from :]]
        for entry in logged:
            entry.body = None  # it is on disk
        return restore(self.lines, self.yellow, logged, self.disk)

    def body(self, arrival: int) -> bytes:
        self._check(arrival)
        return self.messages[arrival].body

    def green(self, first: int, count: int) -> Sequence[Entry]:
        arrivals = self.order[first : first + count]
        for arrival in arrivals:
            self._check(arrival)
        return [self.messages[arrival].entry() for arrival in arrivals]

    def green_digest(self, line: int) -> bytes:
        start = max(known for known in self.digests if known <= line)
        return chained(self.digests[start], self.green(start, line - start))

    def _check(self, arrival: int) -> None:
        self.space.check_usable()
        if arrival in self.rotten:
            raise DamagedLog(f"the checksum of message {arrival} is wrong")
