"""Two numbers that must survive a crash before anything that depends on them leaves the node, each in a file of
its own.

The **incarnation** tells the starts of this node apart. It makes every message id and every timestamp unique
across restarts, so it must never go back. That of a process's first start is the wall clock in milliseconds, or
one more than the last start's where the clock is not beyond that. So a node whose disk was replaced is above
anything it can have had, and two processes that are started from copies of one disk are not the same machine. A
process that starts again by itself, because its disk works again, counts on by one: of two processes of one name,
the one that somebody started last stays the newer one (decision 7). A file that cannot be
read is an error, not a new beginning.

The **clock floor** is how far the Lamport clock of this node has come. A restarted node begins above it, so
timestamps of messages and ids of views ascend across restarts. The clock is not written for every tick: a block of
it is reserved ahead, and the next block is reserved before anything beyond it leaves the node.

What a start has reserved and not used is skipped by the next one, and peers that do not hear the node meanwhile
take a clock that is `clock_jump_max` (2^40) ahead of theirs for an error. So the blocks of a start begin small,
and each is twice as large as the one before: a start that has used n ticks adds at most 2n + `CLOCK_BLOCK_FIRST`
to the clock. In a crash loop, whose starts use next to nothing, 2^40 is reached after 2^30 starts: at one a
second, after 34 years. A message is a tick. The first million messages of a start cost ten syncs and the first
sixteen million fourteen; from then on there is one in sixteen million.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from corel import Lines
from transport import SEQUENCE_MAX

_INCARNATION_FILE = "incarnation"
_CLOCK_FILE = "clock"

CLOCK_BLOCK_FIRST = 2**10
"""How much of the clock the first reservation of a start takes. A larger block saves the syncs of its first
messages; a start that ends at once adds this much to the clock."""

CLOCK_BLOCK_MAX = 2**24
"""How large a block becomes. A larger block is written less often; a restart skips up to this much."""


class SyncedNumberError(Exception):
    """The incarnation or the clock floor cannot be read. The message says what to do."""


def next_incarnation(directory: Path, is_new_process: bool = True) -> int:
    """Returns a number for this start, which no earlier or later start has, and keeps it."""
    _make_directory(directory)
    path = directory / _INCARNATION_FILE
    last = _read(path)
    incarnation = 1 if last is None else last + 1
    if is_new_process or last is None:
        incarnation = max(incarnation, int(time.time() * 1_000.0))
    write_number(path, incarnation)
    return incarnation


def begin_after(directory: Path, node: str, lines: Lines) -> None:
    """Ensures that the first start of a node in this directory has an incarnation above all that a log which it
    was given knows of it, even if the wall clock is behind."""
    known = [stream.incarnation for stream, _ in lines.streams if stream.name == node]
    known += [incarnation for name, incarnation in lines.folded if name == node]
    if known:
        write_number(directory / _INCARNATION_FILE, max(known))


def _read(path: Path) -> int | None:
    try:
        return read_number(path)
    except ValueError as error:
        raise SyncedNumberError(
            f"{error}. If you know the node's last incarnation, write a higher number into it; otherwise remove "
            "the file, and the node will begin at the wall clock's milliseconds."
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
        self._block = CLOCK_BLOCK_FIRST
        self.clock = self._reserved
        """Where this start's clock begins: above every view this node has had."""

    def raise_above(self, clock: int) -> None:
        """Ensures that the next start begins above this clock, before anything with it leaves the node. Blocks for
        a sync when the reserved block is used up. If the disk refuses it (`OSError`), nothing is reserved."""
        if clock >= self._reserved:
            write_number(self._path, clock + self._block)
            self._reserved = clock + self._block
            self._block = min(2 * self._block, CLOCK_BLOCK_MAX)


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
