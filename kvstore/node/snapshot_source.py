"""A snapshot of a node's disk, handed out part by part while the node goes on."""

from __future__ import annotations

from corel import Record
from corel.disk_errors import Truncated
from corel.lmdb_reading import LmdbReader
from corel.pinned_log import GreenMemory, PinnedLog
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.snapshot_format import (
    CHUNK_BYTES,
    SNAPSHOT_TABLES,
    Batch,
    Chunk,
    Header,
    LineageEntry,
    snapshot_id,
)


class SnapshotSource:
    """What is on a disk when this is made: the green state at its line, and the green messages after it. Until it
    is closed, no page of that is used again, so the disk grows by all that is written. Everything may raise
    `DiskError`, and is for one thread at a time."""

    def __init__(
        self, log: LmdbReader, created_ms: int, reason: str = "", memory: GreenMemory | None = None
    ) -> None:
        """`memory` is that of others that read this log, but never at the same time."""
        self._log = PinnedLog(log, memory)
        try:
            self.header = self._header(created_ms, reason)
        except BaseException:
            self.close()
            raise
        self.header_bytes = self.header.to_bytes()
        self.id = snapshot_id(self.header_bytes)

    def _header(self, created_ms: int, reason: str) -> Header:
        log, tree = self._log, LmdbTree(self._log)
        return Header(
            cluster=log.identity.cluster,
            node=log.identity.node,
            disk=log.uuid,
            lines=log.lines,
            line=tree.line,
            digest=log.green_digest(tree.line),
            revision=tree.revision,
            created_ms=created_ms,
            tables=tuple([log.size(name) for name in SNAPSHOT_TABLES]),
            lineage=tuple([LineageEntry(*entry) for entry in log.lineage]),
            reason=reason,
        )

    def close(self) -> None:
        self._log.close()

    def chunk(self, table: str, after: bytes, bytes_max: int = CHUNK_BYTES) -> Chunk:
        """Returns the records of a table after this key."""
        records, is_last = self._log.records_after(table, after, bytes_max)
        return Chunk(table, after, records, is_last)

    def batch(self, first: int, bytes_max: int = CHUNK_BYTES) -> Batch:
        """Returns the green messages from this position on. Raises `Truncated`."""
        return _batch(self._log, first, bytes_max)

    def open_messages(self) -> tuple[list[Record], list[Record]]:
        """Returns the yellow messages, and the red ones, each in order."""
        queue = self._log.load().queue
        yellow, red = queue.yellow, queue.red
        return [self._log.record(entry.arrival) for entry in yellow], [
            self._log.record(entry.arrival) for entry in red
        ]


def green_batch(
    log: LmdbReader, first: int, bytes_max: int = CHUNK_BYTES, memory: GreenMemory | None = None
) -> Batch:
    """Returns the green messages that are on a disk now, from this position on; `memory` makes those that follow
    cheaper. Raises `Truncated`."""
    pinned = PinnedLog(log, memory)
    try:
        return _batch(pinned, first, bytes_max)
    finally:
        pinned.close()


def _batch(log: PinnedLog, first: int, bytes_max: int) -> Batch:
    if first < log.lines.cut:
        raise Truncated(log.directory, log.lines.cut)
    records = log.green_records(first, bytes_max) if first < log.lines.green else []
    return Batch(first, records, log.green_digest(min(first, log.lines.green) + len(records)), log.lines)


def lineage_of(log: LmdbReader) -> tuple[LineageEntry, ...]:
    """Returns the generations of the cluster that ended before that of this disk, oldest first."""
    pinned = PinnedLog(log)
    try:
        return tuple([LineageEntry(*entry) for entry in pinned.lineage])
    finally:
        pinned.close()
