"""The incarnation: how many times this node has started, synced to disk before its first datagram.

It makes every message id and every timestamp unique across restarts, so it must never go back: a file that
cannot be read is an error, not a new beginning.
"""

from __future__ import annotations

import os
from pathlib import Path

from transport.messages import SEQUENCE_MAX

_FILE = "incarnation"


class IncarnationError(Exception):
    """The incarnation cannot be known. The message says what to do."""


def next_incarnation(directory: Path) -> int:
    """Counts this start and returns its number, which no earlier or later start has."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _FILE
    incarnation = _read(path) + 1
    temporary = path.with_suffix(".new")
    with open(temporary, "wb") as file:
        file.write(b"%d\n" % incarnation)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # the rename itself must survive a crash
    finally:
        os.close(descriptor)
    return incarnation


def _read(path: Path) -> int:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0
    text = content.strip()
    if not content.endswith(b"\n") or not text.isdigit() or not 0 < int(text) < SEQUENCE_MAX:
        raise IncarnationError(
            f"{path} is damaged ({content[:40]!r}). If you know the node's last incarnation, write a higher "
            "number into it; otherwise remove the data directory and let the node start empty."
        )
    return int(text)
