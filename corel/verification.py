"""Reading everything that is in a data directory, to find damage that single reads would not notice.

LMDB has no checksums of its pages. A checked value cannot be taken for another one, but a damaged page can hide a
key: then a lookup finds nothing, and nothing is wrong with that. This walks through every table instead: its keys
ascend, a lookup finds each of them, there are as many as the table says, and every checksum is right. The order
leads without a gap from where it begins, which need not be 0, to the green line, and its messages are there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import lmdb

from corel import record_codec
from corel.checked_values import WrongChecksum, unpack, verified
from corel.disk_errors import damaged, explained, is_refused
from corel.lmdb_reading import CUT, FORMAT, IDENTITY, LINES, META
from corel.messages import DIGEST_BYTES
from corel.read_only_log import open_read_only
from corel.trial_write import TRIAL_KEY

UNCHECKED = frozenset({b"ages", b"versions"})
"""Tables whose keys, or values that are in order too, are all there is."""

_PROGRESS_STEP = 1_000
"""After how many records of a table progress is told."""

_INDEXES = frozenset({b"versions"})
"""Tables that have many values for a key, in order."""


Progress = Callable[[int, int], None]
"""Takes how many records have been read so far, and how many there are."""


def verify(directory: Path, progress: Progress = lambda done, total: None) -> int:
    """Returns how many records there are, or raises `DiskError`. A damaged page may make LMDB end the process
    (SIGSEGV, SIGBUS, SIGABRT). The node may run meanwhile; its file grows by what it writes during that time."""
    try:
        with open_read_only(directory) as environment:
            with environment.begin() as transaction:
                names = [bytes(key) for key, _ in transaction.cursor()]
            tables = [(name, environment.open_db(name, create=False)) for name in names]
            with environment.begin(buffers=True) as transaction:
                total = sum(transaction.stat(table)["entries"] for _, table in tables)
                steps = count(_PROGRESS_STEP, _PROGRESS_STEP)
                records = sum(
                    _verify_table(transaction, name, table, directory, lambda: progress(next(steps), total))
                    for name, table in tables
                )
                _verify_order(transaction, dict(tables), directory)
                return records
    except lmdb.Error as error:
        raise (explained(error, directory) if is_refused(error) else damaged(directory, str(error))) from error


def _verify_table(transaction: Any, name: bytes, table: Any, directory: Path, on_step: Callable[[], None]) -> int:
    records, last = 0, (b"", b"")
    is_index = name in _INDEXES
    with transaction.cursor(db=table) as cursor, transaction.cursor(db=table) as lookup:
        for view, value in cursor:
            key = bytes(view)
            place = (key, bytes(value) if is_index else b"")
            where = f"{name.decode(errors='replace')} {key!r}"
            if records and place <= last:
                raise damaged(directory, f"{where} comes after {last[0]!r}")
            if not (
                lookup.set_key_dup(key, value) if is_index else lookup.set_key(key) and lookup.value() == value
            ):
                raise damaged(directory, f"{where} is not found")
            if name not in UNCHECKED and key != TRIAL_KEY:
                try:
                    verified(value, b"" if key == b"identity" else name + b" " + key)
                except WrongChecksum as error:
                    raise damaged(directory, f"{where} {error}") from None
            records, last = records + 1, place
            if records % _PROGRESS_STEP == 0:
                on_step()
    expected = transaction.stat(table)["entries"]
    if records != expected:
        raise damaged(directory, f"{name.decode(errors='replace')} has {records} records, not {expected}")
    return records


def _verify_order(transaction: Any, tables: dict[bytes, Any], directory: Path) -> None:
    """Raises unless the order leads from its beginning to the green line, and its messages are not before the
    first that is there. The checksums of all of this are right."""
    if b"meta" not in tables or transaction.get(LINES, db=tables[b"meta"]) is None:
        return  # not the directory of a node that has run
    identity = transaction.get(IDENTITY, db=tables[b"meta"])
    if identity is not None and unpack(identity, b"")[0] != FORMAT:
        return  # another version's, in which the order has another form
    lines = record_codec.lines(unpack(transaction.get(LINES, db=tables[b"meta"]), META + LINES))
    cut = transaction.get(CUT, db=tables[b"meta"])
    end = 0 if cut is None else unpack(cut, META + CUT)[0]
    with transaction.cursor(db=tables[b"messages"]) as cursor:
        first = int.from_bytes(cursor.key(), "big") if cursor.first() else lines.next_arrival
    with transaction.cursor(db=tables[b"order"]) as cursor:
        for key, value in cursor:
            start = int.from_bytes(key, "big")
            if start != end:
                raise damaged(directory, f"the order goes from {end} to {start}")
            arrivals = record_codec.arrivals(verified(value, b"order " + bytes(key))[DIGEST_BYTES:])
            if min(arrivals) < first:
                raise damaged(directory, f"message {min(arrivals)} is missing")
            end += len(arrivals)
    if end != lines.green:
        raise damaged(directory, f"the order ends at {end}, and is to end at {lines.green}")
