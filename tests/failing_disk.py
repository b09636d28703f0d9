"""A disk that refuses LMDB's meta pages and nothing else, after which LMDB refuses every transaction."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def refuse_meta_writes(directory: Path) -> None:
    """Makes every write of a meta page fail, in the environment that this process has open there now. LMDB writes
    them through a descriptor of their own, the only one that syncs each write; it is made to lead to a device that
    is always full."""
    file = str((directory / "data.mdb").resolve())
    found = [number for number in _descriptors(file) if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_DSYNC]
    if len(found) != 1:
        raise LookupError(f"{file} is not open once for writing: {found}")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, found[0], inheritable=False)
    os.close(full)


def _descriptors(file: str) -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == file:
                found.append(int(name))
        except FileNotFoundError:  # the listing's own descriptor
            continue
    return found
