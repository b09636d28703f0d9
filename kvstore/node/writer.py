"""The thread that writes to disk: while one write syncs, the log gathers the next (group commit)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from corel import Persist
from corel.disk_errors import DiskError
from corel.lmdb_log import LmdbLog


class CheckpointJob(NamedTuple):
    """A checkpoint of the store, to be written to the same disk as the log."""

    put: Callable[[Any], None]
    """Puts it into a transaction, in the writing thread."""
    done: Callable[[float], None]
    """Called on the event loop when it is on disk, with the seconds that this took."""


class Writer:
    """Executes writes in order. The callbacks run on the event loop; `on_persisted` is told the token of the write
    and the seconds that it took."""

    def __init__(
        self,
        log: LmdbLog,
        loop: asyncio.AbstractEventLoop,
        on_persisted: Callable[[int, float], None],
        on_failed: Callable[[DiskError], None],
    ) -> None:
        self._log = log
        self._loop = loop
        self._on_persisted = on_persisted
        self._on_failed = on_failed
        self._queue: SimpleQueue[tuple[Persist | None, CheckpointJob | None] | None] = SimpleQueue()
        self._since: float | None = None
        self.writes = 0
        """How many writes have been made."""
        self._thread = threading.Thread(target=self._run, name="corelkv-writer", daemon=True)
        self._thread.start()

    def submit(self, persist: Persist, checkpoint: CheckpointJob | None = None) -> None:
        """Queues the log's next write, with a checkpoint in the same transaction if there is one."""
        self._queue.put((persist, checkpoint))

    def write(self, checkpoint: CheckpointJob) -> None:
        """Queues a checkpoint in a transaction of its own."""
        self._queue.put((None, checkpoint))

    def busy_ms(self) -> float:
        """How long the write under way has taken so far; 0 if there is none."""
        since = self._since
        return 0.0 if since is None else (time.monotonic() - since) * 1_000.0

    def stop(self) -> None:
        """Ends the thread after the writes that are queued, when the disk has completed them."""
        self._queue.put(None)

    def join(self, seconds: float) -> bool:
        """Waits for the thread to end; returns whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            persist, checkpoint = job
            since = self._since = time.monotonic()
            try:
                if persist is not None:
                    self._log.write(persist.write, None if checkpoint is None else checkpoint.put)
                elif checkpoint is not None:
                    self._log.update(checkpoint.put)
            except DiskError as error:
                self._report(self._on_failed, error)
                return
            self._since = None
            self.writes += 1
            seconds = time.monotonic() - since
            if persist is not None:
                self._report(self._on_persisted, persist.token, seconds)
            if checkpoint is not None:
                self._report(checkpoint.done, seconds)

    def _report(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: nothing waits for this any more
            self._queue.put(None)
