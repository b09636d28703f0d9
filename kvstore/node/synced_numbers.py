"""Two numbers that must survive a crash before anything that depends on them leaves the node, each in a file of
its own.

The **incarnation** counts the starts of this node. It makes every message id and every timestamp unique across
restarts, so it must never go back. A new cluster's nodes begin at 1. A node that finds no record of itself in an
existing cluster, because its disk was replaced, begins at the wall clock's seconds, which is above anything it can
have had, and counts on from there. A file that cannot be read is an error, not a new beginning.

The **clock floor** is how far the Lamport clock of this node has come. A restarted node begins above it, so
timestamps of messages and ids of views ascend across restarts. The clock is not written for every tick: a block of
it is reserved ahead, and the next block is reserved before anything beyond it leaves the node.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from transport import SEQUENCE_MAX

_INCARNATION_FILE = "incarnation"
_CLOCK_FILE = "clock"

CLOCK_BLOCK = 2**24
"""How much of the clock is reserved at a time. A larger block is written less often; every restart skips up to
this much."""


class SyncedNumberError(Exception):
    """The incarnation or the clock floor cannot be read. The message says what to do."""


def next_incarnation(directory: Path, is_new_cluster: bool) -> int:
    """Counts this start and returns its number, which no earlier or later start has."""
    _make_directory(directory)
    path = directory / _INCARNATION_FILE
    first = 1 if is_new_cluster else int(time.time())
    last = _read(path)
    incarnation = first if last is None else last + 1
    write_number(path, incarnation)
    return incarnation


def _read(path: Path) -> int | None:
    try:
        return read_number(path)
    except ValueError as error:
        raise SyncedNumberError(
            f"{error}. If you know the node's last incarnation, write a higher number into it; otherwise remove "
            "the file, and the node will begin at the wall clock's seconds."
        ) from None


class ClockFloor:
    """The clock floor in one data directory, which must exist."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _CLOCK_FILE
        try:
            self._reserved = read_number(self._path) or 1
        except ValueError as error:
            raise SyncedNumberError(
                f"{error}. If other nodes of the cluster run, remove the file: this node will take the clock over "
                "from them when it joins, but its views until then may be numbered below earlier ones."
            ) from None
        self.clock = self._reserved
        """Where this start's clock begins: above every view this node has had."""

    def raise_above(self, clock: int) -> None:
        """Ensures that the next start begins above this clock, before anything with it leaves the node. Blocks for
        a sync when the reserved block is used up."""
        if clock >= self._reserved:
            self._reserved = clock + CLOCK_BLOCK
            write_number(self._path, self._reserved)


def read_number(path: Path) -> int | None:
    """Returns the number in a file, or None if there is no file. Raises `ValueError` if the file is damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    text = content.strip()
    if not content.endswith(b"\n") or not text.isdigit() or not 0 < int(text) < SEQUENCE_MAX:
        raise ValueError(f"{path} is damaged ({content[:40]!r})")
    return int(text)


def write_number(path: Path, number: int) -> None:
    """Replaces the number in a file; it is on disk when this returns."""
    temporary = path.with_suffix(".new")
    with open(temporary, "wb") as file:
        file.write(b"%d\n" % number)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync_directory(path.parent)


def _make_directory(directory: Path) -> None:
    """Makes a directory and its parents, each of them synced so that it is there after a crash."""
    if not directory.is_dir():
        _make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
