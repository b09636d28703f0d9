"""The log of a node that may be running, read by another process.

The reader is registered in LMDB's table of readers, so that the node does not use the pages again that it reads.
(Without that, a page could change under a transaction: the reader would see damage where there is none.) While a
transaction lasts, the node's file grows by what it writes, so transactions are short here: messages and the green
order never change until they are truncated, and can be read bit by bit. The writer never waits for a reader.

A stopped node's directory may be on a file system that is mounted read-only. LMDB does without the table then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import lmdb

from corel.disk_errors import DiskError, UnusableLog, explained
from corel.lmdb_reading import READERS_MAX, TABLES_MAX, LmdbReader, Reading, seek
from corel.message_queue import chained
from corel.storage import Record

_ORDER_AT_ONCE = 4_096
"""How many positions of the order are read in one transaction, if no record of it has more."""


def open_read_only(directory: Path) -> lmdb.Environment:
    """Opens the environment of a node that may be running. Raises LMDB's errors."""
    lock = directory / "lock.mdb"
    is_new = not lock.exists()
    environment = lmdb.open(
        str(directory),
        map_size=0,  # as large as the node's, which may grow
        readonly=True,
        create=False,
        max_dbs=TABLES_MAX,
        max_readers=READERS_MAX,
        readahead=False,
    )
    if is_new:
        _give_away(lock, directory / "data.mdb")
    return environment


def _give_away(lock: Path, data: Path) -> None:
    """Gives the table of readers, which this process has made, to the node's user, who must be able to use it."""
    with suppress(OSError):
        status = data.stat()
        os.chown(lock, status.st_uid, status.st_gid)


class GreenMessage(NamedTuple):
    position: int
    record: Record
    digest: bytes
    """The digest of the green order up to and including this message."""


class ReadOnlyLog(LmdbReader):
    """The log of a node that may be running. Everything may raise `DiskError`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        try:
            self._environment = open_read_only(directory)
        except lmdb.Error as error:
            raise self._explained(error) from error
        try:
            self._open_tables()
            self.identity = self._read_identity()
            self.uuid = self.identity.uuid
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._environment.close()

    def table(self, name: str, is_index: bool = False) -> Any:
        try:
            return self._environment.open_db(name.encode(), create=False, dupsort=is_index, dupfixed=is_index)
        except lmdb.NotFoundError:
            raise DiskError(
                f"{self.directory / 'data.mdb'} has no table {name!r}: it is not of a node that has run. Give the "
                "--data directory of a node."
            ) from None
        except lmdb.Error as error:
            raise self._explained(error) from error

    def read(self, table: Any, buffers: bool = False) -> Reading:
        try:
            return super().read(table, buffers)
        except UnusableLog as error:
            if isinstance(error.__cause__, lmdb.MapResizedError):  # the node was started with more log.map_bytes
                self._environment.set_mapsize(0)
                return super().read(table, buffers)
            if isinstance(error.__cause__, lmdb.Error):
                raise self._explained(error.__cause__) from error.__cause__
            raise

    def _explained(self, error: lmdb.Error) -> DiskError:
        if isinstance(error, lmdb.ReadonlyError) or "Permission denied" in str(error):
            return DiskError(f"{self.directory} cannot be read: {error}. Do this as the user who runs the node.")
        return explained(error, self.directory)

    # The green order

    def green_messages(self, first: int, line: int) -> Iterator[GreenMessage]:
        """Yields the green messages from this position up to the line. Compares the digests that are on disk with
        what it reads. Raises `Truncated` where they are no longer kept, which may be in the middle: the node goes
        on truncating."""
        position, digest = first, self.green_digest(first)
        while position < line:
            for start, said, arrivals in self._order_from(position):
                for arrival in arrivals[position - start : line - start]:
                    record = self.record(arrival)
                    digest = chained(digest, [record.entry()])
                    yield GreenMessage(position, record, digest)
                    position += 1
                if position == start + len(arrivals) and digest != said:
                    raise self.damaged(f"the messages up to {position} are not those that became green")
                if position == line:
                    return

    def _order_from(self, position: int) -> list[tuple[int, bytes, list[int]]]:
        """Returns records of the order: where each starts, the digest at its end, and its arrivals. The first is
        the one that has this position."""
        found: list[tuple[int, bytes, list[int]]] = []
        end = position
        with self.read(self._order) as transaction, transaction.cursor() as cursor:
            self._check_kept(transaction, position)
            is_there = seek(cursor, position)
            while is_there and end - position < _ORDER_AT_ONCE:
                start = int.from_bytes(cursor.key(), "big")
                if start > end or (found and start != end):
                    raise self.damaged(f"the order goes from {end} to {start}")
                digest, arrivals = self.order_at(cursor)
                found.append((start, digest, arrivals))
                end = start + len(arrivals)
                is_there = cursor.next()
        if end <= position:
            raise self.damaged(f"the order does not reach {position + 1}")
        return found
