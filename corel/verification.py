"""Reading everything that is in a data directory, to find damage that single reads would not notice.

LMDB has no checksums of its pages. A checked value cannot be taken for another one, but a damaged page can hide a
key: then a lookup finds nothing, and nothing is wrong with that. This walks through every table instead: its keys
ascend, a lookup finds each of them, there are as many as the table says, and every checksum is right."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import lmdb

from corel.checked_values import WrongChecksum, verified
from corel.disk_errors import damaged
from corel.read_only_log import open_read_only
from corel.trial_write import TRIAL_KEY

_UNCHECKED = frozenset({b"ages", b"versions"})
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
                return sum(
                    _verify_table(transaction, name, table, directory, lambda: progress(next(steps), total))
                    for name, table in tables
                )
    except lmdb.Error as error:
        raise damaged(directory, str(error)) from error


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
            if name not in _UNCHECKED and key != TRIAL_KEY:
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
