"""A log on disk that is truncated as it grows, beside a twin of which everything is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corel.lmdb_log import LmdbLog
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST, MessageId
from corel.storage import Lines, LogWrite, Record
from transport.messages import Machine, ViewId

VIEW = ViewId(3, "a", 1)
MAP_BYTES = 256 * 1024**2


def opened(directory: Path) -> LmdbLog:
    return LmdbLog(directory, "test", "a", is_new_cluster=True, map_bytes=MAP_BYTES)


def checkpoint(transaction: Any) -> None:
    """What the layer above puts into a transaction with which the log is truncated."""


class TruncatedLog:
    """A log in a directory, and what it would hold had nothing been truncated. Its messages are of so many streams
    in turn; those of one stream must become green in the order of their arrival."""

    def __init__(self, directory: Path, streams: int = 1) -> None:
        self.directory = directory
        self._streams = streams
        self.log = opened(directory)
        self.records: list[Record] = []
        self.order: list[int] = []
        self.digests = [EMPTY_DIGEST]
        self.batches: list[range] = []
        """The arrivals of each batch."""
        self.cut = 0
        self.open_from = 0
        self._green: set[int] = set()
        self._green_last: dict[Machine, int] = {}

    def write(
        self, new: int = 0, green: Sequence[int] = (), cut: int = 0, is_checkpoint: bool = True, size: int = 20
    ) -> None:
        """Writes this many new messages as one batch, makes green those with these arrivals, and cuts."""
        first = len(self.records)
        made = [
            Record(n, self._id(n), 10 + n, VIEW, 0, b"%d " % n + bytes(size)) for n in range(first, first + new)
        ]
        self.records += made
        if new:
            self.batches.append(range(first, first + new))
        for arrival in green:
            self.order.append(arrival)
            self._green.add(arrival)
            stream, sequence = self.records[arrival].id
            self._green_last[stream] = sequence
            self.digests.append(chained(self.digests[-1], [self.records[arrival].entry()]))
        self.cut = max(self.cut, cut)
        while self.open_from in self._green:
            self.open_from += 1
        write = LogWrite(tuple(made), tuple(green), None, self.lines)
        self.log.write(write, checkpoint if is_checkpoint else None)

    def _id(self, arrival: int) -> MessageId:
        return MessageId(Machine("a", arrival % self._streams + 1), arrival // self._streams + 1)

    @property
    def lines(self) -> Lines:
        return Lines(
            is_voter=True,
            green=len(self.order),
            green_digest=self.digests[-1],
            streams=tuple(sorted(self._green_last.items())),
            next_arrival=len(self.records),
            open_from=self.open_from,
            cut=self.cut,
        )

    def reopen(self) -> None:
        self.log.close()
        self.log = opened(self.directory)

    @property
    def first(self) -> int:
        """Where the order on disk begins."""
        with self.log.read(self.log._meta) as transaction:
            return self.log.beginning(transaction).line

    def keys(self, table: str) -> list[int]:
        """The numbers that are the keys of a table."""
        handle = self.log.table(table)
        with self.log.read(handle) as transaction, transaction.cursor() as cursor:
            return [int.from_bytes(key, "big") for key, _ in cursor]

    def check(self) -> None:
        """Raises unless everything that is kept is as in the twin."""
        first = self.first
        assert first <= self.cut
        kept = self.log.green(first, len(self.order))
        assert [entry.arrival for entry in kept] == self.order[first:]
        assert [entry.body for entry in kept] == [self.records[arrival].body for arrival in self.order[first:]]
        for line in range(first, len(self.order) + 1):
            assert self.log.green_digest(line) == self.digests[line], line
