"""The log on disk: one LMDB environment per node, one synced transaction per `LogWrite`.

    table      key                             value
    messages   arrival of its first message    a batch of messages, as one write brought them
    order      position of its first message   the digest of the order up to its end, and the arrivals of the
                                               messages that one write made green
    meta       "identity", "lines", "yellow"

What is before `Lines.cut` is deleted with later checkpoints (`lmdb_truncation`, which has a table of its own).

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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import lmdb

from corel import record_codec
from corel.checked_values import Bytes as Bytes
from corel.checked_values import ValuePacker as ValuePacker
from corel.checked_values import checked as checked
from corel.checked_values import pack as pack
from corel.config import MAP_BYTES
from corel.disk_errors import DiskError, UnusableLog, explained, unusable
from corel.lmdb_reading import (
    FORMAT,
    IDENTITY,
    LINES,
    META,
    READERS_MAX,
    TABLES_MAX,
    UPGRADABLE,
    UPGRADING,
    YELLOW,
    LmdbReader,
    key_of,
)
from corel.lmdb_reading import Reading as Reading
from corel.lmdb_truncation import Tables, Truncation, at_once
from corel.lmdb_upgrade import OrderUpgrade, Progress
from corel.lmdb_upgrade import finish as finish_upgrade
from corel.storage import Lines, LogWrite
from corel.trial_write import remove_trial, try_write


class DiskUsage(NamedTuple):
    """How full a node's disk is, in bytes."""

    used_bytes: int
    """The part of the map that has been used so far, which is the size of the file. Pages in it that are free at
    the moment are counted: a large write may not find enough of them side by side."""
    map_bytes: int
    file_system_bytes: int
    free_bytes: int
    """What the file system has left for this process."""


