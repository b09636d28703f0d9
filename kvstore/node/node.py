"""The node as its clients see it: writes and reads to await, its status and its log.

Everything runs on one event loop; writes that arrive in one turn of it are sent in one message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from prometheus_client.core import Metric

from corel import Color, MessageId, Stage, inspect
from corel.disk_errors import DiskError, Truncated
from corel.lmdb_log import LmdbLog
from kvstore.node import collector
from kvstore.node.config import NodeConfig
from kvstore.node.disk_watch import warnings_of
from kvstore.node.metrics import Metrics
from kvstore.node.milestones import Milestones
from kvstore.node.open_snapshots import OpenSnapshots
from kvstore.node.restarting import RestartingDriver
from kvstore.node.status import LogEntry, LogPage, NodeStatus, vote_warnings
from kvstore.store import (
    Ack,
    Answer,
    Change,
    ConflictPlace,
    Failed,
    FoundConflict,
    Item,
    Outcome,
    Preview,
    Snapshot,
    Store,
    Trouble,
    Write,
    encode_write,
)
from transport import FlowFigures, Machine, Milliseconds
from transport.chaos import Chaos


class Node:
    """One node of a cluster. Call `start` first, and use it on the event loop that runs it. `on_failed` is called
    if it stops for good."""

    def __init__(self, config: NodeConfig, on_failed: Callable[[Exception], None] = lambda error: None) -> None:
        self.config = config
        self._restarting = RestartingDriver(config, on_failed)
        self.started_at = time.time()
        """By the wall clock."""
        self._has_ended_feeds = False
        self.watchers = 0
        """How many feeds are open."""

    def start(self) -> None:
        """Starts the node. Raises if that is not possible, and leaves nothing open then."""
        self._loop = asyncio.get_running_loop()
        self._restarting.start()

    def leave(self) -> None:
        """Answers every request that waits, and takes no more requests."""
        self._restarting.leave()

    async def close(self) -> None:
        """Answers every request, writes to disk what is green, and stops."""
        await self._restarting.close()

    @property
    def metrics(self) -> Metrics:
        """What the node counts and measures of itself."""
        return self._restarting.metrics

    # What clients ask

    async def write(self, write: Write, ack: Ack, timeout_ms: float) -> Answer:
        """Waits for the answer to a write. Raises `InvalidWrite` or `Overloaded`."""
        data = encode_write(write)
        store = self._restarting.running_store
        if store is None:
            self.metrics.store.answers[Trouble.AWAY] += 1
            return Failed(Trouble.AWAY)
        answer: asyncio.Future[Answer] = self._loop.create_future()
        store.write(data, ack, _now() + timeout_ms, _resolve(answer))
        self._restarting.driver.dispatch_soon()
        return await answer

    def find(self, key: str) -> Item | None:
        """What the key holds in the green state."""
        return self._restarting.store.find(key)

    def find_red(self, key: str) -> tuple[Item | None, Color]:
        """What the key holds in the red state, with the colour of the write that decides it."""
        return self._restarting.store.find_red(key)

    def outcome(self, message_id: MessageId, index: int) -> tuple[Color, Outcome | None] | None:
        """What became of a write of this message; None if this node does not know of it. Raises
        `FateForgotten`."""
        return self._restarting.store.outcome(message_id, index)

    # The past, feeds and merges

    def snapshot(self, revision: int | None = None) -> Snapshot:
        """The green state at this revision, or as it is now. Reading it raises `Compacted` if it is not kept."""
        return self._restarting.store.green.snapshot(revision)

    def red_snapshot(self) -> tuple[Snapshot, Callable[[str], Color]]:
        """The red state as it is now, and the colour of what each key holds. Raises `Overloaded`."""
        return self._restarting.store.red_snapshot()

    def find_at(self, key: str, revision: int) -> Item | None:
        """What the key held in the green state at this revision. Raises `Compacted`."""
        return self._restarting.store.green.item_at(key, revision)

    def pinned(self, revision: int) -> AbstractContextManager[None]:
        """Keeps the past from this revision on while its snapshot is being read, up to a bound."""
        return self._restarting.store.green.pinned(revision)

    def changes(self, first: int, count: int, bytes_max: int) -> list[Change]:
        """What the revisions from this one on changed: at least one if it is reached, at most `count`. Raises
        `Compacted`."""
        return self._restarting.store.green.changes(first, count, bytes_max)

    def versions(self, key: str, before: int, count: int) -> list[tuple[int, str, Item | None]]:
        """The kept changes of a key before this revision, newest first: revision, write, and what it holds."""
        return self._restarting.store.green.versions(key, before, count)

    def oldest_revision(self) -> int:
        """The oldest revision of which the whole state can be read; feeds can begin with the one after it."""
        return self._restarting.store.green.oldest()

    def conflicts(self, after: ConflictPlace, count: int) -> list[FoundConflict]:
        """What merges changed, after this place."""
        return self._restarting.store.green.conflicts(after, count)

    def preview(self) -> list[Preview]:
        """What each write that is not green would do if it merged now. Raises `Overloaded`."""
        return self._restarting.store.preview()

    @property
    def feed_store(self) -> Store | None:
        """The store whose feeds can be watched; None if the node has left the others or stops. Another one than
        before means that the node has come back: a watcher of the one before has to begin again."""
        return None if self._has_ended_feeds else self._restarting.running_store

    @property
    def has_ended_feeds(self) -> bool:
        return self._has_ended_feeds

    def end_feeds(self) -> None:
        """Ends all feeds, because the node is about to stop."""
        self._has_ended_feeds = True
        self._restarting.store.end_feeds()

    # Revisions and waiting

    @property
    def revision(self) -> int:
        """How many writes have changed the green state."""
        return self._restarting.store.green.revision

    async def until_linearizable(self, timeout_ms: float) -> Trouble | None:
        """Waits until the green state has everything that was green anywhere when this was called."""
        deadline = _now() + timeout_ms
        return await self._until(lambda store, ready: store.when_linearizable(deadline, ready))

    async def until_revision(self, revision: int, timeout_ms: float) -> Trouble | None:
        """Waits until the green state has reached this revision."""
        if self.revision >= revision:
            return None
        deadline = _now() + timeout_ms
        return await self._until(lambda store, ready: store.when_revision(revision, deadline, ready))

    async def until_green(self, message_id: MessageId, timeout_ms: float) -> Trouble | None:
        """Waits until a message that is known and not green has become green."""
        deadline = _now() + timeout_ms
        return await self._until(lambda store, ready: store.when_green(message_id, deadline, ready))

    async def _until(self, ask: Callable[[Store, Callable[[Trouble | None], None]], None]) -> Trouble | None:
        store = self._restarting.running_store
        if store is None:
            return Trouble.AWAY
        answer: asyncio.Future[Trouble | None] = self._loop.create_future()
        ask(store, _resolve(answer))
        self._restarting.driver.wake_for_store()
        return await answer

    @property
    def snapshots(self) -> OpenSnapshots:
        """The snapshots of this node's disk that are being read."""
        return self._restarting.snapshots

    # Status and log

    @property
    def generation(self) -> bytes:
        """The generation of the cluster that this node is bound to; empty if it is bound to none."""
        return self._restarting.driver.replica.log.generation

    @property
    def me(self) -> Machine:
        """This incarnation of the node."""
        return self._restarting.driver.stack.me

    def status(self) -> NodeStatus:
        """The state of the node at this moment."""
        restarting = self._restarting
        driver, store, log = restarting.driver, restarting.store, restarting.driver.replica.log
        queue, trouble, usage = log.queue, restarting.trouble, restarting.log.usage()
        return NodeStatus(
            me=log.me,
            weights=log.roster.weights,
            view=log.view,
            stage=log.stage,
            phase=log.phase,
            is_primary=log.stage is Stage.PRIMARY and restarting.running_store is not None,
            is_open=log.is_open,
            is_voter=log.is_voter,
            green_line=queue.green,
            applied_line=store.green.line,
            revision=store.green.revision,
            yellow_line=queue.yellow_line,
            red=len(queue.red),
            last_committed_primary=log.committed,
            last_attempted_primary=log.attempted,
            held_writes=store.held,
            watchers=self.watchers,
            oldest_revision=_oldest_readable(store),
            log_first=log.cut,
            log_bytes=_log_bytes(restarting.log),
            trouble=None if trouble is None else str(trouble),
            learning=restarting.learning,
            disk_usage=usage,
            warnings=(
                *warnings_of(usage).values(),
                *_journal_warnings(restarting.lost_events),
                *vote_warnings(log),
            ),
            dropped_datagrams={
                str(reason): count for reason, count in driver.telemetry.peer_errors.counts.items()
            },
            silent_ms=driver.silent_ms(),
            is_disturbed=restarting.chaos not in (None, Chaos()),
            uptime_s=time.time() - self.started_at,
            lineage=restarting.lineage,
        )

    @property
    def milestones(self) -> Milestones:
        """The last views, stages and phases of this node."""
        return self._restarting.milestones

    def read_log(self, first: int | None, limit: int) -> LogPage:
        """At most `limit` messages of the log, from this position on or from the first that is kept, whatever
        their colour. Raises `Truncated`."""
        log = self._restarting.driver.replica.log
        if first is None:
            first = log.cut
        if first < log.cut:
            raise Truncated(self.config.data, log.cut)
        entries = [
            LogEntry(one, log.body_of(one.entry)) for one in inspect(log, self._restarting.log, first, limit)
        ]
        following = entries[-1].inspected.position + 1 if entries else min(first, len(log.queue))
        return LogPage(entries, following)

    def collect(self) -> Iterator[Metric]:
        """Yields everything that `/metrics` shows of this node, as it is now."""
        driver, status, metrics = self._restarting.driver, self.status(), self.metrics
        flow = driver.replica.group.flow
        yield from collector.build_families(self.config)
        yield from collector.write_families(metrics, status)
        yield from collector.group_families(metrics, status, time.monotonic())
        yield from collector.disk_families(metrics, status, driver.sync_under_way_seconds)
        yield from collector.learning_families(metrics, status)
        yield from collector.network_families(metrics, flow)
        yield from collector.http_families(metrics)
        yield from collector.queue_families(self._queue_depths(flow))
        yield from collector.loop_families(metrics)

    def _queue_depths(self, flow: FlowFigures) -> dict[str, tuple[int, int]]:
        """Returns how full each bounded queue is, and its bound."""
        config, store, log = self.config, self._restarting.store, self._restarting.driver.replica.log
        return {
            "held_writes": (store.held, config.store.held_max),
            "held_write_bytes": (store.held_bytes, config.store.held_bytes_max),
            "waiting_requests": (store.waiting, config.store.waiters_max),
            "checkpoints": (store.green.unwritten, config.store.checkpoints_max),
            "log_messages": (log.waiting, config.log.submitted_max),
            "transport_messages": (flow.queue_messages, flow.queue_messages_max),
            "transport_bytes": (flow.queue_bytes, flow.queue_bytes_max),
            **{name: (depth(), limit) for name, (depth, limit) in self.metrics.http.queues.items()},
        }

    # Chaos

    @property
    def chaos(self) -> Chaos | None:
        """The faults injected into the node's network; None if the node was started without chaos."""
        return self._restarting.chaos

    @chaos.setter
    def chaos(self, chaos: Chaos) -> None:
        self._restarting.chaos = chaos


def _journal_warnings(lost_events: int) -> list[str]:
    if not lost_events:
        return []
    return [
        f"The journal has lost {lost_events:,} events, because its disk was full or too slow. Make room for it."
    ]


def _oldest_readable(store: Store) -> int:
    """The oldest revision that can be read; of a log that has to be opened again, nothing of the past can."""
    try:
        return store.green.oldest()
    except DiskError:
        return store.green.revision


def _log_bytes(log: LmdbLog) -> int:
    try:
        return log.log_size().size_bytes
    except DiskError:
        return 0


def _now() -> Milliseconds:
    return time.monotonic() * 1_000.0


def _resolve(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    """Returns a function that resolves a future, unless it is cancelled: its client may have gone."""

    def resolve(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    return resolve
