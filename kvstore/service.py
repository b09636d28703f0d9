"""The node as its clients see it: writes and reads to await, and what there is to know of it.

Everything runs on one event loop; writes that arrive in one turn of it leave in one message."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from corel.corel import Corel, Stage
from corel.effects import Event, Greened, Logged
from corel.inspection import Inspected, inspect
from corel.messages import Color, MessageId
from corel.store import Store, StoreError
from kvstore.green_state import Checkpoint
from kvstore.machine import Ack, Answer, Failed, Machine, Trouble
from kvstore.node import Node, Upward
from kvstore.operations import Write
from kvstore.participant import Participant, ParticipantConfig
from kvstore.state import Item, Outcome
from kvstore.store_config import StoreConfig
from kvstore.tree import LmdbTree
from kvstore.write_codec import BATCH_OVERHEAD_BYTES, WRITE_BYTES_MAX, WRITE_OVERHEAD_BYTES, encode_write
from kvstore.writer import Extra
from transport.effects import Journal
from transport.messages import Machine as Member

log = logging.getLogger("corelkv")


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    participant: ParticipantConfig
    store: StoreConfig = field(default_factory=StoreConfig)
    journal: Path | None = None


class Service:
    """Use it on the event loop that runs it."""

    def __init__(self, config: ServiceConfig, on_failed: Callable[[Exception], None] = lambda error: None) -> None:
        _check_bounds(config)
        self.config = config
        self._loop = asyncio.get_running_loop()
        self._machine: Machine | None = None
        """For reading, also after it has left."""
        self._running: Machine | None = None
        """The same, while its node takes part."""
        self._is_leaving = False
        self._tree: LmdbTree | None = None
        self._timer: asyncio.Handle | None = None
        self._wakes_at = float("inf")
        self._is_dispatching = False
        self.started_at = time.time()
        self._tell_failed = on_failed
        upward = Upward(
            logged=self._on_logged,
            greened=self._on_greened,
            proven=self._on_proven,
            journaled=self._on_journaled,
            also_write=self._also_write,
            disk_failed=self._on_disk_failed,
            failed=self._on_failed,
        )
        self.participant = Participant(
            config.participant, upward, config.journal, self._on_started, self._on_opened
        )

    def leave(self) -> None:
        """Answers everybody who waits, and takes no more: nothing will come."""
        self._is_leaving = True
        self._let_go()

    def _let_go(self) -> None:
        self._running = None
        if self._machine is not None:
            self._machine.leave()

    async def close(self) -> None:
        """Answers everybody, brings what is green to disk, and stops."""
        self.leave()
        if self._timer is not None:
            self._timer.cancel()
        await self.participant.close()

    # What clients ask

    async def write(self, write: Write, ack: Ack, timeout_ms: float) -> Answer:
        """Raises `InvalidWrite` or `Overloaded`."""
        data = encode_write(write)
        if self._running is None:
            return Failed(Trouble.AWAY)
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._running.write(data, ack, self._now() + timeout_ms, _resolve(answer))
        self._dispatch_soon()
        return await answer

    def find(self, key: str) -> Item | None:
        """In the green state."""
        return self.machine.find(key)

    def find_red(self, key: str) -> tuple[Item | None, Color]:
        return self.machine.find_red(key)

    async def linearizable(self, timeout_ms: float) -> Trouble | None:
        """Waits until the green state has everything that was green anywhere when this was called."""
        return await self._ready(lambda ready: self.machine.when_linearizable(self._now() + timeout_ms, ready))

    async def revision(self, revision: int, timeout_ms: float) -> Trouble | None:
        """Waits until the green state has come so far."""
        if self.machine.green.revision >= revision:
            return None
        return await self._ready(
            lambda ready: self.machine.when_revision(revision, self._now() + timeout_ms, ready)
        )

    def outcome(self, message_id: MessageId, index: int) -> tuple[Color, Outcome | None] | None:
        return self.machine.outcome(message_id, index)

    async def green(self, message_id: MessageId, timeout_ms: float) -> Trouble | None:
        """Waits until a message that is known and not green has become it."""
        return await self._ready(
            lambda ready: self.machine.when_green(message_id, self._now() + timeout_ms, ready)
        )

    # What there is to know

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            raise RuntimeError("the node has not started")
        return self._machine

    @property
    def node(self) -> Node:
        return self.participant.node

    @property
    def log(self) -> Corel:
        log = self.participant.node.log
        if log is None:
            raise RuntimeError("the node has no log")
        return log

    @property
    def me(self) -> Member:
        return self.log.me

    @property
    def is_primary(self) -> bool:
        return self.log.stage is Stage.PRIMARY and self._running is not None

    def entries(self, first: int, limit: int) -> list[Inspected]:
        """Messages of the log from this position on."""
        return inspect(self.log, self.participant.store, first, limit)

    # What the node reports

    def _on_opened(self, store: Store) -> None:
        """Before anybody writes: tables cannot be made while another thread does."""
        self._tree = LmdbTree(store)

    def _on_started(self, node: Node) -> None:
        assert node.log is not None
        assert self._tree is not None
        self._tree.load()
        self._machine = Machine(node.log, self._tree, node.submit, node.probe, self.config.store)
        self._running = None if self._is_leaving else self._machine
        self._machine.stage_changed()
        self._sleep()

    def _on_logged(self, logged: Logged) -> None:
        if self._running is not None:
            self._running.logged(logged)
            self._sleep()

    def _on_greened(self, greened: Greened) -> None:
        if self._running is not None:
            self._running.greened(greened)
            self._sleep()

    def _on_proven(self, number: int) -> None:
        if self._running is not None:
            self._running.proven(number)

    def _on_journaled(self, entry: Journal) -> None:
        if entry.event is not Event.STATE:
            return
        if entry.details["stage"] in (Stage.PRIMARY, Stage.NON_PRIMARY):
            members = ", ".join(member.name for member in self.log.view.members)
            log.info("%s with %s", str(entry.details["stage"]).replace("_", " "), members)
        if self._running is not None:
            self._running.stage_changed()
            self._sleep()

    def _on_disk_failed(self, error: StoreError) -> None:
        self._let_go()

    def _on_failed(self, error: Exception) -> None:
        self.leave()
        self._tell_failed(error)

    # Checkpoints

    def _also_write(self, green_line: int) -> Extra | None:
        if self._running is None:
            return None
        return self._extra(self._running, self._running.take_checkpoint(green_line, self._now()))

    def _write_checkpoint(self, machine: Machine) -> None:
        """When nothing else is to be written with which it could travel."""
        line = self.log.green_on_disk
        extra = self._extra(machine, machine.take_checkpoint(line, self._now()))
        if extra is not None:
            self.node.write(extra)

    def _extra(self, machine: Machine, checkpoint: Checkpoint | None) -> Extra | None:
        tree = self._tree
        if checkpoint is None or tree is None:
            return None

        def done() -> None:
            machine.green.written(checkpoint)
            if machine is self._running:
                self._guard(lambda: self._write_checkpoint(machine))
                self._sleep()  # there is room to apply more

        return Extra(lambda transaction: tree.write(transaction, checkpoint), done)

    # Time

    def _now(self) -> float:
        return time.monotonic() * 1_000.0

    def _dispatch_soon(self) -> None:
        if not self._is_dispatching:
            self._is_dispatching = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatching = False
        if self._running is not None:
            self._guard(self._running.dispatch)
        self._sleep()

    def _guard(self, step: Callable[[], None]) -> None:
        """An exception in the store is a broken invariant as in the layers below: the node stops."""
        try:
            step()
        except Exception as error:
            self.node.fail(error)

    def _sleep(self) -> None:
        if self._running is None:
            return
        deadline = self._running.next_deadline()
        if deadline >= self._wakes_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = deadline
        delay_ms = deadline - self._now()
        if delay_ms > 0.0:  # the loop rounds to milliseconds: early, we would only be told to sleep on
            self._timer = self._loop.call_later(ceil(delay_ms) / 1_000.0, self._wake)
        else:
            self._timer = self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._wakes_at = float("inf")
        if self._running is not None:
            self._guard(partial(self._tick, self._running))
            self._sleep()

    def _tick(self, machine: Machine) -> None:
        machine.tick(self._now())
        self._write_checkpoint(machine)

    async def _ready(self, ask: Callable[[Callable[[Trouble | None], None]], None]) -> Trouble | None:
        if self._running is None:
            return Trouble.AWAY
        answer: asyncio.Future[Trouble | None] = self._loop.create_future()
        ask(_resolve(answer))
        self._sleep()
        return await answer


def _check_bounds(config: ServiceConfig) -> None:
    body_bytes_max = config.participant.corel.body_bytes_max
    needed = WRITE_BYTES_MAX + WRITE_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES
    if body_bytes_max < max(needed, config.store.batch_bytes_max):
        raise ValueError(
            f"log.body_bytes_max is {body_bytes_max:,}: a message of the log must take the largest write, "
            f"{needed:,} bytes, and store.batch_bytes_max, {config.store.batch_bytes_max:,}"
        )


def _resolve(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    """Who gave up waiting is not told."""

    def resolve(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    return resolve
