"""Building the log of a node beside the one that it has, and putting it in that one's place.

What another node has handed out is written record by record, each in the transaction that notes how far this has
got. So it goes on after a crash where it was. The last transaction makes a whole log of it.

Then the file of the old log is replaced by the new one, which is atomic. The file with LMDB's table of readers is
removed before: it belongs to the old file, and a process that reads that one would make LMDB keep it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from corel import record_codec
from corel.checked_values import WrongChecksum, checked, pack, verified
from corel.disk_errors import DiskError
from corel.learning import TakenOver
from corel.lmdb_log import LmdbLog, lock_directory
from corel.lmdb_reading import CUT, LINES, META, YELLOW, LmdbReader, key_of
from corel.message_queue import chained
from corel.messages import identity_of
from corel.pinned_log import LINEAGE
from corel.storage import Lines, Record
from corel.verification import UNCHECKED

_TRANSFER = b"transfer"
_WHOLE = b"whole "
"""What the record of the progress begins with when the log has been completed, and from then on."""
_DATA, _READERS = "data.mdb", "lock.mdb"
_BATCH_BYTES = 262_144


class UnfitRecord(Exception):
    """A record does not belong where it is to be put, or is damaged. The message says which."""


class LogBuilder(LmdbLog):
    """A log that is being built in a directory of its own."""

    def _truncate(self, transaction: Any, lines: Lines, added: int) -> None:
        """Leaves everything: its lines say what is there only when it is whole."""

    def progress(self) -> Any:
        """Returns what the last transaction noted; None if there was none yet."""
        return _noted_in(self)

    def note(self, progress: object) -> None:
        """Notes how far this has got."""
        self.update(lambda transaction: self._note(transaction, progress))

    def put_records(self, name: str, records: Sequence[tuple[bytes, bytes]], progress: object) -> None:
        """Puts records of a table (`check_records`), which follow all that are there, unchanged."""
        table = self.table(name)

        def put(transaction: Any) -> None:
            for key, value in records:
                self._append(transaction, table, key, value)
            self._note(transaction, progress)

        self.update(put)

    def put_green(self, position: int, digest: bytes, records: Sequence[Record], progress: object) -> None:
        """Puts green messages, which follow those that are there; `digest` is that of the order before them. Their
        arrivals say where they are."""

        def put(transaction: Any) -> None:
            self._put_messages(transaction, records)
            key = key_of(position)
            after = chained(digest, [record.entry() for record in records])
            arrivals = record_codec.arrivals_to_bytes([record.arrival for record in records])
            self._append(transaction, self._order, key, checked(after + arrivals, b"order " + key))
            self._note(transaction, progress)

        self.update(put)

    def complete(
        self,
        taken: TakenOver,
        cut_digest: bytes,
        lineage: Sequence[object],
        replaced: Lines | None,
    ) -> None:
        """Makes a whole log of it, at once or not at all, to take the place of one with these lines. Of the
        records of `taken`, the green ones are there already."""
        lines = taken.lines

        def put(transaction: Any) -> None:
            for batch in _batches(taken.records):
                self._put_messages(transaction, batch)
            arrivals = record_codec.arrivals_to_bytes(taken.yellow.arrivals)
            self._put_meta(transaction, YELLOW, [taken.yellow.position, arrivals])
            self._put_meta(transaction, LINES, record_codec.lines_to_list(lines))
            self._put_meta(transaction, CUT, [lines.cut, cut_digest])
            self._put_meta(transaction, LINEAGE, list(lineage))
            self._note(transaction, _WHOLE + state_of(replaced))

        self.update(put)

    def _put_messages(self, transaction: Any, records: Sequence[Record]) -> None:
        key = key_of(records[0].arrival)
        value = pack(record_codec.records_to_list(records), b"messages " + key)
        self._append(transaction, self._messages, key, value)

    def _note(self, transaction: Any, progress: object) -> None:
        self._put_meta(transaction, _TRANSFER, progress)

    def _put_meta(self, transaction: Any, key: bytes, item: object) -> None:
        transaction.put(key, pack(item, META + key), db=self._meta)


def _batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Yields records in parts that are hardly larger than a write of a node that runs: a message is read together
    with its batch."""
    first = size = 0
    for end, record in enumerate(records, 1):
        size += len(record.body)
        if size >= _BATCH_BYTES or end == len(records):
            yield records[first:end]
            first, size = end, 0


def replaced_by(log: LmdbReader) -> bytes | None:
    """Returns which state of the node's log a log that was built is to take the place of (`state_of`); None if it
    has not been completed."""
    noted = _noted_in(log)
    return noted.removeprefix(_WHOLE) if isinstance(noted, bytes) else None


def _noted_in(log: LmdbReader) -> Any:
    with log.read(log.table("meta")) as transaction:
        value = transaction.get(_TRANSFER)
    return None if value is None else log.unpack(value, META + _TRANSFER, "how far it has got")


def state_of(lines: Lines | None) -> bytes:
    """Returns a short name for the state of a log, or of none."""
    return b"" if lines is None else identity_of(pack(record_codec.lines_to_list(lines), b""))


def check_records(name: str, after: bytes, records: Sequence[tuple[bytes, bytes]]) -> None:
    """Raises `UnfitRecord` unless these are whole records of a table, in order, after this key."""
    table = name.encode()
    for key, value in records:
        if key <= after:
            raise UnfitRecord(f"{name} {key!r} comes after {after!r}")
        after = key
        if table not in UNCHECKED:
            try:
                verified(value, table + b" " + key)
            except WrongChecksum as error:
                raise UnfitRecord(f"{name} {key!r} {error}") from None


def remove_log(directory: Path) -> None:
    """Removes a log that was being built, if there is one, and for good: after a crash it is not there again."""
    if directory.exists():
        try:
            (directory / _DATA).unlink(missing_ok=True)
            sync_directory(directory)
        except OSError as error:
            raise DiskError(
                f"{directory} cannot be removed: {error}. Remove it, and start the node again."
            ) from error
        shutil.rmtree(directory, ignore_errors=True)


def replace_log(directory: Path, built: Path) -> None:
    """Puts the log that was built in this directory into the place of the one that a data directory has, if any.
    Raises `DiskError` if a process uses one of them."""
    locks = [lock_directory(directory), lock_directory(built)]
    try:
        sync_directory(built)
        (directory / _READERS).unlink(missing_ok=True)
        os.replace(built / _DATA, directory / _DATA)
        sync_directory(directory)
        sync_directory(built)
    except OSError as error:
        raise DiskError(
            f"the log in {built} cannot be put into its place in {directory}: {error}. Mend that; a node that is "
            "stopped meanwhile goes on with it when it is started again."
        ) from error
    finally:
        for lock in locks:
            os.close(lock)
    remove_log(built)


def sync_directory(directory: Path) -> None:
    """Returns when the names of the files in a directory are on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