class LmdbLog(LmdbReader):
    """The log of one node. `is_new_cluster` lets an empty log vote: there is nothing that its disk can have
    lost."""

    def __init__(
        self,
        directory: Path,
        cluster: str,
        node: str,
        is_new_cluster: bool = False,
        map_bytes: int = MAP_BYTES,
        on_upgrade: Progress = lambda done, total: None,
        upgrade: Callable[[LmdbLog], None] = lambda log: None,
    ) -> None:
        """`on_upgrade` is told how far it is that a disk of an older format is brought to this one. `upgrade` does
        what the layer above has to do for that first; if it was interrupted, it goes on."""
        super().__init__(directory)
        self._on_upgrade = on_upgrade
        self._map_bytes = map_bytes
        self._is_read_only = self._is_reopened = False
        self._added = 0
        """How many messages have become green since the log was last truncated."""
        self._refused: Callable[[Any], None] | None = None
        """What the last write that failed would have put."""
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = lock_directory(directory)
        try:
            self._environment = _open(directory, map_bytes)
        except lmdb.Error as error:
            os.close(self._lock)
            raise explained(error, directory) from error
        try:
            self._open_tables()
            self._check_map(map_bytes)
            self.uuid = self._identify(cluster, node, is_new_cluster, upgrade)
        except BaseException as error:
            self.close()
            if isinstance(error, lmdb.Error):
                raise explained(error, directory) from error
            raise
        with contextlib.suppress(lmdb.Error):  # without room for this there is none for a write either: see there
            remove_trial(self._environment, self._meta)

    def _open_tables(self) -> None:
        super()._open_tables()
        self._tables = Tables(self._messages, self._order, self._meta, self.table("truncated"))

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
        tables of its own; with it, a part of what is before the cut is deleted."""
        self._commit(partial(self._put, write, also))
        self._added = self._added + len(write.greened) if also is None else 0

    def update(self, change: Callable[[Any], None]) -> None:
        """Runs `change` in a transaction that adds nothing to the log; a part of what is before the cut is deleted
        with it."""
        self._commit(partial(self._put_alone, change))
        self._added = 0

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
            key = key_of(write.records[0].arrival)
            value = pack(record_codec.records_to_list(write.records), b"messages " + key)
            self._append(transaction, self._messages, key, value)
        if write.greened:
            key = key_of(write.lines.green - len(write.greened))
            content = write.lines.green_digest + record_codec.arrivals_to_bytes(write.greened)
            self._append(transaction, self._order, key, checked(content, b"order " + key))
        if write.yellow is not None:
            arrivals = record_codec.arrivals_to_bytes(write.yellow.arrivals)
            transaction.put(YELLOW, pack([write.yellow.position, arrivals], META + YELLOW), db=self._meta)
        transaction.put(LINES, pack(record_codec.lines_to_list(write.lines), META + LINES), db=self._meta)
        if also is not None:
            self._truncate(transaction, write.lines, len(write.greened))

    def _put_alone(self, change: Callable[[Any], None], transaction: Any) -> None:
        lines = self._lines(transaction)
        change(transaction)
        self._truncate(transaction, lines, 0)

    def _truncate(self, transaction: Any, lines: Lines, added: int) -> None:
        Truncation(self, self._tables, transaction).truncate(lines, at_once(self._added + added))

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

    def forget_dead_readers(self) -> None:
        """Forgets processes that were killed while they read this log (`corel.read_only_log`): the pages that they
        read would never be used again."""
        with contextlib.suppress(lmdb.Error):  # it has to be opened again first
            self._environment.reader_check()

    def _check_map(self, map_bytes: int) -> None:
        """Raises if the data needs a larger map: LMDB would open it with one that has no room for a write."""
        used_bytes, _ = self._map_usage()
        if used_bytes > map_bytes:
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

    # Identity

    def _identify(self, cluster: str, node: str, is_new_cluster: bool, upgrade: Callable[[LmdbLog], None]) -> str:
        with self.read(self._meta) as transaction:
            is_new = transaction.get(IDENTITY) is None
            tables = (self._meta, self._messages, self._order)
            is_empty = not any(transaction.stat(table)["entries"] for table in tables)
        if is_new and is_empty:
            return self._initialize(cluster, node, is_new_cluster)
        its_cluster, its_node, uuid, form = self._read_identity(UPGRADABLE)
        if (its_cluster, its_node) != (cluster, node):
            raise DiskError(
                f"{self.directory} belongs to node {its_node} of cluster {its_cluster}, not to {node} of "
                f"{cluster}. Give this node its own --data directory."
            )
        if form != FORMAT:
            self._put_identity(UPGRADING, cluster, node, uuid)
            upgrade(self)
            self._upgrade(cluster, node, uuid)
        return uuid

    def _upgrade(self, cluster: str, node: str, uuid: str) -> None:
        """Brings a disk of an older format to this one."""
        with self.read(self._meta) as transaction:
            lines = self._lines(transaction)
            position, arrivals = self.unpack(transaction.get(YELLOW), META + YELLOW, "yellow")
        yellow = record_codec.arrivals(arrivals)[max(0, lines.green - position) :]
        lines = OrderUpgrade(self, self._meta, self._order, self.update, self._on_upgrade).run(lines, yellow)
        with self._environment.begin(write=True, db=self._meta) as transaction:
            finish_upgrade(transaction, self._meta, lines)
            transaction.put(IDENTITY, pack([FORMAT, cluster, node, uuid], b""))

    def _put_identity(self, form: int, cluster: str, node: str, uuid: str) -> None:
        with self._environment.begin(write=True, db=self._meta) as transaction:
            transaction.put(IDENTITY, pack([form, cluster, node, uuid], b""))

    def _check_identity(self) -> None:
        """Raises if this is not the log that was open before: what the node has in memory belongs to that one."""
        if self._read_identity().uuid != self.uuid:
            raise DiskError(
                f"{self.directory} holds another log than the one that this node has opened. Bring that one back, "
                "or restart the node."
            )

    def _initialize(self, cluster: str, node: str, is_new_cluster: bool) -> str:
        uuid = str(uuid4())
        lines = record_codec.lines_to_list(Lines(is_voter=is_new_cluster))
        with self._environment.begin(write=True, db=self._meta) as transaction:
            # Every version of corelkv can read this one, so its checksum covers no place.
            transaction.put(IDENTITY, pack([FORMAT, cluster, node, uuid], b""))
            transaction.put(LINES, pack(lines, META + LINES))
            transaction.put(YELLOW, pack([0, b""], META + YELLOW))
        return uuid


def _open(directory: Path, map_bytes: int, readonly: bool = False) -> lmdb.Environment:
    return lmdb.open(
        str(directory),
        map_size=map_bytes,
        max_dbs=TABLES_MAX,
        max_readers=READERS_MAX,
        readahead=False,
        readonly=readonly,
    )


def lock_directory(directory: Path) -> int:
    """Takes a data directory for this process, until the descriptor that it returns is closed."""
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
