"""The log on disk: one LMDB environment per node, one synced transaction per `LogWrite`.

    table      key                             value
    messages   arrival of its first message    a batch of messages, as one write brought them
    order      position of its first message   the digest of the order up to its end, and the arrivals of the
                                               messages that one write made green
    meta       "identity", "lines", "yellow"

Every value begins with a checksum, which covers its key too. A damaged one is an error that names the file and
says what to do, never a wrong answer (trap 11); so is whatever LMDB finds wrong with its pages. Values are few and
large, because py-lmdb gives up and retakes the interpreter's lock with every put.

The map is reserved once, large and sparse: nothing has to grow under open readers. How large it is may differ from
one start to the next, as long as everything that is in it has room.

When LMDB cannot write its meta page, it refuses every later transaction, readers' too (MDB_PANIC), until the
environment is opened again (`reopen_if_unusable`). Of the two meta pages one is whole whatever the disk did, so
what was written before is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import lmdb

from corel import record_codec
from corel.checked_values import Bytes as Bytes
from corel.checked_values import ValuePacker as ValuePacker
from corel.checked_values import WrongChecksum, checked, unpack, verified
from corel.checked_values import pack as pack
from corel.config import MAP_BYTES
from corel.disk_errors import DiskError, UnusableLog, damaged, explained, unusable
from corel.message_queue import chained
from corel.messages import DIGEST_BYTES, EMPTY_DIGEST, Entry, digest_of
from corel.record_cache import RecordCache
from corel.storage import Image, Lines, LogWrite, Record, Yellow, restore
from corel.trial_write import remove_trial, try_write

FORMAT = 5

_READERS_MAX = 126
TABLES_MAX = 16
_IDENTITY, _LINES, _YELLOW = b"identity", b"lines", b"yellow"
_META = b"meta "


class DiskUsage(NamedTuple):
    """How full a node's disk is, in bytes."""

    used_bytes: int
    """The part of the map that has been used so far, which is the size of the file. Pages in it that are free at
    the moment are counted: a large write may not find enough of them side by side."""
    map_bytes: int
    file_system_bytes: int
    free_bytes: int
    """What the file system has left for this process."""


