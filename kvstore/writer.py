"""The thread that writes to disk: while one write syncs, the machine gathers the next."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from corel.effects import Persist
from corel.store import Store, StoreError


class Extra(NamedTuple):
    """What the layer above the log writes to the same disk."""

    put: Callable[[Any], None]
    """Puts it into a transaction, in the writing thread."""
    done: Callable[[], None]
    """It is on disk. Called on the event loop."""


class Writer:
    """Executes writes in order. The callbacks run on the event loop."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        on_persisted: Callable[[int], None],
        on_failed: Callable[[StoreError], None],
    ) -> None:
        self._store = store
        self._loop = loop
        self._on_persisted = on_persisted
        self._on_failed = on_failed
        self._queue: SimpleQueue[tuple[Persist | None, Extra | None] | None] = SimpleQueue()
        self._since: float | None = None
        self.writes = 0
        """How many have been made."""
        self._thread = threading.Thread(target=self._run, name="corelkv-writer", daemon=True)
        self._thread.start()

    def submit(self, persist: Persist, extra: Extra | None = None) -> None:
        """The log's next write, with more in the same transaction if there is."""
        self._put(persist, extra)

    def write(self, extra: Extra) -> None:
        """Something in a transaction of its own."""
        self._put(None, extra)

    def _put(self, persist: Persist | None, extra: Extra | None) -> None:
        self._queue.put((persist, extra))

    def busy_ms(self) -> float:
        """How long the write under way has been so; 0 if there is none."""
        since = self._since
        return 0.0 if since is None else (time.monotonic() - since) * 1_000.0

    def stop(self) -> None:
        """Takes no more; what is under way ends when the disk lets it."""
        self._queue.put(None)

    def join(self, seconds: float) -> bool:
        """Waits for the end; returns whether it has come."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            persist, extra = job
            self._since = time.monotonic()
            try:
                if persist is not None:
                    self._store.write(persist.write, None if extra is None else extra.put)
                elif extra is not None:
                    self._store.update(extra.put)
            except StoreError as error:
                self._report(self._on_failed, error)
                return
            self._since = None
            self.writes += 1
            if persist is not None:
                self._report(self._on_persisted, persist.token)
            if extra is not None:
                self._report(extra.done)

    def _report(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is gone, and nobody waits for this any more
            self._queue.put(None)
