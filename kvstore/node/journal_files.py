"""The journal's files: finished ones, which never change, and the one that is being written.

A finished file is `journal-<incarnation>-<number>.jsonl`, so names sort by time. The one that is being written
has a `_` before its name: Spark, and whatever else reads a directory of finished files, skips it until it is
renamed. A file that a killed process left is renamed by the next start, which never appends to it; its last line
may be torn.

Nothing is synced: a process that is killed loses what it had not written, a machine that loses power may lose
more."""

from __future__ import annotations

import os
from pathlib import Path

BLOCK_BYTES = 4_096
"""What a file takes up at least."""


class JournalFiles:
    """The files of one node. Every method may raise `OSError`, and may be called again after that."""

    def __init__(self, directory: Path, bytes_max: int, file_bytes_max: int, file_s: float) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._file_bytes_max = min(file_bytes_max, bytes_max)
        self._file_s = file_s
        self._incarnation = 0
        self._number = 0
        self._descriptor: int | None = None
        self._bytes = 0
        self._opened_at = 0.0

    def begin(self, incarnation: int) -> None:
        """Finishes what is open, and continues with files of this incarnation."""
        self.finish()
        self._incarnation, self._number = incarnation, 0

    def append(self, data: bytes, now: float) -> None:
        """Writes whole lines. If that fails, none of them is in the file."""
        if self._descriptor is not None and self._bytes + len(data) > self._file_bytes_max:
            self.finish()
        if self._descriptor is None:
            self._open(now)
        assert self._descriptor is not None
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            self._cut_off_torn_lines()
            raise
        self._bytes += len(data)

    def finish_if_old(self, now: float) -> None:
        """Finishes the file if it was opened long enough ago, so that followers see what is in it."""
        if self._descriptor is not None and now - self._opened_at >= self._file_s:
            self.finish()

    def finish(self) -> None:
        """Closes the file that is being written, and gives it its final name."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        os.close(descriptor)
        self._open_path().rename(self._directory / self._name())

    def _cut_off_torn_lines(self) -> None:
        """Removes what a failed write left of a line. If even that fails, the file ends here, torn."""
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, self._bytes)
            os.lseek(self._descriptor, self._bytes, os.SEEK_SET)
        except OSError:
            self.finish()

    def _open(self, now: float) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for left_over in sorted(self._directory.glob("_journal-*.jsonl")):
            left_over.rename(self._directory / left_over.name.removeprefix("_"))
        self._delete_oldest()
        self._number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(self._open_path(), flags, 0o644)
        self._bytes, self._opened_at = 0, now

    def _delete_oldest(self) -> None:
        """Deletes the oldest files, so that the rest and a full new one are within the bound."""
        files = sorted(self._directory.glob("journal-*.jsonl"))
        sizes = [max(BLOCK_BYTES, file.stat().st_size) for file in files]
        excess = sum(sizes) + self._file_bytes_max - self._bytes_max
        for file, size in zip(files, sizes, strict=True):
            if excess <= 0:
                return
            file.unlink()
            excess -= size

    def _name(self) -> str:
        return f"journal-{self._incarnation:012}-{self._number:06}.jsonl"

    def _open_path(self) -> Path:
        return self._directory / f"_{self._name()}"
