"""The journal on disk: one JSON object per line, in rotated files of bounded size.

Entries are effects of the machines; this adds the node's name and both times: `monotonic_ms` to compute with
on one node, `wall_time` to compare nodes by, as far as their clocks agree.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from transport.effects import Journal

FILE_BYTES_MAX = 16 * 1_048_576
FILES_MAX = 8


class JournalWriter:
    """Appends to `journal-<number>.jsonl` in a directory; the oldest files go when there are too many."""

    def __init__(
        self,
        directory: Path,
        node: str,
        file_bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._node = node
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._open_next()

    def write(self, entry: Journal, monotonic_ms: float) -> None:
        line = {
            "node": self._node,
            "event": entry.event,
            "id": entry.id,
            "reason": entry.reason,
            "monotonic_ms": round(monotonic_ms, 3),
            "wall_time": time.time(),
            **entry.details,
        }
        if self._bytes >= self._file_bytes_max:
            self._file.close()
            self._open_next()
        self._bytes += self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _open_next(self) -> None:
        numbers = sorted(int(path.stem.rpartition("-")[2]) for path in self._directory.glob("journal-*.jsonl"))
        for number in numbers[: max(0, len(numbers) + 1 - self._files_max)]:
            self._path(number).unlink()
        self._file = open(self._path(numbers[-1] + 1 if numbers else 1), "w")  # noqa: SIM115  # kept open
        self._bytes = 0

    def _path(self, number: int) -> Path:
        return self._directory / f"journal-{number:06}.jsonl"
