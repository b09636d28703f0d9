"""A backup file: written whole or not at all, and read with every check that there is."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from corel import Record
from kvstore.cli.output import UsageError
from kvstore.node import (
    DamagedSnapshot,
    FrameWriter,
    Kind,
    SnapshotProgress,
    frames,
    messages_of,
)

PARTIAL = ".partial"
"""How the name of a file ends that is not whole yet. It is in the same directory, so that it can be renamed."""

_ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a process without a chance to remove what it has begun, unless they are handled. SIGINT raises
`KeyboardInterrupt` already."""


class BackupFailed(Exception):
    """The backup cannot be made, read or restored. The message says what to do."""


class BackupWriter:
    """Writes a file frame by frame."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file = file
        self._path = path
        self._frames = FrameWriter()
        self.bytes = 0
        self._write(self._frames.begin())

    def add(self, kind: bytes, content: bytes) -> None:
        self._write(self._frames.frame(kind, content))

    def end(self) -> None:
        """Writes the trailer; all of the file is on disk when this returns."""
        self._write(self._frames.end())
        with _writing(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def _write(self, content: bytes) -> None:
        with _writing(self._path):
            self.bytes += self._file.write(content)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Says of errors which file cannot be written. Only what writes is in this block: the errors of what is read
    meanwhile are not this file's."""
    try:
        yield
    except OSError as error:
        raise BackupFailed(f"{path} cannot be written: {error.strerror}. Mend that, and do it again.") from None


@contextmanager
def written(path: Path) -> Iterator[BackupWriter]:
    """Makes a file of what the block adds, and gives it its name when all of it is on disk. If the block raises,
    or the process is told to end, there is no file.

    Only its owner can read it, because it holds every value, and nobody else writes to it meanwhile: of two
    backups to one name the last one stays, whole."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory: give the name of a file.")
    with _raising_signals():
        with _writing(path):
            descriptor, name = tempfile.mkstemp(PARTIAL, f".{path.name}.", path.parent)
        file = os.fdopen(descriptor, "wb")
        try:
            writer = BackupWriter(file, path)
            yield writer
            writer.end()
            with _writing(path):
                os.replace(name, path)
                _sync_directory(path.parent)
        finally:
            with suppress(OSError):  # what counts has been synced, and what does not is removed
                file.close()
            with suppress(OSError):
                os.unlink(name)


@contextmanager
def _raising_signals() -> Iterator[None]:
    """Lets signals that end the process raise `SystemExit` in the block, so that it can clean up; the exit status
    is that which a shell gives for the signal. A signal for which something else was said is left as it is: under
    `nohup`, SIGHUP is ignored. This is for the main thread, which alone can say what a signal does."""
    unhandled = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in unhandled:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class BackupContent:
    """What a file was found to hold."""

    def __init__(self, progress: SnapshotProgress, open_messages: list[Record]) -> None:
        self.progress = progress
        self.open_messages = open_messages
        """Messages that are not green, of a survivor whose cluster was lost."""


Take = Callable[[bytes, bytes, SnapshotProgress], None]
"""Takes the kind and the content of a frame, and what there is of the snapshot with it."""


def read_backup(path: Path, take: Take = lambda kind, content, progress: None) -> BackupContent:
    """Reads a file to its end, and hands each part of the snapshot to `take`, after it was checked. What it took
    is not to be used if this raises `BackupFailed`. What `take` raises, this raises."""
    open_messages: list[Record] = []
    for kind, content, progress in _parts(path, open_messages):
        take(kind, content, progress)
    return BackupContent(progress, open_messages)


def _parts(path: Path, open_messages: list[Record]) -> Iterator[tuple[bytes, bytes, SnapshotProgress]]:
    """Yields the parts of the snapshot in a backup, at least one, each with what there is of it up to there, and
    adds to the messages that are not green. Raises `BackupFailed` if the file cannot be read, or is not whole.
    Errors of whoever takes the parts are not raised in here, so they are not taken for errors of the file."""
    progress: SnapshotProgress | None = None
    try:
        with open(path, "rb") as file:
            for kind, content in frames(file):
                if kind == Kind.OPEN and progress is not None:
                    open_messages += messages_of(content)
                else:
                    progress = _following(progress, kind, content)
                    yield kind, content, progress
        if progress is None:
            raise DamagedSnapshot("it has no header")
        progress.check_whole()
    except DamagedSnapshot as error:
        raise unusable(path, error) from None
    except OSError as error:
        raise BackupFailed(f"{path} cannot be read: {error.strerror}.") from None


def _following(progress: SnapshotProgress | None, kind: bytes, content: bytes) -> SnapshotProgress:
    """Returns what there is of the snapshot with this frame. Raises `DamagedSnapshot`."""
    if progress is None:
        if kind == Kind.HEADER:
            return SnapshotProgress.begun(content)
    elif kind == Kind.CHUNK:
        return progress.with_chunk(content)[0]
    elif kind == Kind.BATCH:
        return progress.with_batch(content)[0]
    raise DamagedSnapshot(f"a frame of kind {kind!r} is not expected there")


def unusable(path: Path, error: DamagedSnapshot) -> BackupFailed:
    return BackupFailed(f"{path} cannot be used: {error}. Use another backup.")
