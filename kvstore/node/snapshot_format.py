"""What a snapshot of a node is made of when it travels, and a file that holds one. All of it is pure.

A snapshot is a *header*, then the records of each table of the green state in *chunks*, then *batches* of the
green messages that are not in that state yet. The records of tables are those on the source's disk, unchanged:
each value has a checksum over its table and its key. Every chunk has a digest too, which is keyed by the header,
so a chunk of another snapshot is not taken for one of this. Batches need no such key: the digests of the green
order say where they belong, and those of a running node may follow those of a snapshot.

A file is a line that says what it is, then a frame for the header, for each chunk and for each batch, and a
trailer with a digest of everything before it:

    frame      kind (1 byte), length (4 bytes, big-endian), content
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

import msgpack

from corel import Lines, Record, continued, record_codec
from corel.pinned_log import TableSize

SNAPSHOT_FORMAT = 1
SNAPSHOT_TABLES = ("items", "fates", "fate_ages", "memories", "tombstones", "ages", "state")
"""The tables of the green state, in the order in which they travel. Those of its past do not: the past of a node
that was built from a snapshot begins there."""

CHUNK_BYTES = 262_144
"""How large a chunk or a batch becomes; the record that exceeds it is in it. Larger ones take fewer requests and
fewer syncs of the receiver; smaller ones let other readers of the source have their turn sooner."""

GROUP_MAX = 1_000
"""How many messages there are in a batch at most, however small they are."""

FRAME_BYTES_MAX = 64 * 1_048_576
"""No frame of a file is larger: a record is at most as large as a message of the log, and a chunk has one beyond
`CHUNK_BYTES`."""

MAGIC = b"corelkv snapshot\n"
_DIGEST_BYTES = 16
_FRAME = struct.Struct(">cI")


class Kind:
    """What a frame of a file holds."""

    HEADER = b"H"
    CHUNK = b"C"
    BATCH = b"G"
    OPEN = b"O"
    """Messages that are not green, of a survivor whose cluster is lost."""
    TRAILER = b"E"


class DamagedSnapshot(Exception):
    """What was received or read is not a snapshot, or not the part of it that is due. The message says why."""


class LineageEntry(NamedTuple):
    """A generation of the cluster that ended."""

    generation: bytes
    line: int
    """The green line with which the next one began."""
    digest: bytes
    """The digest of the green order there."""
    ended_ms: int
    """When, by the wall clock."""
    reason: str


class Header(NamedTuple):
    """What a snapshot is of."""

    cluster: str
    node: str
    disk: str
    lines: Lines
    """The lines on the source's disk."""
    line: int
    """The line of the green state; the green messages from here to `lines.green` follow it."""
    digest: bytes
    """The digest of the green order at `line`."""
    revision: int
    """The revision of the green state at `line`."""
    created_ms: int
    """When it was opened, by the source's wall clock."""
    tables: tuple[TableSize, ...]
    lineage: tuple[LineageEntry, ...] = ()
    """The generations of the cluster before this one."""
    reason: str = ""
    """What a new generation that begins with this says of its origin."""

    @property
    def records(self) -> int:
        """How many records all tables have."""
        return sum(table.records for table in self.tables)

    def to_bytes(self) -> bytes:
        item = [
            SNAPSHOT_FORMAT,
            self.cluster,
            self.node,
            self.disk,
            record_codec.lines_to_list(self.lines),
            self.line,
            self.digest,
            self.revision,
            self.created_ms,
            [list(table) for table in self.tables],
            [list(entry) for entry in self.lineage],
            self.reason,
        ]
        return _sealed(item, b"")

    @classmethod
    def of(cls, content: bytes) -> Header:
        """Reads a header. Raises `DamagedSnapshot`."""
        item = _opened(content, b"", "its header")
        if item[0] != SNAPSHOT_FORMAT:
            raise DamagedSnapshot(
                f"it is of format {item[0]}, and this version of corelkv reads {SNAPSHOT_FORMAT}: use the version "
                "that wrote it"
            )
        _, cluster, node, disk, lines, line, digest, revision, created_ms, tables, lineage, reason = item
        return cls(
            cluster,
            node,
            disk,
            record_codec.lines(lines),
            line,
            digest,
            revision,
            created_ms,
            tuple([TableSize(*table) for table in tables]),
            tuple([LineageEntry(*entry) for entry in lineage]),
            reason,
        )


def snapshot_id(header: bytes) -> bytes:
    """Returns what tells a snapshot from every other."""
    return _digest(header, b"")


