"""The journal on disk: one JSON object per line, in rotated files of bounded size.

Entries are effects of the machines; this adds the node's name and both times: `monotonic_ms` to compute with
on one node, `wall_time` to compare nodes by, as far as their clocks agree.

Encoding and writing happen in a thread of their own, behind a bounded queue. A journal that cannot keep up, or
whose disk is full, loses entries and counts them; it never holds up or stops the node.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from queue import Full, Queue
from typing import IO

from transport import Journal

logger = logging.getLogger("corelkv")

FILE_BYTES_MAX = 16 * 1_048_576
FILES_MAX = 8
QUEUE_ENTRIES_MAX = 65_536
COMPLAIN_SECONDS = 10.0
"""At most one log line in this time about entries that could not be written."""


class JournalWriter:
    """Appends to `journal-<number>.jsonl` in a directory; the oldest files are deleted when there are too many."""

    def __init__(
        self,
        directory: Path,
        node: str,
        file_bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
        queue_entries_max: int = QUEUE_ENTRIES_MAX,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.lost = 0
        """Entries that were not written, because the queue or the disk was full."""
        self._directory = directory
        self._node = node
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._file: IO[str] | None = None
        self._bytes = 0
        self._complained_at = float("-inf")
        self._queue: Queue[tuple[Journal, float, float] | None] = Queue(queue_entries_max)
        self._thread = threading.Thread(target=self._run, name=f"journal-{node}", daemon=True)
        self._thread.start()

    def write(self, entry: Journal, monotonic_ms: float) -> None:
        try:
            self._queue.put_nowait((entry, monotonic_ms, time.time()))
        except Full:
            self.lost += 1

    def close(self) -> None:
        """Writes the queued entries, and ends the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._write(*item)
                if self._file is not None and self._queue.empty():
                    self._file.flush()
            except (OSError, ValueError) as error:
                self._give_up_entry(error)
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._give_up_entry(error)

    def _write(self, entry: Journal, monotonic_ms: float, wall_time: float) -> None:
        line = {
            "node": self._node,
            "event": entry.event,
            "id": entry.id,
            "reason": entry.reason,
            "monotonic_ms": round(monotonic_ms, 3),
            "wall_time": wall_time,
            **entry.details,
        }
        if self._file is None or self._bytes >= self._file_bytes_max:
            self._open_next()
        assert self._file is not None
        self._bytes += self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def _open_next(self) -> None:
        if self._file is not None:
            self._file.close()
        numbers = sorted(int(path.stem.rpartition("-")[2]) for path in self._directory.glob("journal-*.jsonl"))
        for number in numbers[: max(0, len(numbers) + 1 - self._files_max)]:
            self._path(number).unlink()
        self._file = open(self._path(numbers[-1] + 1 if numbers else 1), "w")  # noqa: SIM115  # kept open
        self._bytes = 0

    def _give_up_entry(self, error: Exception) -> None:
        self.lost += 1
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = now
            logger.warning(
                "cannot write the journal in %s (%d entries lost): %s", self._directory, self.lost, error
            )

    def _path(self, number: int) -> Path:
        return self._directory / f"journal-{number:06}.jsonl"
