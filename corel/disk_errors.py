"""What can be wrong with a disk: errors whose sentences say what to do.

The log on disk raises them, and translates into them what LMDB reports."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import lmdb

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_FREE_BYTES_MIN = 4 * 1024**2
"""LMDB reports a write that was cut short as an input/output error. With less free space than this, such an error
is taken for a full disk."""
_DAMAGE = (
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)


class DiskError(Exception):
    """The store cannot be used. The message says what to do."""


class DiskFull(DiskError):
    """There is no space for the write. Nothing of it is on disk; everything before it is."""


class DamagedLog(DiskError):
    """Something on disk is not what was written there. Writing again does not mend it."""


class Truncated(DiskError):
    """What was to be read is no longer kept. `first` is the first position of the order that is."""

    def __init__(self, directory: Path, first: int) -> None:
        super().__init__(
            f"the log in {directory} is kept from position {first} on; what was before that has been truncated, "
            f"beyond log.messages_kept or log.bytes_kept. Read it from {first} on."
        )
        self.first = first


class StalledDisk(DiskError):
    """A write takes too long."""


class UnusableLog(DiskError):
    """No transaction can begin until the environment is opened again. Nothing on disk is known to be damaged."""


def explained(error: lmdb.Error, directory: Path) -> DiskError:
    """Returns what an error of LMDB means for the user, with what to do."""
    text = str(error)
    if isinstance(error, lmdb.MapFullError):
        return DiskFull(
            f"no room in {directory}: the log has reached log.map_bytes. Raise log.map_bytes on every node, and "
            "restart them one by one; nothing is lost, and reads go on until then."
        )
    is_full = any(os.strerror(n) in text for n in _DISK_FULL_ERRORS)
    if is_full or (os.strerror(errno.EIO) in text and _free_bytes(directory) < _FREE_BYTES_MIN):
        return DiskFull(f"no room in {directory}: {error}. Make room; the node takes writes again by itself.")
    if isinstance(error, lmdb.ReadonlyError) or os.strerror(errno.EROFS) in text:
        return DiskError(f"{directory} cannot be written: {error}. Remount it writable; the node goes on then.")
    if is_refused(error):
        return DiskError(f"{directory} cannot be used: {error}. Do this as the user who runs the node.")
    if isinstance(error, lmdb.PanicError):
        return unusable(directory, error)
    if isinstance(error, _DAMAGE):
        return damaged(directory, str(error))
    return DiskError(f"{directory}: {error}")


def is_refused(error: Exception) -> bool:
    """Whether the operating system does not let this user do it."""
    return any(os.strerror(number) in str(error) for number in (errno.EACCES, errno.EPERM))


def damaged(directory: Path, why: str) -> DamagedLog:
    """Returns the error that a damaged log is, with what to do."""
    return DamagedLog(
        f"{directory / 'data.mdb'} is damaged ({why}). Move the directory away and start the node again: it takes "
        "the log over from the others, and votes again when it has recovered with half of them. What it alone had "
        "is lost."
    )


def unusable(directory: Path, error: lmdb.Error) -> UnusableLog:
    return UnusableLog(f"{directory} cannot be used now: {error}. The node opens it again by itself.")


def _free_bytes(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize
