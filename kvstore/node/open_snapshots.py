"""The snapshots of a node's disk that are being read by others, each until it is closed or nobody has asked for a
while."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from corel import Lines, check_ahead
from corel.lmdb_reading import LmdbReader
from kvstore.node.snapshot_format import Batch
from kvstore.node.snapshot_source import SnapshotSource, green_batch


@dataclass(frozen=True, slots=True)
class SnapshotConfig:
    """The bounds of handing out snapshots, for backups and for nodes that lack much."""

    open_max: int = 4
    """Snapshots that may be open at a time; another one is refused. While one is open, no page that it can see is
    used again, so the node's file grows by all that is written until then. More let more nodes learn and more
    backups be made at once."""

    idle_s: int = 60
    """After so many seconds in which nobody has asked for a part of it, a snapshot is closed. Longer lets a reader
    that was killed or cut off go on where it was; shorter bounds by how much the file grows for one that never
    comes back."""

    chunk_bytes: int = 262_144
    """How large a part of a snapshot becomes; the record that exceeds it is in it. Larger ones take fewer requests
    and fewer syncs of the receiver; the event loop is held while one is read, for a millisecond or two."""

    def __post_init__(self) -> None:
        if self.open_max < 1 or self.idle_s < 1:
            raise ValueError("open_max and idle_s must be at least 1, or no snapshot could be read")
        if not 1_024 <= self.chunk_bytes <= 16 * 1_048_576:
            raise ValueError(f"chunk_bytes is {self.chunk_bytes:,}, and is at least 1,024 and at most 16,777,216")


class TooManySnapshots(Exception):
    """As many snapshots are open as may be."""


class OpenSnapshots:
    """The open snapshots of one node's log. Everything runs on one event loop, and may raise `DiskError`."""

    def __init__(
        self,
        log: LmdbReader,
        config: SnapshotConfig,
        now: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1_000.0),
    ) -> None:
        self._log = log
        self._config = config
        self._now = now
        self._wall_ms = wall_ms
        self._open: dict[str, tuple[SnapshotSource, float]] = {}
        """Each with when it was last used."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def open(self) -> tuple[str, SnapshotSource]:
        """Opens a snapshot of what is on disk now, and returns it with a name for it. Raises `NotAhead` if this
        node has nothing that another one could take over, and `TooManySnapshots`."""
        self.expire()
        if len(self._open) >= self._config.open_max:
            raise TooManySnapshots
        source = SnapshotSource(self._log, self._wall_ms())
        try:
            check_ahead(Lines(), source.header.lines)
        except BaseException:
            source.close()
            raise
        name = os.urandom(8).hex()
        self._open[name] = (source, self._now())
        self._wait()
        return name, source

    def find(self, name: str) -> SnapshotSource | None:
        """Returns an open snapshot, which counts as used; None if there is none of this name, or no more."""
        self.expire()
        if name not in self._open:
            return None
        source, _ = self._open[name]
        self._open[name] = (source, self._now())
        return source

    def close(self, name: str) -> bool:
        """Closes a snapshot; returns whether it was open."""
        if name not in self._open:
            return False
        source, _ = self._open.pop(name)
        source.close()
        return True

    def close_all(self) -> None:
        """Closes all: the log is about to be closed, or opened again."""
        for name in list(self._open):
            self.close(name)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def green_batch(self, first: int) -> Batch:
        """Returns the green messages that are on disk now, from this position on. Raises `Truncated`."""
        return green_batch(self._log, first, self._config.chunk_bytes)

    def expire(self) -> None:
        """Closes those that nobody has used for long."""
        before = self._now() - self._config.idle_s
        for name in [name for name, (_, used) in self._open.items() if used <= before]:
            self.close(name)

    def _wait(self) -> None:
        """Looks again when the one that was used longest ago may have expired."""
        if self._timer is None and self._open:
            self._timer = asyncio.get_running_loop().call_later(self._config.idle_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.expire()
        self._wait()
