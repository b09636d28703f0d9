"""How much of a snapshot is there, and whether what comes next is what is due. It is pure: a disk that is being
built, a backup that is being made and one that is being verified all go through the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from corel import Lines, Record, chained, continued, record_codec
from corel.log_building import UnfitRecord, check_records
from kvstore.node.snapshot_format import SNAPSHOT_TABLES, Batch, Chunk, DamagedSnapshot, Header, snapshot_id


class Position(NamedTuple):
    """What is due next."""

    table: str | None
    """The table of the next chunk; None if all tables are there."""
    after: bytes
    """The key after which it begins."""
    line: int
    """The position of the next green message."""


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """What there is of one snapshot."""

    header_bytes: bytes
    header: Header
    table: int
    """How many tables are whole."""
    after: bytes
    count: int
    """How many records there are of the table that is not."""
    lines: Lines
    """The lines of the source as far as its green messages have come."""
    is_current: bool
    """Whether what the lines say of primary components is of the last of these messages. Only then can the log be
    taken over with them."""
    name: str
    """What the source calls the snapshot, so that its next part can be asked for."""
    source_green: int = 0
    """How many green messages the source had on its disk when it read the last batch."""

    @classmethod
    def begun(cls, header_bytes: bytes, name: str = "") -> SnapshotProgress:
        """Returns the beginning of the snapshot with this header. Raises `DamagedSnapshot`."""
        header = Header.of(header_bytes)
        # The streams are those at the source's green line. The messages up to there do not change them.
        lines = replace(header.lines, green=header.line, green_digest=header.digest)
        return cls(header_bytes, header, 0, b"", 0, lines, header.line == header.lines.green, name)

    @property
    def position(self) -> Position:
        table = SNAPSHOT_TABLES[self.table] if self.table < len(SNAPSHOT_TABLES) else None
        return Position(table, self.after, self.lines.green)

    @property
    def records(self) -> int:
        """How many records of tables there are."""
        return sum(table.records for table in self.header.tables[: self.table]) + self.count

    @property
    def is_whole(self) -> bool:
        """Whether everything up to the source's green line is there."""
        return self.position.table is None and self.lines.green >= self.header.lines.green

    def check_whole(self) -> None:
        """Raises `DamagedSnapshot` if something is missing."""
        table, _, line = self.position
        if table is not None:
            raise DamagedSnapshot(f"it is not whole: records of {table} are missing")
        if not self.is_whole:
            raise DamagedSnapshot(f"it is not whole: messages from {line:,} on are missing")

    def with_chunk(self, content: bytes) -> tuple[SnapshotProgress, Chunk]:
        """Returns what there is with this chunk, and what is in it. Raises `DamagedSnapshot` if it is damaged, or
        if another one is due."""
        chunk, due = Chunk.of(content, snapshot_id(self.header_bytes)), self.position
        if (chunk.table, chunk.after) != (due.table, due.after):
            raise DamagedSnapshot(
                f"a chunk of {chunk.table} after {chunk.after!r} came where one of {due.table} after "
                f"{due.after!r} was due"
            )
        try:
            check_records(chunk.table, chunk.after, chunk.records)
        except UnfitRecord as error:
            raise DamagedSnapshot(str(error)) from None
        count = self.count + len(chunk.records)
        expected = self.header.tables[self.table].records
        if count > expected or (chunk.is_last and count != expected):
            raise DamagedSnapshot(f"{chunk.table} has {expected:,} records, and {count:,} came")
        if chunk.is_last:
            return replace(self, table=self.table + 1, after=b"", count=0), chunk
        if not chunk.records:
            raise DamagedSnapshot(f"a chunk of {chunk.table} is empty, and is not the last")
        return replace(self, after=chunk.records[-1][0], count=count), chunk

    def with_batch(self, content: bytes) -> tuple[SnapshotProgress, list[Record]]:
        """Returns what there is with this batch, and its messages, numbered as a disk that begins with the
        snapshot numbers them. Raises `DamagedSnapshot`, as `with_chunk` does."""
        batch, lines = Batch.of(content), self.lines
        if batch.position != lines.green:
            raise DamagedSnapshot(f"messages from {batch.position:,} on came where {lines.green:,} was due")
        if batch.lines.green < lines.green:
            raise DamagedSnapshot(
                f"the source has {batch.lines.green:,} green messages, and {lines.green:,} are here"
            )
        first = lines.green - self.header.line
        records = [record._replace(arrival=first + n, primary=0) for n, record in enumerate(batch.records)]
        following = self._following(records)
        if following.green_digest != batch.digest:
            raise DamagedSnapshot(f"the messages from {batch.position:,} on are not those that became green")
        if not batch.lines.green == following.green >= self.header.lines.green:
            return replace(self, lines=following, is_current=False, source_green=batch.lines.green), records
        if batch.lines.green_digest != following.green_digest:
            raise DamagedSnapshot(
                f"the first {following.green:,} messages of the source are not those that are here"
            )
        return replace(self, lines=batch.lines, is_current=True, source_green=batch.lines.green), records

    def _following(self, records: Sequence[Record]) -> Lines:
        """Returns the lines of the source after these green messages."""
        source, end = self.header.lines, self.lines.green + len(records)
        if end > source.green:
            return continued(self.lines, records)
        digest = chained(self.lines.green_digest, [record.entry() for record in records])
        if end == source.green and digest != source.green_digest:
            raise DamagedSnapshot(f"the messages up to {end:,} are not those that became green")
        return replace(self.lines, green=end, green_digest=digest)

    # On disk

    def to_list(self) -> list[Any]:
        lines = record_codec.lines_to_list(self.lines)
        return [self.header_bytes, self.table, self.after, self.count, lines, self.is_current, self.name]

    @classmethod
    def of(cls, item: Any) -> SnapshotProgress:
        header_bytes, table, after, count, lines, is_current, name = item
        header = Header.of(header_bytes)
        return cls(header_bytes, header, table, after, count, record_codec.lines(lines), is_current, name)
