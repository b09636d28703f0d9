"""The incarnation: which start of this node this is, synced to disk before its first datagram.

It makes every message id and every timestamp unique across restarts, so it must never go back. A new cluster's
nodes begin at 1. A node that finds no record of itself in an existing cluster (its disk was replaced) begins at
the wall clock's seconds, which is above anything it can have had, and counts on from there. A record that cannot
be read is an error, not a new beginning.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from transport.messages import SEQUENCE_MAX

_FILE = "incarnation"


class IncarnationError(Exception):
    """The incarnation cannot be known. The message says what to do."""


def next_incarnation(directory: Path, is_new_cluster: bool) -> int:
    """Counts this start and returns its number, which no earlier or later start has."""
    _make_directory(directory)
    path = directory / _FILE
    first = 1 if is_new_cluster else int(time.time())
    last = _read(path)
    incarnation = first if last is None else last + 1
    write_number(path, incarnation)
    return incarnation


def _read(path: Path) -> int | None:
    try:
        return read_number(path)
    except ValueError as error:
        raise IncarnationError(
            f"{error}. If you know the node's last incarnation, write a higher number into it; otherwise remove "
            "the file, and the node will begin at the wall clock's seconds."
        ) from None


def read_number(path: Path) -> int | None:
    """The number in a file, or none if there is no file."""
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
    """With its parents, each of them certain to be there after a crash."""
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