class Chunk(NamedTuple):
    """Consecutive records of one table."""

    table: str
    after: bytes
    """The key before them; empty if they are the first."""
    records: list[tuple[bytes, bytes]]
    is_last: bool

    def to_bytes(self, snapshot: bytes) -> bytes:
        flat = [part for record in self.records for part in record]
        return _sealed([self.table, self.after, flat, self.is_last], snapshot)

    @classmethod
    def of(cls, content: bytes, snapshot: bytes) -> Chunk:
        """Reads a chunk of this snapshot. Raises `DamagedSnapshot`."""
        table, after, flat, is_last = _opened(content, snapshot, "a chunk")
        return cls(table, after, list(zip(flat[::2], flat[1::2], strict=True)), is_last)


class Batch(NamedTuple):
    """Consecutive green messages."""

    position: int
    records: list[Record]
    digest: bytes
    """The digest of the green order after them."""
    lines: Lines
    """The lines on the source's disk when it was read."""

    def to_bytes(self) -> bytes:
        records, lines = record_codec.records_to_list(self.records), record_codec.lines_to_list(self.lines)
        return _sealed([self.position, records, self.digest, lines], b"")

    @classmethod
    def of(cls, content: bytes) -> Batch:
        """Reads a batch; its records are numbered from 0. Raises `DamagedSnapshot`."""
        position, records, digest, lines = _opened(content, b"", "a batch of messages")
        return cls(position, record_codec.records(0, records), digest, record_codec.lines(lines))


def batches(records: Sequence[Record], lines: Lines) -> Iterator[Batch]:
    """Yields messages as batches that follow the green line of these lines."""
    for group in grouped(records):
        position, lines = lines.green, continued(lines, group)
        yield Batch(position, group, lines.green_digest, lines)


def grouped(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Yields messages in groups of about `CHUNK_BYTES`."""
    group: list[Record] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record.body)
        if size >= CHUNK_BYTES or len(group) == GROUP_MAX:
            yield group
            group, size = [], 0
    if group:
        yield group


def messages_to_bytes(records: Sequence[Record]) -> bytes:
    """Returns messages that are not green as the content of a frame."""
    return _sealed(record_codec.records_to_list(records), b"")


def messages_of(content: bytes) -> list[Record]:
    """Reads what `messages_to_bytes` returned. Raises `DamagedSnapshot`."""
    return record_codec.records(0, _opened(content, b"", "messages that are not green"))


def _sealed(item: object, snapshot: bytes) -> bytes:
    content: bytes = msgpack.packb(item)
    return _digest(content, snapshot) + content


def _opened(content: bytes, snapshot: bytes, what: str) -> Any:
    if _digest(content[_DIGEST_BYTES:], snapshot) != content[:_DIGEST_BYTES]:
        raise DamagedSnapshot(f"{what} is damaged, or cut short, or belongs to another snapshot")
    return msgpack.unpackb(memoryview(content)[_DIGEST_BYTES:], strict_map_key=False)


def _digest(content: bytes, snapshot: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES, key=snapshot).digest()


# Files


class FrameWriter:
    """Makes the bytes of a file, frame by frame."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(MAGIC, digest_size=_DIGEST_BYTES)
        self._frames = 0

    def begin(self) -> bytes:
        return MAGIC

    def frame(self, kind: bytes, content: bytes) -> bytes:
        framed = _FRAME.pack(kind, len(content)) + content
        self._digest.update(framed)
        self._frames += 1
        return framed

    def end(self) -> bytes:
        """Returns the trailer, without which a file is not whole."""
        content = _sealed([self._frames, self._digest.digest()], b"")
        return _FRAME.pack(Kind.TRAILER, len(content)) + content


def frames(file: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yields the kind and the content of each frame of a file up to its trailer, one at a time. Raises
    `DamagedSnapshot` where the file is not whole; what was read before that is not to be used then."""
    if file.read(len(MAGIC)) != MAGIC:
        raise DamagedSnapshot("it is not a backup of corelkv")
    digest = hashlib.blake2b(MAGIC, digest_size=_DIGEST_BYTES)
    for count in itertools.count():
        head = file.read(_FRAME.size)
        if len(head) < _FRAME.size:
            raise DamagedSnapshot("it is cut short: its end is missing")
        kind, length = _FRAME.unpack(head)
        if length > FRAME_BYTES_MAX:
            raise DamagedSnapshot(f"frame {count} is damaged: it says that it has {length:,} bytes")
        content = file.read(length)
        if len(content) < length:
            raise DamagedSnapshot("it is cut short: its end is missing")
        if kind == Kind.TRAILER:
            if _opened(content, b"", "its trailer") != [count, digest.digest()]:
                raise DamagedSnapshot("its trailer does not belong to what is before it")
            if file.read(1):
                raise DamagedSnapshot("something follows its end")
            return
        digest.update(head)
        digest.update(content)
        yield kind, content