class LmdbLog:
    """The log of one node. `is_new_cluster` lets an empty log vote: there is nothing that its disk can have
    lost."""

    def __init__(
        self, directory: Path, cluster: str, node: str, is_new_cluster: bool = False, map_bytes: int = MAP_BYTES
    ) -> None:
        self.directory = directory
        self._map_bytes = map_bytes
        self._is_read_only = self._is_reopened = False
        self._refused: Callable[[Any], None] | None = None
        """What the last write that failed would have put."""
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(directory)
        try:
            self._environment = _open(directory, map_bytes)
            self._open_tables()
            self._check_map(map_bytes)
            self.uuid = self._identify(cluster, node, is_new_cluster)
        except lmdb.Error as error:
            os.close(self._lock)
            raise explained(error, directory) from error
        except BaseException:
            os.close(self._lock)
            raise
        self._cache = RecordCache()
        with contextlib.suppress(lmdb.Error):  # without room for this there is none for a write either: see there
            remove_trial(self._environment, self._meta)

    def _open_tables(self) -> None:
        self._messages, self._order, self._meta = map(self.table, ("messages", "order", "meta"))

    def close(self) -> None:
        self._environment.close()
        os.close(self._lock)

    def reopen_if_unusable(self, open_tables: Callable[[], None] = lambda: None) -> bool:
        """Opens the environment again if no transaction can begin, and returns whether it did. `open_tables` opens
        every `table` of before again. A disk that cannot be opened for writing is opened for reading, and the next
        call tries again. Not to be called while any thread has a transaction."""
        if self._is_usable():
            return False
        self._environment.close()
        self._is_reopened = True
        try:
            self._environment, self._is_read_only = self._open_again()
            self._open_tables()
            self._check_identity()
            open_tables()
        except BaseException as error:
            self._environment.close()  # so that the next call begins anew
            if isinstance(error, lmdb.Error):
                raise unusable(self.directory, error) from error
            raise
        return True

    def _is_usable(self) -> bool:
        try:
            self._environment.begin().abort()
        except lmdb.Error:
            return False
        return not self._is_read_only

    def _open_again(self) -> tuple[lmdb.Environment, bool]:
        if not (self.directory / "data.mdb").exists():  # LMDB would begin a new one
            raise UnusableLog(f"{self.directory / 'data.mdb'} is gone. Bring it back, or restart the node.")
        try:
            return _open(self.directory, self._map_bytes), False
        except lmdb.Error:  # as when the kernel has made the file system read-only
            return _open(self.directory, self._map_bytes, readonly=True), True

    # Writing

    def write(self, write: LogWrite, also: Callable[[Any], None] | None = None) -> None:
        """Returns when all of the write is on disk, or raises, and none of it is; only if the log is unusable then
        may it be there when the log has been opened again. `also` may put more into the same transaction, into
        tables of its own."""
        self._commit(partial(self._put, write, also))

    def update(self, change: Callable[[Any], None]) -> None:
        """Runs `change` in a transaction that leaves the log as it is."""
        self._commit(change)

    def _commit(self, put: Callable[[Any], None]) -> None:
        try:
            with self._environment.begin(write=True) as transaction:
                put(transaction)
        except lmdb.Error as error:
            self._refused = put
            raise explained(error, self.directory) from error

    def _put(self, write: LogWrite, also: Callable[[Any], None] | None, transaction: Any) -> None:
        if also is not None:
            also(transaction)
        if write.records:
            key = _key(write.records[0].arrival)
            value = pack(record_codec.records_to_list(write.records), b"messages " + key)
            self._append(transaction, self._messages, key, value)
        if write.greened:
            key = _key(write.lines.green - len(write.greened))
            content = write.lines.green_digest + record_codec.arrivals_to_bytes(write.greened)
            self._append(transaction, self._order, key, checked(content, b"order " + key))
        if write.yellow is not None:
            arrivals = record_codec.arrivals_to_bytes(write.yellow.arrivals)
            transaction.put(_YELLOW, pack([write.yellow.position, arrivals], _META + _YELLOW), db=self._meta)
        transaction.put(_LINES, pack(record_codec.lines_to_list(write.lines), _META + _LINES), db=self._meta)

    def _append(self, transaction: Any, table: Any, key: bytes, value: bytes) -> None:
        if not transaction.put(key, value, db=table, append=True):
            raise self.damaged(f"something is written at {int.from_bytes(key, 'big')} or beyond already")

    def try_write(self) -> None:
        """Makes a write as large as the last one that failed, which leaves nothing behind, and raises if the disk
        does not take it. Not to be called while another thread writes."""
        try:
            try_write(self._environment, self._meta, self._refused)
        except lmdb.Error as error:
            raise explained(error, self.directory) from error
        self._refused = None

    # How full it is

    def usage(self) -> DiskUsage:
        """Returns how full the disk is, which costs a system call and no access to the disk."""
        used_bytes, map_bytes = self._map_usage()
        status = os.statvfs(self.directory)
        return DiskUsage(
            used_bytes, map_bytes, status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
        )

    def _map_usage(self) -> tuple[int, int]:
        try:
            info, page_bytes = self._environment.info(), self._environment.stat()["psize"]
        except lmdb.Error:  # it has to be opened again first
            return 0, self._map_bytes
        return (info["last_pgno"] + 1) * page_bytes, info["map_size"]

    def _check_map(self, map_bytes: int) -> None:
        """Raises if the data needs a larger map: LMDB would open it with one that has no room for a write."""
        used_bytes, _ = self._map_usage()
        if used_bytes > map_bytes:
            self._environment.close()
            raise DiskError(
                f"{self.directory} holds {used_bytes:,} bytes, and log.map_bytes is {map_bytes:,}. Set it to "
                f"more than {used_bytes:,}, with room for what is still to be written; nothing has been changed."
            )

    # What the layer above keeps in the same environment

    def table(self, name: str, is_index: bool = False) -> Any:
        """Returns a table, which is created if it does not exist, unless the log has been opened again. A key of
        an index has many values, all of the same size and in order. Not to be called while another thread writes:
        LMDB would wait for that thread, and that thread for the interpreter's lock."""
        try:
            return self._environment.open_db(
                name.encode(), create=not self._is_reopened, dupsort=is_index, dupfixed=is_index
            )
        except lmdb.Error as error:
            if self._is_reopened:
                raise
            raise explained(error, self.directory) from error

    def read(self, table: Any, buffers: bool = False) -> Reading:
        """Returns a transaction that reads this table, as a context manager. With `buffers`, its values are not
        copied, and are not to be used after it."""
        try:
            if buffers:
                return Reading(self._environment.begin(db=table, buffers=True), self.directory)
            return Reading(self._environment.begin(db=table), self.directory)
        except lmdb.Error as error:
            raise unusable(self.directory, error) from error

    # Reading

    def load(self) -> Image:
        """Returns what a node starts with. The bodies of messages that are not green are not in memory then: they
        are read when they are needed. Nor are they meanwhile, but for one batch."""
        self._cache.clear()
        with self.read(self._messages, buffers=True) as transaction:
            lines = record_codec.lines(
                self.unpack(transaction.get(_LINES, db=self._meta), _META + _LINES, "lines")
            )
            value = transaction.get(_YELLOW, db=self._meta)
            position, arrivals = self.unpack(value, _META + _YELLOW, "yellow")
            yellow = Yellow(position, tuple(record_codec.arrivals(arrivals)))
            logged = list(self._entries(transaction, lines.open_from))
        if [entry.arrival for entry in logged] != list(range(lines.open_from, lines.next_arrival)):
            raise self.damaged(f"messages from {lines.open_from} to {lines.next_arrival - 1} are not all there")
        return restore(lines, yellow, logged, digest_of(self.uuid.encode()))

    def body(self, arrival: int) -> bytes:
        return self._record(arrival).body

    def green(self, first: int, count: int) -> Sequence[Entry]:
        """Returns green messages by position; fewer than `count` if there are not so many."""
        return [self._record(arrival).entry() for arrival in self._green_arrivals(first, count)]

    def _green_arrivals(self, first: int, count: int) -> list[int]:
        found: list[int] = []
        with self.read(self._order) as transaction, transaction.cursor() as cursor:
            is_there, end = _seek(cursor, first), None
            while is_there and len(found) < count:
                start = int.from_bytes(cursor.key(), "big")
                if end not in (None, start):
                    raise self.damaged(f"the order goes from {end} to {start}")
                arrivals = self._order_at(cursor)[1]
                end = start + len(arrivals)
                found += arrivals[max(0, first - start) :][: count - len(found)]
                is_there = cursor.next()
        return found

    def green_digest(self, line: int) -> bytes:
        """Returns the digest of the green order up to this line."""
        if line == 0:
            return EMPTY_DIGEST
        with self.read(self._order) as transaction, transaction.cursor() as cursor:
            is_there = _seek(cursor, line - 1)
            start = int.from_bytes(cursor.key(), "big") if is_there else 0
            digest, arrivals = self._order_at(cursor) if is_there else (EMPTY_DIGEST, [])
            if line > start + len(arrivals):
                raise self.damaged(f"the order does not reach {line}")
            if line == start + len(arrivals):
                return digest
            before = self._order_at(cursor)[0] if cursor.prev() else EMPTY_DIGEST
        return chained(before, [self._record(arrival).entry() for arrival in arrivals[: line - start]])

    def _order_at(self, cursor: Any) -> tuple[bytes, list[int]]:
        """Returns the digest of the order at the end of this record, and the record's arrivals."""
        key = cursor.key()
        content = self._verified(cursor.value(), b"order " + key, f"order {int.from_bytes(key, 'big')}")
        return bytes(content[:DIGEST_BYTES]), record_codec.arrivals(content[DIGEST_BYTES:])

    def _record(self, arrival: int) -> Record:
        known = self._cache.find(arrival)
        if known is not None:
            return known
        with self.read(self._messages, buffers=True) as transaction, transaction.cursor() as cursor:
            if not _seek(cursor, arrival):
                raise self.damaged(f"message {arrival} is missing")
            batch, size = self._batch(cursor), len(cursor.value())
        start = batch[0].arrival
        if arrival >= start + len(batch):
            raise self.damaged(f"message {arrival} is missing")
        self._cache.add(batch, size)
        return batch[arrival - start]

    def _entries(self, transaction: Any, first: int) -> Iterator[Entry]:
        """Yields the messages from this arrival on, without bodies."""
        with transaction.cursor(db=self._messages) as cursor:
            is_there = _seek(cursor, first) or cursor.first()
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

    def _identify(self, cluster: str, node: str, is_new_cluster: bool) -> str:
        with self.read(self._meta) as transaction:
            value = transaction.get(_IDENTITY)
            tables = (self._meta, self._messages, self._order)
            is_empty = not any(transaction.stat(table)["entries"] for table in tables)
        if value is None and is_empty:
            return self._initialize(cluster, node, is_new_cluster)
        form, its_cluster, its_node, uuid = self.unpack(value, b"", "identity")
        if form != FORMAT:
            raise DiskError(
                f"{self.directory} was written in format {form}; this version of corelkv reads {FORMAT}. "
                "Use the version that wrote it, or another --data directory; a node that starts with an empty "
                "one takes the log over from nodes that have it."
            )
        if (its_cluster, its_node) != (cluster, node):
            raise DiskError(
                f"{self.directory} belongs to node {its_node} of cluster {its_cluster}, not to {node} of "
                f"{cluster}. Give this node its own --data directory."
            )
        return str(uuid)

    def _check_identity(self) -> None:
        """Raises if this is not the log that was open before: what the node has in memory belongs to that one."""
        with self.read(self._meta) as transaction:
            identity = self.unpack(transaction.get(_IDENTITY), b"", "identity")
        if identity[-1] != self.uuid:
            raise DiskError(
                f"{self.directory} holds another log than the one that this node has opened. Bring that one back, "
                "or restart the node."
            )

    def _initialize(self, cluster: str, node: str, is_new_cluster: bool) -> str:
        uuid = str(uuid4())
        lines = record_codec.lines_to_list(Lines(is_voter=is_new_cluster))
        with self._environment.begin(write=True, db=self._meta) as transaction:
            # Every version of corelkv can read this one, so its checksum covers no place.
            transaction.put(_IDENTITY, pack([FORMAT, cluster, node, uuid], b""))
            transaction.put(_LINES, pack(lines, _META + _LINES))
            transaction.put(_YELLOW, pack([0, b""], _META + _YELLOW))
        return uuid

    # Checksums

    def unpack(self, value: Bytes | None, place: bytes, what: str) -> Any:
        """Returns what `pack` packed. Raises if it is damaged or missing, and says what."""
        try:
            return unpack(value, place)
        except WrongChecksum as error:
            raise self.damaged(f"{what} {error}") from None

    def _verified(self, value: Bytes | None, place: bytes, what: str) -> Bytes:
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


def _open(directory: Path, map_bytes: int, readonly: bool = False) -> lmdb.Environment:
    return lmdb.open(
        str(directory),
        map_size=map_bytes,
        max_dbs=TABLES_MAX,
        max_readers=_READERS_MAX,
        readahead=False,
        readonly=readonly,
    )


def _lock(directory: Path) -> int:
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise DiskError(
            f"{directory} is in use by process {owner}. Two nodes cannot share a --data directory."
        ) from None
    os.truncate(descriptor, 0)
    os.write(descriptor, b"%d\n" % os.getpid())
    return descriptor


def _seek(cursor: Any, number: int) -> bool:
    """Moves to the record that holds this number: the last whose key is not above it. Returns whether there is
    one."""
    if cursor.set_range(_key(number)):
        return bool(cursor.key() == _key(number) or cursor.prev())
    return bool(cursor.last())


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")
