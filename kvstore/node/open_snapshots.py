"""The snapshots of a node's disk that are being read by others, each until it is closed, or nobody has asked for a
while, or it has been open for too long.

Parts are read in a thread: their pages may have to come from the disk, and the node's event loop must not wait for
that. One part is read at a time, so that readers take one thread together, however many there are."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from corel import Lines, NotAhead, check_ahead
from corel.disk_errors import UnusableLog
from corel.lmdb_reading import LmdbReader
from corel.pinned_log import GreenMemory
from kvstore.node.snapshot_source import SnapshotSource, green_batch
from kvstore.node.threads import in_thread

LEFT_MAX = 16
"""How many snapshots that were closed are remembered, for the messages after them."""

REST_SECONDS = 0.001
"""How long a thread that computes rests now and then. Without that, the event loop would wait for the
interpreter's lock up to 5 ms after every system call. Longer ones delay the reader."""

_Result = TypeVar("_Result")


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

    lifetime_s: int = 21_600
    """After so many seconds a snapshot is closed, even if it is being read. Longer lets slower readers get to the
    end of a larger state; shorter bounds by how much the file grows for one that never gets there."""

    chunk_bytes: int = 262_144
    """How large a part of a snapshot becomes; the record that exceeds it is in it. Larger ones take fewer requests
    and fewer syncs of the receiver; smaller ones let other readers have their turn sooner, because one part is
    read at a time, beside the event loop."""

    def __post_init__(self) -> None:
        if self.open_max < 1 or self.idle_s < 1:
            raise ValueError("open_max and idle_s must be at least 1, or no snapshot could be read")
        if self.lifetime_s < self.idle_s:
            raise ValueError(f"lifetime_s must be at least idle_s, {self.idle_s}: it bounds what idle_s does not")
        if not 1_024 <= self.chunk_bytes <= 16 * 1_048_576:
            raise ValueError(f"chunk_bytes is {self.chunk_bytes:,}, and is at least 1,024 and at most 16,777,216")


class TooManySnapshots(Exception):
    """As many snapshots are open as may be."""


@dataclass(slots=True, eq=False)
class _Snapshot:
    """A snapshot with its uses."""

    opened_at: float
    used_at: float
    source: SnapshotSource | None = None
    """None while it is being opened."""
    reads: int = 0
    """How many parts of it are being read, or wait for that. It is not idle then."""

    @property
    def line(self) -> int | None:
        """Where the messages after it begin."""
        return None if self.source is None else self.source.header.lines.green

    def expires_at(self, config: SnapshotConfig) -> float:
        if self.source is None:
            return math.inf
        end = self.opened_at + config.lifetime_s
        return end if self.reads else min(end, self.used_at + config.idle_s)

    def close(self) -> None:
        if self.source is not None:
            self.source.close()


class _Left(NamedTuple):
    """A snapshot that was closed lately. Its reader may still fetch the messages after it."""

    line: int
    closed_at: float
    until: float


