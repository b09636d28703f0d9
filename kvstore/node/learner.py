"""What `learning` decides, done: HTTP calls and the copy's disk in a thread, and the switch on the event loop.

Nothing here slows the node down but the thread's share of the processor. There is at most one transfer at a
time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from corel import Lines, NotAhead, check_ahead
from corel.disk_errors import DiskError, DiskFull
from kvstore.node.config import NodeConfig
from kvstore.node.learning import (
    PAUSE_SECONDS_MAX,
    Fetched,
    Hindrance,
    Learning,
    LearningStatus,
    Opened,
    SnapshotGone,
    SourceError,
)
from kvstore.node.metrics import Metrics
from kvstore.node.snapshot_format import DamagedSnapshot, Header
from kvstore.node.snapshot_progress import Position
from kvstore.node.snapshot_target import SnapshotTarget, discard
from kvstore.node.source_client import SourceClient
from kvstore.node.threads import in_thread
from membership import LeftBehind

logger = logging.getLogger("corelkv")

LEFT_BEHIND_SECONDS = 60.0
"""For how long a node counts as left behind after it was last found to be. Heartbeats of the others say so again
every `membership.presence_ms`. A longer time outlasts a longer silence of theirs; a shorter one ends a transfer
sooner that is no longer needed."""

ROOM_BYTES_MIN = 16 * 1_048_576
"""How much room the copy leaves in the file system of the data directory, for the node itself to go on. More stops
a transfer sooner on a disk that is nearly full."""

COMPLAINT_SECONDS = 60.0
"""At most one log line in this time about a source that cannot be used for the same reason."""


class Owner(Protocol):
    """The node that learns."""

    @property
    def is_in_primary(self) -> bool:
        """Whether it is in a primary component."""

    def own_lines(self) -> Lines:
        """Returns the lines on its disk."""

    async def switch(self, copy: SnapshotTarget) -> None:
        """Begins the next incarnation on the copy. Raises `NotAhead`, `DamagedSnapshot` or `DiskError`; the node
        goes on with its old disk then."""

    def note(self, event: str, **fields: object) -> None:
        """Journals an event."""


class Complaints:
    """Which complaints to log and journal: at once when the reason changes, else at a bounded rate."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, float]] = {}

    def is_due(self, source: str, reason: str, now: float) -> bool:
        last, at = self._last.get(source, ("", 0.0))
        if reason == last and now - at < COMPLAINT_SECONDS:
            return False
        self._last[source] = (reason, now)
        return True


