"""The space of a simulated disk: a map or a file system that may be full, refuse a write, or have to be opened
again.

It stands for LMDB's environment where the product's trial write needs one, so that the trial is the product's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lmdb

from corel import trial_write
from corel.disk_errors import DiskError, DiskFull, UnusableLog
from corel.storage import LogWrite, Record

UNBOUNDED = float("inf")

RECORD_BYTES = 40
"""What a message takes besides its body."""


def write_bytes(write: LogWrite) -> int:
    """Returns how much of the disk a write takes for good. The lines replace those of before."""
    return record_bytes(write.records) + 8 * len(write.greened)


def record_bytes(records: Iterable[Record]) -> int:
    return sum(RECORD_BYTES + len(record.body) for record in records)


class DiskSpace:
    """The space of one disk. A write fits if what is used and the write together do not exceed the capacity."""

    def __init__(self) -> None:
        self.used_bytes = 0
        self.capacity_bytes = UNBOUNDED
        self.has_room_for_files = True
        """Whether the small files beside the log can be written."""
        self.failures = 0
        """How many of the next writes fail with an input/output error."""
        self.is_unusable = False
        """Whether no transaction can begin until the log is opened again."""
        self.can_be_opened = True
        self.refusals = 0
        """How many writes have been refused, trials not counted."""
        self._refused: Callable[[Any], None] | None = None
        self._trial: dict[bytes, int] = {}

    def limit(self, free_bytes: float) -> None:
        """Makes the disk as small as what is on it and this much more."""
        self.capacity_bytes = self.used_bytes + free_bytes

    def heal(self) -> None:
        self.capacity_bytes = UNBOUNDED
        self.has_room_for_files = self.can_be_opened = True
        self.failures = 0

    def take(self, size: int) -> None:
        """Takes space for a write of this many bytes. Raises, and takes nothing, if the disk refuses it."""
        try:
            self.check_usable()
            if self.failures:
                self.failures -= 1
                raise DiskError("the simulated disk: Input/output error")
            if self.used_bytes + size > self.capacity_bytes:
                raise DiskFull("no room on the simulated disk")
        except DiskError:
            self.refusals += 1
            self._refused = lambda transaction: transaction.put(b"refused", bytes(size))
            raise
        self.used_bytes += size

    def check_usable(self) -> None:
        if self.is_unusable:
            raise UnusableLog("the simulated disk has to be opened again")

    def reopen_if_unusable(self) -> bool:
        if not self.is_unusable:
            return False
        if not self.can_be_opened:
            raise UnusableLog("the simulated disk cannot be opened")
        self.is_unusable = False
        return True

    def try_write(self) -> None:
        """Makes the product's trial write, which leaves nothing behind."""
        self.check_usable()
        if self.failures:
            self.failures -= 1
            raise DiskError("the simulated disk: Input/output error")
        try:
            trial_write.try_write(self, None, self._refused)
        except lmdb.MapFullError as error:
            raise DiskFull(f"no room on the simulated disk: {error}") from error
        self._refused = None

    def check_files(self) -> None:
        """Raises if the small files beside the log cannot be written."""
        if not self.has_room_for_files:
            raise OSError(28, "No space left on the simulated device", str(Path("clock")))

    # What the trial write uses of an environment

    def begin(self, write: bool = False) -> _Transaction:
        return _Transaction(self, dict(self._trial))

    def commit(self, values: dict[bytes, int]) -> None:
        self.used_bytes += sum(values.values()) - sum(self._trial.values())
        self._trial = values

    def has_room(self, values: dict[bytes, int]) -> bool:
        return self.used_bytes + sum(values.values()) - sum(self._trial.values()) <= self.capacity_bytes


class _Transaction:
    """A transaction over the values of a trial, of which only the sizes are kept."""

    def __init__(self, space: DiskSpace, values: dict[bytes, int]) -> None:
        self._space = space
        self._values = values

    def __enter__(self) -> _Transaction:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self._space.commit(self._values)

    def get(self, key: bytes, db: object = None) -> int | None:
        return self._values.get(key)

    def put(self, key: bytes, value: bytes, db: object = None) -> bool:
        self._values[key] = len(value)
        if not self._space.has_room(self._values):
            raise lmdb.MapFullError("simulated")
        return True

    def delete(self, key: bytes, db: object = None) -> bool:
        return self._values.pop(key, None) is not None

    def abort(self) -> None: ...