class OpenSnapshots:
    """The open snapshots of one node's log. Everything runs on one event loop, but for what is read in threads,
    and may raise `DiskError`."""

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
        self._open: dict[str, _Snapshot] = {}
        self._closing: set[_Snapshot] = set()
        """Those that are closed, but for a part that is still being read."""
        self._left: tuple[_Left, ...] = ()
        self._is_taken = False
        """Whether somebody waits to take the log from the thread that reads."""
        self._memory = GreenMemory(self._rest)
        """What all readers together have read of the green order. It is kept where a request has ended before its
        answer was there: the next one takes less long."""
        self._read_at = -math.inf
        """When something was read last."""
        self._turn = asyncio.Lock()
        self._reading = threading.Lock()
        """Held by the thread that reads a part, and while the log is taken from all threads."""
        self._closings = 0
        """How often that was: what waits for its turn must not begin afterwards."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    # Reading

    async def open(self) -> tuple[str, SnapshotSource]:
        """Opens a snapshot of what is on disk now, and returns it with a name for it. Raises `NotAhead` if this
        node has nothing that another one could take over, and `TooManySnapshots`."""
        self.expire()
        if len(self._open) >= self._config.open_max:
            raise TooManySnapshots
        name, snapshot = os.urandom(8).hex(), _Snapshot(self._now(), self._now())
        self._open[name] = snapshot
        try:
            source = await self._read(snapshot, partial(self._pin, snapshot))
            _check_handed_out(source.header.lines)
            if name not in self._open:
                raise _taken_away()
        except BaseException:
            if self._open.pop(name, None) is not None:
                snapshot.close()
            raise
        return name, source

    def _pin(self, snapshot: _Snapshot) -> SnapshotSource:
        """Noted here already: if the log is closed before the event loop hears of it, this is closed too."""
        snapshot.source = SnapshotSource(self._log, self._wall_ms(), memory=self._memory)
        return snapshot.source

    async def chunk(self, name: str, table: str, after: bytes) -> bytes | None:
        """Returns the records of a table of a snapshot after this key, as they travel; None if no snapshot of this
        name is open, or no more."""
        size = self._config.chunk_bytes
        return await self._part(name, lambda source: source.chunk(table, after, size).to_bytes(source.id))

    async def tail(self, name: str, first: int) -> bytes | None:
        """Returns the green messages of a snapshot from this position on, as they travel; None if no snapshot of
        this name is open, or no more. Raises `Truncated`."""
        return await self._part(name, lambda source: source.batch(first, self._config.chunk_bytes).to_bytes())

    async def log(self, first: int) -> bytes:
        """Returns the green messages that are on disk now, from this position on, as they travel. Raises
        `Truncated`."""
        now = self._now()
        self._left = tuple(
            [
                left._replace(until=self._held_until(left.closed_at)) if left.line <= first else left
                for left in self._left
                if left.until > now
            ]
        )
        try:
            return await self._in_thread(
                lambda: green_batch(self._log, first, self._config.chunk_bytes, self._memory).to_bytes()
            )
        finally:
            self._wait()

    async def _part(self, name: str, read: Callable[[SnapshotSource], bytes]) -> bytes | None:
        self.expire()
        snapshot = self._open.get(name)
        if snapshot is None or (source := snapshot.source) is None:
            return None
        return await self._read(snapshot, lambda: read(source))

    async def _read(self, snapshot: _Snapshot, read: Callable[[], _Result]) -> _Result:
        """Reads a part of a snapshot, which is closed only afterwards."""
        snapshot.reads += 1
        try:
            return await self._in_thread(read)
        finally:
            snapshot.reads -= 1
            snapshot.used_at = self._now()
            if not snapshot.reads and snapshot in self._closing:
                self._closing.remove(snapshot)
                snapshot.close()
            self._wait()

    async def _in_thread(self, read: Callable[[], _Result]) -> _Result:
        closings = self._closings
        try:
            async with self._turn:
                return await in_thread(self._locked, closings, read)
        finally:
            self._read_at = self._now()

    def _locked(self, closings: int, read: Callable[[], _Result]) -> _Result:
        with self._reading:
            if closings != self._closings:
                raise _taken_away()
            return read()

    def _rest(self) -> None:
        """Called now and then by a thread that computes for long."""
        if self._is_taken:
            raise _taken_away()
        time.sleep(REST_SECONDS)

    # Closing

    def close(self, name: str) -> bool:
        """Closes a snapshot, as soon as no part of it is being read; returns whether it was open."""
        snapshot = self._open.pop(name, None)
        if snapshot is None:
            return False
        self._leave(snapshot)
        if snapshot.reads:
            self._closing.add(snapshot)
        else:
            snapshot.close()
        return True

    def _leave(self, snapshot: _Snapshot) -> None:
        line, now = snapshot.line, self._now()
        if line is not None:
            self._left = (*self._left, _Left(line, now, self._held_until(now)))[-LEFT_MAX:]

    def close_all(self) -> None:
        """Closes all: the log is about to be closed, or opened again. Waits for the part that is being read, which
        ends with an error if it takes long, and nothing is read afterwards that was asked for before."""
        self._is_taken = True
        with self._reading:
            self._is_taken = False
            self._closings += 1
            for snapshot in (*self._open.values(), *self._closing):
                snapshot.close()
        for snapshot in self._open.values():
            self._leave(snapshot)
        self._open.clear()
        self._closing.clear()
        self._memory = GreenMemory(self._rest)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def expire(self) -> None:
        """Closes those that nobody has used for long, and those that have been open for too long."""
        now = self._now()
        for name in [name for name, one in self._open.items() if one.expires_at(self._config) <= now]:
            self.close(name)
        if self._read_at + self._config.idle_s <= now:
            self._memory = GreenMemory(self._rest)

    def _wait(self) -> None:
        """Looks again when the next one can expire."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._now()
        ends = [snapshot.expires_at(self._config) for snapshot in self._open.values()]
        if self._read_at + self._config.idle_s > now:
            ends.append(self._read_at + self._config.idle_s)
        if (end := min(ends, default=math.inf)) < math.inf:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, end - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.expire()
        self._wait()

    # What is held for readers

    def oldest_line(self) -> int | None:
        """Returns from where on the log's messages are still needed by those who read snapshots: the lowest green
        line of the snapshots that are open, and of those that were closed in the last `idle_s`, or whose messages
        somebody has gone on to fetch since. None if there are none. Any thread may call this."""
        now = self._now()
        lines = [snapshot.line for snapshot in list(self._open.values())]
        lines += [left.line for left in self._left if left.until > now]
        return min([line for line in lines if line is not None], default=None)

    def _held_until(self, closed_at: float) -> float:
        """Returns until when the messages after a snapshot are held if somebody asks for some of them now."""
        return min(self._now() + self._config.idle_s, closed_at + self._config.lifetime_s)


def _check_handed_out(lines: Lines) -> None:
    """Raises `NotAhead` if even an empty node could not take over a log with these lines; the message goes on from
    the name of this node."""
    try:
        check_ahead(Lines(), lines)
    except NotAhead:
        if lines.established:
            raise NotAhead("it does not have everything yet that its last primary component began with") from None
        raise NotAhead("it knows of no primary component that was established") from None


def _taken_away() -> UnusableLog:
    return UnusableLog("this node's log is being closed or opened again.")