class Learner:
    """The transfers of one node. Use it on the event loop that runs the node."""

    def __init__(self, config: NodeConfig, owner: Owner, metrics: Metrics) -> None:
        self._config = config
        self._owner = owner
        self._metrics = metrics
        self._learning = Learning(config.transfer_bytes_per_s, config.log.recovery_messages_max)
        self._copy = SnapshotTarget(config.data, config.cluster, config.node, config.log.map_bytes)
        self._urls = {**config.urls, **config.node_urls}
        self._client: SourceClient | None = None
        self._snapshot = ""
        """The snapshot that the source of the client has open for this node; empty if it has none."""
        self._refused: Position | None = None
        """The part that could not be used when it came last."""
        self._target = 0
        self._staged_from = ""
        """The node whose snapshot is staged; empty if none is, or if that is not known."""
        self._heard_at = 0.0
        self._ahead = ""
        """The node that is furthest ahead, as it was last heard."""
        self._floor = 0
        """How many green messages a node must have for that one to be in reach."""
        self._complaints = Complaints()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    # What the node calls

    @property
    def status(self) -> LearningStatus | None:
        return self._learning.status

    def left_behind(self, effect: LeftBehind) -> None:
        """Begins to learn, if it does not already."""
        self._heard_at, self._ahead = time.monotonic(), effect.machine.name
        self._floor = effect.progress.floor
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, seconds: float) -> bool:
        """Ends a transfer; what is staged stays, to go on with. Returns whether it has ended in time: if not, it
        may still read the node's log."""
        self._is_closed, task = True, self._task
        if task is not None:
            task.cancel()
            if self._client is not None:
                self._client.abort()
            await asyncio.wait([task], timeout=seconds)
        return task is None or task.done()

    async def _run(self) -> None:
        try:
            self._staged_from = await in_thread(self._find_staged)
            if not await self._learning.run(self):
                self._metrics.transfers["given_up"] += 1
                logger.info("the node lacks nothing any more that it would have to take over")
                await in_thread(self._give_up)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger.critical("the node cannot learn what it lacks: %s", error, exc_info=error)
            await asyncio.sleep(PAUSE_SECONDS_MAX)
        finally:
            self._task = None
            self._close_client()
            self._copy.close()

    # What `learning` needs (`Surroundings`)

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def is_left_behind(self) -> bool:
        return self.now() - self._heard_at < LEFT_BEHIND_SECONDS and not self._owner.is_in_primary

    def sources(self) -> Sequence[str]:
        names = dict.fromkeys((self._staged_from, self._ahead, *self._config.roster.weights))
        return [name for name in names if name in self._urls and name != self._config.node]

    async def open(self, source: str) -> Opened:
        self._close_client()
        self._client = SourceClient(self._urls[source])
        return await in_thread(self._open, source, self._owner.own_lines())

    async def fetch_chunk(self) -> int:
        return await in_thread(self._fetch_chunk)

    async def fetch_messages(self) -> Fetched:
        return await in_thread(self._fetch_messages, self._owner.own_lines())

    async def switch(self) -> None:
        try:
            await self._owner.switch(self._copy)
        except DamagedSnapshot as error:
            await in_thread(self._drop)
            raise SnapshotGone(f"what it sent is not a whole state: {error}") from error

    def began(self, source: str, opened: Opened) -> None:
        size = f"{opened.bytes:,} of about {opened.total_bytes:,} bytes are here"
        logger.warning(
            "the node lacks %d green messages, too many for a view: it takes over the state of %s (%s), and goes "
            "on in its own view meanwhile",
            opened.target - self._owner.own_lines().green,
            source,
            size,
        )
        self._owner.note("learning_began", source=source, **opened._asdict())

    def switched(self, status: LearningStatus, seconds: float) -> None:
        self._staged_from = ""
        self._metrics.transfers["switched"] += 1
        logger.info("the node has taken over the state of %s in %.1f s", status.source, seconds)
        fields = {"line": status.line, "target": status.target, "bytes": status.bytes}
        self._owner.note("learning_switched", source=status.source, **fields, total_bytes=status.total_bytes)

    def cannot_learn(self, source: str, hindrance: Hindrance, reason: str) -> None:
        self._metrics.transfers[str(hindrance)] += 1
        if self._complaints.is_due(source, reason, self.now()):
            whom = f" from {source}" if source else ""
            logger.warning("the node cannot learn what it lacks%s: %s", whom, reason)
            self._owner.note("learning_failed", source=source, reason=str(hindrance), detail=reason)

    # In the thread

    def _find_staged(self) -> str:
        """Returns the node whose snapshot is staged, from before a restart. What the disk does not let this node
        go on with is removed, or it would be in the way for ever."""
        try:
            progress = self._copy.resume()
        except DiskError as error:
            logger.warning("what was taken over from another node is dropped: %s", error)
            self._drop()
            return ""
        return "" if progress is None else progress.header.node

    def _open(self, source: str, own: Lines) -> Opened:
        client = self._the_client()
        with self._giving_up():
            try:
                if not self._goes_on(source, client):
                    self._begin(source, client, own)
            except DamagedSnapshot as error:
                raise SourceError(f"its snapshot cannot be used: {error}") from error
            self._staged_from = source
            header = self._copy.header
            self._target = max(self._target, header.lines.green)
            total = sum(table.bytes for table in header.tables)
            staged = total * self._copy.records // max(header.records, 1)
            self._check_room(total - staged)
            return Opened(self._copy.position.line, self._target, staged, total)

    def _goes_on(self, source: str, client: SourceClient) -> bool:
        """Whether what is staged can be completed with this source: all of the snapshot is here, so that any node
        has what follows; or it is of this source, which still has it open."""
        if not self._staged_from or (progress := self._copy.resume()) is None:
            return False
        if progress.is_whole:
            return True
        if progress.header.node != source:
            return False
        try:
            client.tail(progress.name, progress.header.lines.green)
        except SnapshotGone:
            return False
        self._snapshot = progress.name
        return True

    def _begin(self, source: str, client: SourceClient, own: Lines) -> None:
        handed_out = client.open()
        self._snapshot = handed_out.id
        try:
            header = Header.of(handed_out.header)
            self._check_source(source, header)
            check_ahead(own, header.lines)
            self._check_floor(header.lines.green)
            self._target = 0
            self._copy.begin(handed_out.header, handed_out.id)
        except BaseException:
            self._forget()
            raise

    def _check_source(self, source: str, header: Header) -> None:
        """Raises `NotAhead` unless it is the node that was asked for. The name decides with whom a transfer goes
        on, so that of another would confuse it; and this node could copy itself."""
        if header.cluster != self._config.cluster:
            raise NotAhead(f"the other node belongs to the cluster {header.cluster}")
        if header.node != source:
            raise NotAhead(
                f"{self._urls[source]} leads to node {header.node}, not to {source}. Correct urls or node_urls, "
                "and restart this node"
            )

    def _check_floor(self, green: int) -> None:
        """Raises `NotAhead` if this node would still be left behind with so many green messages: it would start
        again for nothing."""
        if green < self._floor:
            raise NotAhead(
                f"the other node has {green:,} green messages, and is itself behind: {self._ahead} brings up only "
                f"nodes that have {self._floor:,}"
            )

    def _fetch_chunk(self) -> int:
        table, after, _ = self._copy.position
        if table is None:
            return 0
        client = self._the_client()
        with self._giving_up():
            self._check_room()
            content = self._asked(lambda: client.chunk(self._copy.progress.name, table, after))
            self._put(self._copy.put_chunk, content)
        return len(content)

    def _fetch_messages(self, own: Lines) -> Fetched:
        with self._giving_up():
            return self._fetch_batch(own)

    def _fetch_batch(self, own: Lines) -> Fetched:
        self._check_room()
        first, client = self._copy.position.line, self._the_client()
        is_live = first >= self._copy.header.lines.green
        if is_live:
            content = self._asked(lambda: client.log(first))
        else:
            content = self._asked(lambda: client.tail(self._copy.progress.name, first))
        self._put(self._copy.put_batch, content)
        self._apply()
        progress = self._copy.progress
        if progress.is_whole:
            self._forget()  # every node has what follows
        if is_live:
            self._target = progress.source_green
        is_whole = is_live and progress.is_current
        if is_whole:  # if it cannot be used, another source can go on from here
            check_ahead(own, progress.lines)
            self._check_floor(progress.lines.green)
        return Fetched(progress.lines.green, self._target, len(content), is_whole)

    def _check_room(self, needed: int = 0) -> None:
        """Raises `DiskFull` if the file system has no room for so many bytes more."""
        status = os.statvfs(self._config.data)
        free, least = status.f_bavail * status.f_frsize, needed + ROOM_BYTES_MIN
        if free < least:
            raise DiskFull(
                f"no room in {self._config.data}: {free:,} bytes are free, and {least:,} must be. Make room; the "
                "node goes on by itself"
            )

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Gives up the snapshot, and what is staged of it, when something fails that is not the source's fault: it
        may take long until somebody mends that, and the source cannot use the pages of an open snapshot again. A
        copy that has all of its snapshot holds nothing at the source, and stays."""
        try:
            yield
        except (SourceError, NotAhead):
            raise
        except Exception:
            self._forget()
            if not self._is_copied():
                self._drop()
            raise

    def _is_copied(self) -> bool:
        """Whether all of a snapshot is staged, as far as the disk can tell."""
        with contextlib.suppress(DiskError):
            progress = self._copy.resume()
            return progress is not None and progress.is_whole
        return False

    def _asked(self, ask: Callable[[], bytes]) -> bytes:
        try:
            return ask()
        except SnapshotGone:
            self._staged_from = ""  # it cannot be completed
            self._forget()
            raise

    def _forget(self) -> None:
        """Lets the source close the snapshot that it has open for this node: it can use the pages again, and has
        room for another one."""
        if self._snapshot:
            self._the_client().forget(self._snapshot)
            self._snapshot = ""

    def _apply(self) -> None:
        try:
            self._copy.apply(self._config.store)
        except DamagedSnapshot as error:
            self._forget()
            self._drop()
            raise SnapshotGone(f"what it sent is not a whole state: {error}") from error

    def _put(self, put: Callable[[bytes], object], content: bytes) -> None:
        """Puts what was fetched. If it cannot be used, it may have been damaged on the way; but not twice: then it
        is so at the source, which would keep the snapshot open for nothing."""
        position = self._copy.position
        try:
            put(content)
        except DamagedSnapshot as error:
            reason = f"what it sent cannot be used: {error}"
            if position != self._refused or self._copy.progress.is_whole:
                self._refused = position
                raise SourceError(reason) from error
            self._refused, self._staged_from = None, ""
            self._forget()
            raise SnapshotGone(reason) from error

    def _give_up(self) -> None:
        """Lets the source close the snapshot, and removes what is staged."""
        self._forget()
        self._drop()

    def _drop(self) -> None:
        """Removes what is staged."""
        self._staged_from = ""
        self._copy.close()
        discard(self._config.data)

    def _the_client(self) -> SourceClient:
        if self._client is None:
            raise SourceError("no source is open")
        return self._client

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        self._snapshot = ""
