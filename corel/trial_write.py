"""Whether a disk that refused a write would take it now: a trial write of realistic size.

A small write proves nothing. LMDB copies the pages that it changes into pages that earlier transactions freed, so
a write of a few bytes succeeds in a map or on a file system in which the log cannot be appended to any more. A
trial has three parts:

1. In a transaction that is aborted, the write that was refused is made again, then the trial value is put, then a
   reserve. They need new pages in the map, as the log does, and nothing of them stays.
2. The trial value is committed and synced. It is as large as the write that was refused, and at least
   `TRIAL_BYTES_MIN`: this is what notices a full file system or a quota.
3. The trial value is deleted. That needs pages too: copies of the changed ones, and a list of the freed ones. LMDB
   cannot take them from what step 2 has just freed, because the transaction before the last must stay readable.
   Step 1 has shown that the map has this reserve. The file system may lack it, and a crash may come in between:
   the value stays for now, and is deleted by the next trial, or when the log is opened.

The freed pages stay in the file, where the log uses them next. The value is in the log's own table of small
values, because a table for it could not be created in a map that is full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TRIAL_BYTES_MIN = 512 * 1024
"""The smallest trial. A larger one keeps a node away until there is room for more writes; a smaller one lets it
come back to a disk that is soon full again."""

TRIAL_KEY = b"trial"
_RESERVE = b"trial reserve"


def try_write(environment: Any, table: Any, refused: Callable[[Any], None] | None) -> None:
    """Returns if the disk takes a write of realistic size, and raises LMDB's error if not. `refused` puts the
    write that failed into a transaction."""
    remove_trial(environment, table)
    size = _needed_bytes(environment, table, refused)
    with environment.begin(write=True) as transaction:
        transaction.put(TRIAL_KEY, bytes(size), db=table)
    remove_trial(environment, table)


def remove_trial(environment: Any, table: Any) -> None:
    """Deletes what a trial that was interrupted has left, if anything."""
    with environment.begin() as transaction:
        is_there = transaction.get(TRIAL_KEY, db=table) is not None
    if is_there:
        with environment.begin(write=True) as transaction:
            transaction.delete(TRIAL_KEY, db=table)


def _needed_bytes(environment: Any, table: Any, refused: Callable[[Any], None] | None) -> int:
    """Returns the size of the trial value. Raises if the map has no room for it and everything that comes with
    it."""
    transaction = environment.begin(write=True)
    try:
        measured = _Measured(transaction)
        if refused is not None:
            refused(measured)
        size = max(TRIAL_BYTES_MIN, measured.bytes)
        transaction.put(TRIAL_KEY, bytes(size), db=table)
        transaction.put(_RESERVE, bytes(_reserve_bytes(size)), db=table)
    finally:
        transaction.abort()
    return size


def _reserve_bytes(size: int) -> int:
    """Returns what deleting a value of this size may need: a few pages along the paths to it, and the numbers of
    its pages, eight bytes for each of at least 4 KiB."""
    return 65_536 + size // 256


class _Measured:
    """A transaction that counts the bytes that are put into it."""

    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction
        self.bytes = 0

    def put(self, key: bytes, value: bytes, **options: Any) -> Any:
        self.bytes += len(key) + len(value)
        return self._transaction.put(key, value, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)
