"""What `corel.lmdb_log` keeps in LMDB, in memory: the same records, the same rules of restoring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from corel.disk_errors import DamagedLog
from corel.learning import TakenOver, begun_anew, take_over
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST, Entry, identity_of
from corel.storage import Image, Lines, LogSize, LogWrite, Record, Yellow, restore
from tests.simulator.corel.disk_space import DiskSpace, record_bytes, write_bytes
from transport.errors import BrokenInvariant

NOT_KEPT = -1
"""The arrival of a green message that is truncated."""


class MemoryLog:
    """The result of all writes applied so far, which are durable at once."""

    def __init__(self, lines: Lines, disk: str = "") -> None:
        self.lines = lines
        self.disk = identity_of(disk.encode())
        self.yellow = Yellow()
        self.messages: list[Record] = []
        self.order: list[int] = []
        self.digests: dict[int, bytes] = {0: EMPTY_DIGEST}
        """Digests of the green order, by line: those that a write has brought."""
        self.space = DiskSpace()
        self.rotten: set[int] = set()
        """The arrivals of records whose checksum is wrong."""
        self.deleted: set[int] = set()
        """The arrivals of messages that are truncated."""

    @property
    def size(self) -> LogSize:
        """How large the messages are that are kept."""
        kept = [record for record in self.messages if record.arrival not in self.deleted]
        return LogSize(record_bytes(kept), len(kept))

    def tail_from(self, first: int) -> list[Record]:
        """Returns the green messages from this position on, which is not before the cut."""
        if first < self.lines.cut:
            raise BrokenInvariant(f"position {first} is read, and the log is cut at {self.lines.cut}")
        return [self.messages[arrival] for arrival in self.order[first:]]

    def write(self, write: LogWrite, also_bytes: int = 0) -> None:
        """Applies a write, with this many bytes of something else, or raises `DiskError`, and nothing of it is
        there."""
        self.space.take(write_bytes(write) + also_bytes)
        self.apply(write)

    def rot(self, place: float) -> None:
        """Damages a record: 0 is the place of the first, 1 that of the last."""
        kept = self._logged_from(0)
        self.rotten.add(kept[int(place * (len(kept) - 1))].arrival)

    def take_over(self, node: str, source: MemoryLog, cut: int) -> None:
        """Takes over the green prefix of another node's log, which has its messages from the cut on only."""
        self.take_over_parts(node, source.lines, cut, source.green_digest(cut), source.tail_from(cut))

    def take_over_parts(self, node: str, source: Lines, cut: int, digest: bytes, tail: Sequence[Record]) -> None:
        """Has this node take over the green prefix of another log, whose digest at the cut is this, and which has
        these messages from there on. There has to be room for both logs. Raises `NotAhead`, or `DiskError`, and
        nothing has changed."""
        own = self._logged_from(self.lines.open_from)
        for record in own:
            self._check(record.arrival)
        taken = take_over(node, self.lines, own, source, cut, tail)
        self._begin_with(taken, cut, digest, taken.records)

    def begin_anew(
        self, generation: bytes, source: Lines, cut: int, digest: bytes, tail: Sequence[Record]
    ) -> None:
        """Begins a new generation of the cluster with such a prefix."""
        taken = begun_anew(source, generation, cut, len(tail), ())
        green = [record._replace(arrival=arrival, primary=0) for arrival, record in enumerate(tail)]
        self._begin_with(taken, cut, digest, green)

    def _begin_with(self, taken: TakenOver, cut: int, digest: bytes, records: Sequence[Record]) -> None:
        kept = taken.lines.green - cut
        used_bytes = record_bytes(records) + 8 * kept
        self.space.take(used_bytes)
        self.space.used_bytes = used_bytes
        self.lines, self.yellow = taken.lines, taken.yellow
        self.messages = list(records)
        self.order = [*[NOT_KEPT] * cut, *range(kept)]
        self.digests = {cut: digest, taken.lines.green: taken.lines.green_digest}
        self.rotten.clear()
        self.deleted.clear()

    def apply(self, write: LogWrite) -> None:
        self.messages.extend(write.records)
        self.order.extend(write.greened)
        self._truncate(write.lines.cut)
        if write.yellow is not None:
            self.yellow = write.yellow
        self.lines = write.lines
        self.digests[write.lines.green] = write.lines.green_digest
        assert len(self.order) == write.lines.green
        assert len(self.messages) == write.lines.next_arrival
        assert all(
            record.arrival == place for place, record in enumerate(self.messages[-5:], len(self.messages[:-5]))
        )

    def _truncate(self, cut: int) -> None:
        """Deletes the green messages before the cut, and keeps the digest there."""
        if cut <= self.lines.cut:
            return
        digest = chained(self.digests[self.lines.cut], self._entries(range(self.lines.cut, cut)))
        self.digests = {line: known for line, known in self.digests.items() if line > cut}
        self.digests[cut] = digest
        for position in range(self.lines.cut, cut):
            arrival, self.order[position] = self.order[position], NOT_KEPT
            self.deleted.add(arrival)
            self.rotten.discard(arrival)
            self.space.used_bytes -= record_bytes([self.messages[arrival]])

    def load(self) -> Image:
        records = self._logged_from(self.lines.open_from)
        for record in records:
            self._check(record.arrival)
        logged = [record.entry() for record in records]
        for entry in logged:
            entry.body = None  # it is on disk
        return restore(self.lines, self.yellow, logged, self.disk, self.size)

    def body(self, arrival: int) -> bytes:
        self._check(arrival)
        return self.messages[arrival].body

    def green(self, first: int, count: int) -> Sequence[Entry]:
        arrivals = self.order[first : first + count]
        for arrival in arrivals:
            if arrival == NOT_KEPT:
                raise BrokenInvariant(f"position {first} is read, and the log is cut at {self.lines.cut}")
            self._check(arrival)
        return [self.messages[arrival].entry() for arrival in arrivals]

    def green_digest(self, line: int) -> bytes:
        if line < self.lines.cut:
            raise BrokenInvariant(f"the digest at {line} is asked for, and the log is cut at {self.lines.cut}")
        start = max(known for known in self.digests if known <= line)
        return chained(self.digests[start], self.green(start, line - start))

    def _logged_from(self, first: int) -> list[Record]:
        return [record for record in self.messages[first:] if record.arrival not in self.deleted]

    def _entries(self, positions: Iterable[int]) -> list[Entry]:
        return [self.messages[self.order[position]].entry() for position in positions]

    def _check(self, arrival: int) -> None:
        self.space.check_usable()
        if arrival in self.deleted:
            raise BrokenInvariant(f"message {arrival} is read, and is truncated")
        if arrival in self.rotten:
            raise DamagedLog(f"the checksum of message {arrival} is wrong")
