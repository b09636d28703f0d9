"""Reading the log on disk: what `corel.lmdb_log`, which also writes it and describes its tables, and
`corel.read_only_log` have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lmdb

from corel import record_codec
from corel.checked_values import Bytes, WrongChecksum, unpack, verified
from corel.disk_errors import DiskError, Truncated, damaged, explained, unusable
from corel.message_queue import chained
from corel.messages import DIGEST_BYTES, EMPTY_DIGEST, Entry, identity_of
from corel.record_cache import RecordCache
from corel.storage import Image, Lines, LogSize, Record, Yellow, restore

FORMAT = 6
UPGRADING = 1_005
"""The format of a disk of format 5 whose upgrade has begun: no version that knows only 5 may open it any more."""
UPGRADABLE = (5, UPGRADING)
"""The formats that a node brings to `FORMAT` when it opens its disk."""

_UPGRADE = "Start its node once with this version, which brings it up to date."
_OTHER_VERSION = (
    "Use the version that wrote it, or another --data directory: a node that starts with an empty one takes the "
    "log over from nodes that have it."
)

READERS_MAX = 126
TABLES_MAX = 24
IDENTITY, LINES, YELLOW, CUT = b"identity", b"lines", b"yellow", b"cut"
META = b"meta "


class Identity(NamedTuple):
    """Whose log it is, and which disk."""

    cluster: str
    node: str
    uuid: str
    form: int
    """The format of the disk."""


class Beginning(NamedTuple):
    """Where the order on disk begins: what was before it is truncated, or was never here. It is not beyond
    `Lines.cut`, up to which the rest is deleted a little at a time."""

    line: int
    digest: bytes
    """The digest of the order up to there."""


class LmdbReader:
    """The log of one node, as far as it is read."""

    directory: Path
    uuid: str
    _environment: lmdb.Environment

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._cache = RecordCache()

    def _open_tables(self) -> None:
        self._messages, self._order, self._meta = map(self.table, ("messages", "order", "meta"))

    def table(self, name: str, is_index: bool = False) -> Any:
        """Returns a table. A key of an index has many values, all of the same size and in order."""
        raise NotImplementedError

    def read(self, table: Any, buffers: bool = False) -> Reading:
        """Returns a transaction that reads this table, as a context manager. With `buffers`, its values are not
        copied, and are not to be used after it."""
        try:
            if buffers:
                return Reading(self._environment.begin(db=table, buffers=True), self.directory)
            return Reading(self._environment.begin(db=table), self.directory)
        except lmdb.Error as error:
            raise unusable(self.directory, error) from error

    def load(self) -> Image:
        """Returns what a node starts with. The bodies of messages that are not green are not in memory then: they
        are read when they are needed. Nor are they meanwhile, but for one batch."""
        self._cache.clear()
        with self.read(self._messages, buffers=True) as transaction:
            lines = self._lines(transaction)
            value = transaction.get(YELLOW, db=self._meta)
            position, arrivals = self.unpack(value, META + YELLOW, "yellow")
            yellow = Yellow(position, tuple(record_codec.arrivals(arrivals)))
            self._check_beginning(transaction, lines)
            logged = list(self._entries(transaction, lines.open_from))
            size = self._log_size(transaction)
        if [entry.arrival for entry in logged] != list(range(lines.open_from, lines.next_arrival)):
            raise self.damaged(f"messages from {lines.open_from} to {lines.next_arrival - 1} are not all there")
        return restore(lines, yellow, logged, identity_of(self.uuid.encode()), size)

    def _lines(self, transaction: Any) -> Lines:
        return record_codec.lines(self.unpack(transaction.get(LINES, db=self._meta), META + LINES, "lines"))

    def _check_beginning(self, transaction: Any, lines: Lines) -> None:
        line, _ = self.beginning(transaction)
        with transaction.cursor(db=self._order) as cursor:
            start = int.from_bytes(cursor.key(), "big") if cursor.first() else lines.green
        if start != line:
            raise self.damaged(f"the order begins at {start}, and is to begin at {line}")

    def beginning(self, transaction: Any) -> Beginning:
        """Returns where the order on disk begins."""
        value = transaction.get(CUT, db=self._meta)
        return Beginning(0, EMPTY_DIGEST) if value is None else Beginning(*self.unpack(value, META + CUT, "cut"))

    def log_size(self) -> LogSize:
        """Returns how large the log is on disk, without what the layer above keeps there. It takes as long
        whatever its size, and may be called while another thread writes."""
        with self.read(self._messages) as transaction:
            return self._log_size(transaction)

    def _log_size(self, transaction: Any) -> LogSize:
        stats = [transaction.stat(table) for table in (self._messages, self._order)]
        pages = ("branch_pages", "leaf_pages", "overflow_pages")
        size_bytes = sum(stat["psize"] * sum(stat[kind] for kind in pages) for stat in stats)
        with transaction.cursor(db=self._messages) as cursor:
            first = int.from_bytes(cursor.key(), "big") if cursor.first() else None
        messages = 0 if first is None else self._lines(transaction).next_arrival - first
        return LogSize(size_bytes, messages)

    def body(self, arrival: int) -> bytes:
        return self.record(arrival).body

    def green(self, first: int, count: int) -> Sequence[Entry]:
        """Returns green messages by position; fewer than `count` if there are not so many. Raises `Truncated`."""
        return [self.record(arrival).entry() for arrival in self._green_arrivals(first, count)]

    def _green_arrivals(self, first: int, count: int) -> list[int]:
        found: list[int] = []
        with self.read(self._order) as transaction, transaction.cursor() as cursor:
            if count > 0:
                self._check_kept(transaction, first)
            is_there, end = seek(cursor, first), None
            while is_there and len(found) < count:
                start = int.from_bytes(cursor.key(), "big")
                if end not in (None, start):
                    raise self.damaged(f"the order goes from {end} to {start}")
                arrivals = self.order_at(cursor)[1]
                end = start + len(arrivals)
                begin = max(0, first - start)
                found += arrivals[begin : begin + count - len(found)]
                is_there = cursor.next()
        return found

    def green_digest(self, line: int) -> bytes:
        """Returns the digest of the green order up to this line. Raises `Truncated`."""
        with self.read(self._order) as transaction, transaction.cursor() as cursor:
            beginning = self._check_kept(transaction, line)
            if line == beginning.line:
                return beginning.digest
            is_there = seek(cursor, line - 1)
            start = int.from_bytes(cursor.key(), "big") if is_there else 0
            digest, arrivals = self.order_at(cursor) if is_there else (EMPTY_DIGEST, [])
            if line > start + len(arrivals):
                raise self.damaged(f"the order does not reach {line}")
            if line == start + len(arrivals):
                return digest
            position, digest = self._digest_before(cursor, beginning, line)
        return self._chained(digest, arrivals[position - start : line - start])

    def _chained(self, digest: bytes, arrivals: Sequence[int]) -> bytes:
        return chained(digest, [self.record(arrival).entry() for arrival in arrivals])

    def _digest_before(self, cursor: Any, beginning: Beginning, line: int) -> tuple[int, bytes]:
        """Returns a position that is not beyond this line, in the record of the order at which the cursor is, with
        the digest of the order up to there. The cursor may be elsewhere afterwards."""
        start = int.from_bytes(cursor.key(), "big")
        return start, self.order_at(cursor)[0] if cursor.prev() else beginning.digest

    def _check_kept(self, transaction: Any, line: int) -> Beginning:
        beginning = self.beginning(transaction)
        if line < beginning.line:
            raise Truncated(self.directory, beginning.line)
        return beginning

    def order_at(self, cursor: Any) -> tuple[bytes, list[int]]:
        """Returns the digest of the order at the end of this record, and the record's arrivals."""
        key = cursor.key()
        content = self.verified(cursor.value(), b"order " + key, f"order {int.from_bytes(key, 'big')}")
        return bytes(content[:DIGEST_BYTES]), record_codec.arrivals(content[DIGEST_BYTES:])

    def record(self, arrival: int) -> Record:
        known = self._cache.find(arrival)
        if known is not None:
            return known
        with self.read(self._messages, buffers=True) as transaction, transaction.cursor() as cursor:
            if not seek(cursor, arrival):
                raise self._lost(transaction, arrival)
            batch, size = self._batch(cursor), len(cursor.value())
        start = batch[0].arrival
        if arrival >= start + len(batch):
            raise self.damaged(f"message {arrival} is missing")
        self._cache.add(batch, size)
        return batch[arrival - start]

    def _lost(self, transaction: Any, arrival: int) -> DiskError:
        """Returns why there is no message of this arrival, nor any before it: messages are truncated in the order
        of their arrival, but only those that are green."""
        beginning, lines = self.beginning(transaction), self._lines(transaction)
        if beginning.line > 0 and arrival < lines.open_from:
            return Truncated(self.directory, beginning.line)
        return self.damaged(f"message {arrival} is missing")

    def _entries(self, transaction: Any, first: int) -> Iterator[Entry]:
        """Yields the messages from this arrival on, without bodies."""
        with transaction.cursor(db=self._messages) as cursor:
            is_there = seek(cursor, first) or cursor.first()
            while is_there:
                for record in self._batch(cursor):
                    if record.arrival >= first:
                        yield record.entry_without_body()
                is_there = cursor.next()

    def _batch(self, cursor: Any) -> list[Record]:
        key = bytes(cursor.key())
        start = int.from_bytes(key, "big")
        return record_codec.records(start, self.unpack(cursor.value(), b"messages " + key, f"messages {start}"))

    # Identity

    def _read_identity(self, upgradable: Sequence[int] = ()) -> Identity:
        """Returns the identity of a disk of `FORMAT`, or of a format that can be brought to it."""
        with self.read(self._meta) as transaction:
            value = transaction.get(IDENTITY)
        form, *names = self.unpack(value, b"", "identity")
        if form != FORMAT and form not in upgradable:
            way_out = _UPGRADE if form in UPGRADABLE else _OTHER_VERSION
            found = f"{self.directory} was written in format {form}"
            if form == UPGRADING:
                found = f"the upgrade of {self.directory} from an older format has begun, and was interrupted"
            raise DiskError(f"{found}; this version of corelkv reads {FORMAT}. {way_out}")
        cluster, node, uuid = names
        return Identity(cluster, node, uuid, form)

    # Checksums

    def unpack(self, value: Bytes | None, place: bytes, what: str) -> Any:
        """Returns what `pack` packed. Raises if it is damaged or missing, and says what."""
        try:
            return unpack(value, place)
        except WrongChecksum as error:
            raise self.damaged(f"{what} {error}") from None

    def verified(self, value: Bytes | None, place: bytes, what: str) -> Bytes:
        """Returns the content of a checked value. Raises if it is damaged or missing, and says what."""
        try:
            return verified(value, place)
        except WrongChecksum as error:
            raise self.damaged(f"{what} {error}") from None

    def damaged(self, why: str) -> DiskError:
        return damaged(self.directory, why)


class Reading:
    """A transaction that reads. What LMDB finds wrong with its pages is a `DiskError` here."""

    __slots__ = ("_directory", "_transaction")

    def __init__(self, transaction: lmdb.Transaction, directory: Path) -> None:
        self._transaction = transaction
        self._directory = directory

    def __enter__(self) -> lmdb.Transaction:
        return self._transaction

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._transaction.abort()
        if isinstance(error, lmdb.Error) and not isinstance(error, lmdb.BadValsizeError):
            raise explained(error, self._directory) from error


def seek(cursor: Any, number: int) -> bool:
    """Moves to the record that holds this number: the last whose key is not above it. Returns whether there is
    one."""
    if cursor.set_range(key_of(number)):
        return bool(cursor.key() == key_of(number) or cursor.prev())
    return bool(cursor.last())


def key_of(number: int) -> bytes:
    return number.to_bytes(8, "big")
