"""A backup file: written whole or not at all, and read with every check that there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


class BackupFailed(Exception):
    """The backup cannot be made, read or restored. The message says what to do."""


class BackupWriter:
    """Writes a file frame by frame."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._frames = FrameWriter()
        self._file.write(self._frames.begin())
        self.bytes = 0

    def add(self, kind: bytes, content: bytes) -> None:
        self.bytes += self._file.write(self._frames.frame(kind, content))

    def end(self) -> None:
        self.bytes += self._file.write(self._frames.end())


@contextmanager
def written(path: Path) -> Iterator[BackupWriter]:
    """Makes a file of what the block adds, and gives it its name when all of it is on disk. If the block raises,
    there is no file."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory: give the name of a file.")
    partial = path.with_name(path.name + PARTIAL)
    try:
        with open(partial, "wb") as file:
            writer = BackupWriter(file)
            yield writer
            writer.end()
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_directory(path.parent)
    except OSError as error:
        raise BackupFailed(f"{path} cannot be written: {error.strerror}. Mend that, and do it again.") from None
    finally:
        partial.unlink(missing_ok=True)


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
    is not to be used if this raises `BackupFailed`."""
    progress: SnapshotProgress | None = None
    open_messages: list[Record] = []
    try:
        with open(path, "rb") as file:
            for kind, content in frames(file):
                if kind == Kind.HEADER and progress is None:
                    progress = SnapshotProgress.begun(content)
                elif kind == Kind.CHUNK and progress is not None:
                    progress, _ = progress.with_chunk(content)
                elif kind == Kind.BATCH and progress is not None:
                    progress, _ = progress.with_batch(content)
                elif kind == Kind.OPEN:
                    open_messages += messages_of(content)
                    continue
                else:
                    raise DamagedSnapshot(f"a frame of kind {kind!r} is not expected there")
                take(kind, content, progress)
        if progress is None:
            raise DamagedSnapshot("it has no header")
        progress.check_whole()
    except DamagedSnapshot as error:
        raise BackupFailed(f"{path} cannot be used: {error}. Use another backup.") from None
    except OSError as error:
        raise BackupFailed(f"{path} cannot be read: {error.strerror}.") from None
    return BackupContent(progress, open_messages)
