"""The node as its clients see it: writes and reads to await, its status and its log.

Everything runs on one event loop; writes that arrive in one turn of it are sent in one message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from corel import Color, MessageId, Stage, inspect
from kvstore.node.config import NodeConfig
from kvstore.node.disk_watch import warnings_of
from kvstore.node.restarting import RestartingDriver
from kvstore.node.status import LogEntry, LogPage, NodeStatus
from kvstore.store import Ack, Answer, Failed, Item, Outcome, Store, Trouble, Write, encode_write
from transport import Machine, Milliseconds
from transport.chaos import Chaos


class Node:
    """One node of a cluster. Call `start` first, and use it on the event loop that runs it. `on_failed` is called
    if it stops for good."""

    def __init__(self, config: NodeConfig, on_failed: Callable[[Exception], None] = lambda error: None) -> None:
        self.config = config
        self._restarting = RestartingDriver(config, on_failed)
        self._started_at = time.time()

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

    # What clients ask

    async def write(self, write: Write, ack: Ack, timeout_ms: float) -> Answer:
        """Waits for the answer to a write. Raises `InvalidWrite` or `Overloaded`."""
        data = encode_write(write)
        store = self._restarting.running_store
        if store is None:
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
        """What became of a write of this message; None if this node does not know of it."""
        return self._restarting.store.outcome(message_id, index)

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

    # Status and log

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
            trouble=None if trouble is None else str(trouble),
            disk_usage=usage,
            warnings=tuple(warnings_of(usage).values()),
            dropped_datagrams={str(reason): count for reason, count in driver.peer_errors.counts.items()},
            is_disturbed=restarting.chaos not in (None, Chaos()),
            uptime_s=time.time() - self._started_at,
        )

    def read_log(self, first: int, limit: int) -> LogPage:
        """At most `limit` messages of the log, from this position on, whatever their colour."""
        log = self._restarting.driver.replica.log
        entries = [
            LogEntry(one, log.body_of(one.entry)) for one in inspect(log, self._restarting.log, first, limit)
        ]
        following = entries[-1].inspected.position + 1 if entries else min(first, len(log.queue))
        return LogPage(entries, following)

    # Chaos

    @property
    def chaos(self) -> Chaos | None:
        """The faults injected into the node's network; None if the node was started without chaos."""
        return self._restarting.chaos

    @chaos.setter
    def chaos(self, chaos: Chaos) -> None:
        self._restarting.chaos = chaos


def _now() -> Milliseconds:
    return time.monotonic() * 1_000.0


def _resolve(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    """Returns a function that resolves a future, unless it is cancelled: its client may have gone."""

    def resolve(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    return resolve
