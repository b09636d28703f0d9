"""The driver: executes the machines' effects against the real world, which nothing else does.

It drives two machines, the protocol stack (a `Replica`) and the store above it. Its loop is this:

    while True:
        wait for datagrams, a completed write, a client's request, or the deadline
        for datagram in all that have arrived:
            execute(stack.receive(datagram, now))
        for machine in those whose hosts refused a datagram:
            stack.port_unreachable(machine, now)
        for token in completed writes:
            execute(stack.persisted(token))
        if store.next_deadline() <= now:
            store.tick(now)                        # may submit to the log
        while stack.next_deadline() <= now:
            execute(stack.tick(now))

    def execute(effects):
        for effect in effects:                     # in this order, one after the other
            Broadcast, Unicast      -> the sockets
            Persist                 -> the writing thread, together with store.take_checkpoint()
            Journal, Queued, …      -> the journal, which `telemetry` writes
            LeftBehind              -> the owner, who has the node learn what it lacks
            anything else           -> store.handle(effect)

What it owes the machines, and what they rely on:

1. Effects are executed in their order, each before the next. An exception in the middle is a broken invariant: the
   rest cannot be executed, so the node stops, loudly, instead of going on with half of them.
2. A `Persist` is acknowledged by `persisted(token)` when it is on disk, in order, and never before. Nothing that
   depends on it is among the effects that come with it, so the others need not wait.
3. Before anything of a clock is seen outside, a datagram or a view, the disk knows that the next start begins
   above that clock (`ClockFloor`).
4. All datagrams that have arrived are taken in before a tick, so a burst is acknowledged, ordered and delivered as
   one; and after a pause of its own (the process was stopped, a callback took long) what has arrived meanwhile is
   taken in before the machines may judge a peer silent. So it is before they are told of a refusal. But the node
   ticks also if it is sent more than it can handle, so it takes in only what it can in a short time.
5. A tick comes at the deadline or soon after, never before it, with a clock that never goes back.
6. A checkpoint is handed to the disk with or after the write that brings the log's green line there, and the store
   is told when it is written. So is the log: a start would not read what is before the checkpoint's line, so that
   may be truncated.
7. Everything happens on one event loop. Only the writing thread and the journal's thread run beside it; the
   writing thread reports through the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import ceil
from typing import NamedTuple

from corel import (
    Contradiction,
    Greened,
    Logged,
    MessageId,
    OutOfReach,
    Persist,
    Queued,
    Reordered,
    ReplacedDisk,
    Replica,
    ReplicaEffect,
    StageChanged,
    Yellowed,
)
from corel.disk_errors import DiskError, StalledDisk
from corel.lmdb_log import LmdbLog
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.machines import NoStore, Stack, StoreMachine
from kvstore.node.synced_numbers import ClockFloor
from kvstore.node.telemetry import Telemetry
from kvstore.node.twins import TwinNode, must_stop
from kvstore.node.writer import CheckpointJob, Writer
from kvstore.store import Checkpoint
from membership import LeftBehind, Unicast, ViewChanged
from transport import (
    AT_ONCE,
    NEVER,
    Broadcast,
    Codec,
    DecodeError,
    Journal,
    Machine,
    Milliseconds,
    WindowStuck,
)
from transport.udp import Address, Arrivals, Channel

logger = logging.getLogger("corelkv")

ADDRESSES_MAX = 1_024
"""Most machines whose addresses are kept. Beyond that all are dropped: the live ones are soon heard again."""

PAUSE_MS = 50.0
"""A tick that is overdue by more than this shows that this process paused: the sockets are drained first."""

_EXPLAINED = (TwinNode, Contradiction, ReplacedDisk)
"""Errors whose messages say what has happened: where in the program it was noticed tells an operator nothing."""

_TICKS_MAX = 4
"""Most ticks in a row before the event loop gets its turn: deliveries may cause messages without end."""


class Disk(NamedTuple):
    """The log and the store's tree. A disk that takes longer than `sync_stall_ms` for a write counts as failed."""

    log: LmdbLog
    tree: LmdbTree
    sync_stall_ms: float


class Driver:
    """One incarnation of a node on real sockets, a real disk and a real clock. Use it on the event loop that runs
    it. `on_stopped` is called once if it stops by itself: with a `DiskError`, with `OutOfReach`, or with the
    exception that broke an invariant. `on_left_behind` is called again and again while the node lacks too much.
    `oldest_copied` says from which line on another node may still ask for the log, to go with its copy of the
    state; None if nobody does."""

    def __init__(
        self,
        stack: Stack,
        channel: Channel,
        codec: Codec,
        on_stopped: Callable[[Exception], None] = lambda error: None,
        clock_floor: ClockFloor | None = None,
        disk: Disk | None = None,
        telemetry: Telemetry | None = None,
        on_left_behind: Callable[[LeftBehind], None] = lambda effect: None,
        oldest_copied: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.stack = stack
        self.channel = channel
        self.telemetry = telemetry or Telemetry(stack.me)
        self.writer: Writer | None = None
        self._me = stack.me
        self._codec = codec
        self._on_stopped = on_stopped
        self._on_left_behind = on_left_behind
        self._oldest_copied = oldest_copied
        self._clock_floor = clock_floor
        self._disk = disk
        self._metrics = self.telemetry.metrics
        self._loop = asyncio.get_running_loop()
        self._store: StoreMachine = NoStore()
        self._timer: asyncio.Handle | None = None
        self._wakes_at: Milliseconds = NEVER
        self._stall_timer: asyncio.Handle | None = None
        self._is_settling = False
        self._is_dispatching = False
        self._is_closed = False
        self._heard: dict[Machine, tuple[Address, Milliseconds]] = {}
        """The address of each machine's own socket, from which its last datagram came, and when it came."""

    # What its owner calls

    def start(self, store: StoreMachine) -> None:
        """Starts the stack, and listens on the sockets; reports go to this store."""
        self._store = store
        if self._disk is not None:
            self.writer = Writer(self._disk.log, self._loop, self._on_persisted, self._on_disk_failed)
            self._watch_disk(self._disk.sync_stall_ms)
            self._execute(self.replica.start())
        self.channel.listen(self._on_arrivals, self._on_port_unreachable)
        self._wake_at(min(self.stack.next_deadline(), store.next_deadline()))

    @property
    def replica(self) -> Replica:
        """The protocol stack, which must have a log."""
        if not isinstance(self.stack, Replica):
            raise RuntimeError("the node has no log")
        return self.stack

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def sync_under_way_seconds(self) -> float:
        """How long the write under way has taken so far; 0 if there is none."""
        return 0.0 if self.writer is None else self.writer.busy_ms() / 1_000.0

    def counts(self) -> Counter[str]:
        """Returns what the machines, the sockets and the journal of this incarnation have counted."""
        counts = self.replica.group.counters + self.replica.log.counters + self.channel.counters
        errors = self.telemetry.peer_errors.counts
        counts.update({f"peer_errors_{reason}": count for reason, count in errors.items()})
        counts["journal_lost"] = self.telemetry.lost
        return counts

    def silent_ms(self) -> dict[str, float]:
        """Returns how long ago each node was last heard, of those that were heard at all."""
        now = self._now()
        silent: dict[str, float] = {}
        for machine, (_, heard_at) in self._heard.items():
            silent[machine.name] = min(now - heard_at, silent.get(machine.name, NEVER))
        return silent

    def submit(self, body: bytes) -> MessageId:
        """Hands a message to the log; raises `TooMuch` when too many wait."""
        self._check_open()
        message_id, effects = self.replica.submit(body)
        self.telemetry.submitted(message_id.sequence)
        self.execute(effects)
        return message_id

    def check_primary(self, number: int) -> None:
        """Asks whether this is still the primary component; `PrimaryConfirmed` reports that it is."""
        self.execute(self.replica.check_primary(number))

    def execute(self, effects: Sequence[ReplicaEffect]) -> None:
        """Executes the effects of an input that did not come through the driver, and schedules a tick."""
        self._execute(effects)
        if not self._is_settling:
            self._wake_at(0.0)

    def dispatch_soon(self) -> None:
        """Lets the store send what it holds at the end of this turn of the event loop: what arrives in one turn is
        sent in one message."""
        if not self._is_dispatching:
            self._is_dispatching = True
            self._loop.call_soon(self._dispatch)

    def wake_for_store(self) -> None:
        """Schedules the store's next deadline, which a request may have made earlier."""
        self._wake_at(self._store.next_deadline())

    def leave_store(self) -> None:
        """Detaches the store: it gets no more reports and ticks. What was submitted is still written to disk."""
        self._store = NoStore()

    async def flush(self, seconds: float) -> None:
        """Writes to disk what is green, if the disk takes it in time: the next start then has less to agree on
        again."""
        end = time.monotonic() + seconds
        while not self._is_closed and self.replica.log.is_writing and time.monotonic() < end:
            self._execute(self.replica.flush())
            await asyncio.sleep(0.001)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for timer in (self._timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        if self.writer is not None:
            self.writer.stop()
        self.channel.close()

    def fail(self, error: Exception) -> None:
        """Stops after an exception that broke an invariant: the state of the machines is not to be trusted. A disk
        that failed is no such thing, nor is a log that lacks what the others have truncated: its owner starts
        another incarnation."""
        if self._is_closed:
            return
        if isinstance(error, DiskError):
            self._on_disk_failed(error)
            return
        if isinstance(error, OutOfReach):
            logger.warning("the node leaves the others, starts again, and learns what it lacks: %s", error)
            self._stop(error)
            return
        logger.critical("the node stops: %s", error, exc_info=None if isinstance(error, _EXPLAINED) else error)
        self._stop(error)

    def _stop(self, error: Exception) -> None:
        self.close()
        self._on_stopped(error)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the node is closed")

    # Inputs

    def _on_arrivals(self, arrivals: Arrivals) -> None:
        if self._is_closed:
            return
        try:
            self._take_in(arrivals)
            if not self._is_settling:
                self._settle()
        except Exception as error:
            self.fail(error)

    def _take_in(self, arrivals: Arrivals) -> None:
        now = self._now()
        for data, address in arrivals:
            self._metrics.received_bytes.observe(len(data))
            try:
                datagram = self._codec.decode(data)
            except DecodeError as error:
                self.telemetry.peer_error(error.reason, f"{address[0]}:{address[1]}", str(error))
                continue
            if datagram.sender.name == self._me.name and must_stop(self._me, self.stack.view, datagram.sender):
                raise self._twin(datagram.sender, address)
            self._heard[datagram.sender] = (address, now)
            self._execute(self.stack.receive(datagram, now))
        if len(self._heard) > ADDRESSES_MAX:  # any process can send us new names
            self._heard.clear()

    def _on_port_unreachable(self, addresses: Collection[Address]) -> None:
        machines = [machine for machine, (address, _) in self._heard.items() if address in addresses]
        if self._is_closed or not machines:
            return
        self.channel.drain()  # a machine whose datagrams wait in our sockets lived a moment ago
        for machine in machines:
            self._guard(partial(self.stack.port_unreachable, machine, self._now()))
        self._wake_at(0.0)

    def _twin(self, twin: Machine, address: Address) -> TwinNode:
        return TwinNode(
            f"another process goes by the name of this node: {twin} at {address[0]}:{address[1]}, this is "
            f"{self._me}. Stop one of them, or give each its own name in the roster"
        )

    def _on_persisted(self, token: int, seconds: float) -> None:
        self._metrics.syncs.observe(seconds)
        if self._is_closed:
            return
        try:
            self.telemetry.written()
            self._execute(self.replica.persisted(token))
            if not self._is_settling:
                self._settle()
        except Exception as error:
            self.fail(error)

    def _dispatch(self) -> None:
        self._is_dispatching = False
        if not self._is_closed:
            self._guard(self._store.dispatch)
            self.wake_for_store()

    def _guard(self, step: Callable[[], None]) -> None:
        """Runs a step. An exception in it is a broken invariant, in the store as in the layers below: the node
        stops."""
        try:
            step()
        except Exception as error:
            self.fail(error)

    # Time

    def _now(self) -> Milliseconds:
        return time.monotonic() * 1_000.0

    def _settle(self) -> None:
        """Ticks the stack while something is due, then schedules the next wake-up."""
        self._is_settling = True
        try:
            deadline = self.stack.next_deadline()
            for _ in range(_TICKS_MAX):
                now = self._now()
                if self._is_closed or deadline > now:
                    break
                if AT_ONCE < deadline < now - PAUSE_MS:
                    self.channel.drain()
                    now = self._now()
                self._execute(self.stack.tick(now))
                deadline = self.stack.next_deadline()
        finally:
            self._is_settling = False
        self._wake_at(min(deadline, self._store.next_deadline()))

    def _tick_store(self) -> None:
        """Ticks the store if it is due. This begins a turn of the event loop, so the clients that were just
        answered have had theirs: the store's wait for their next writes begins when they can send them."""
        now = self._now()
        if self._store.next_deadline() <= now:
            self._is_settling = True  # what it submits is sent by the next `_settle`
            try:
                self._store.tick(now)
                self._write_checkpoint()
            finally:
                self._is_settling = False

    def _wake_at(self, deadline: Milliseconds) -> None:
        if self._is_closed or deadline >= self._wakes_at:
            return  # an earlier timer is set, and will set this one
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = deadline
        delay_ms = deadline - self._now()
        if delay_ms > 0.0:  # rounded up: a timer that fires early finds nothing due
            self._timer = self._loop.call_later(ceil(delay_ms) / 1_000.0, self._on_timer)
        else:
            self._timer = self._loop.call_soon(self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wakes_at = NEVER
        self._guard(self._on_time)

    def _on_time(self) -> None:
        self._tick_store()
        self._settle()

    # Effects

    def _execute(self, effects: Sequence[ReplicaEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Broadcast):
                self._raise_clock_floor(self.stack.clock)
                data = self._codec.encode(effect.datagram)
                self._metrics.sent_bytes.observe(len(data))
                self.channel.send(data)
            elif isinstance(effect, Journal):
                self.telemetry.entry(effect)
            elif isinstance(effect, Queued):
                self.telemetry.queued(effect)
            elif isinstance(effect, Yellowed):
                self.telemetry.yellowed(effect)
            elif isinstance(effect, Persist):
                self._persist(effect)
            elif isinstance(effect, LeftBehind):
                self._on_left_behind(effect)
            elif isinstance(effect, Unicast):
                heard = self._heard.get(effect.target)
                if heard is not None:
                    data = self._codec.encode(effect.datagram)
                    self._metrics.sent_bytes.observe(len(data))
                    self.channel.send_to(data, heard[0])
            else:
                if isinstance(effect, Logged):
                    self.telemetry.logged(effect)
                elif isinstance(effect, Greened):
                    self.telemetry.greened(effect)
                elif isinstance(effect, Reordered):
                    self.telemetry.reordered(self.replica.log.queue)
                elif isinstance(effect, (ViewChanged, StageChanged, WindowStuck)):
                    self._announce(effect)
                self._store.handle(effect)

    def _announce(self, effect: ViewChanged | StageChanged | WindowStuck) -> None:
        """Tells of a report before the store handles it; of a view, raises the clock floor first."""
        if isinstance(effect, ViewChanged):
            self._raise_clock_floor(effect.view.id.clock)
            self.telemetry.view_changed(effect)
        elif isinstance(effect, StageChanged):
            log = self.replica.log
            self.telemetry.stage_changed(effect, log.view.members)
            self._codec.bind(log.generation)
        else:
            self.telemetry.window_stuck(effect)

    def _raise_clock_floor(self, clock: int) -> None:
        """Ensures that the next start begins above this clock, before a peer or the layer above sees it."""
        if self._clock_floor is None:
            return
        try:
            self._clock_floor.raise_above(clock)
        except OSError as error:
            raise DiskError(f"the clock floor cannot be written: {error}. Make room, or mend the disk.") from error

    # The disk

    def _persist(self, persist: Persist) -> None:
        if self.writer is None:
            raise RuntimeError("the node has no disk")
        self.telemetry.writing(persist)
        checkpoint = self._store.take_checkpoint(persist.write.lines.green, self._now())
        self.writer.submit(persist, None if checkpoint is None else self._job(checkpoint, is_alone=False))

    def _write_checkpoint(self) -> None:
        """Writes a checkpoint, if one is due, without a write of the log that could take it along."""
        if self.writer is None or self._is_closed:
            return
        checkpoint = self._store.take_checkpoint(self.replica.log.green_on_disk, self._now())
        if checkpoint is not None:
            self.writer.write(self._job(checkpoint, is_alone=True))

    def _job(self, checkpoint: Checkpoint, is_alone: bool) -> CheckpointJob:
        if self._disk is None:
            raise RuntimeError("the node has no disk")
        return CheckpointJob(
            partial(self._disk.tree.write, checkpoint=checkpoint),
            partial(self._on_checkpoint_written, self._store, checkpoint, is_alone),
        )

    def _on_checkpoint_written(
        self, store: StoreMachine, checkpoint: Checkpoint, is_alone: bool, seconds: float
    ) -> None:
        if is_alone:  # else the write of the log that took it along has counted the time
            self._metrics.checkpoints.observe(seconds)
        store.checkpoint_written(checkpoint)
        if store is self._store and not self._is_closed:
            self._guard(partial(self._go_on_from, checkpoint.line))
            self.wake_for_store()  # it may apply more now

    def _go_on_from(self, line: int) -> None:
        """Lets the log be truncated before the line of the tree on disk, as far as nobody needs it for a copy, and
        writes the next checkpoint."""
        if self._disk is not None:
            copied = self._oldest_copied()
            needed = line if copied is None else min(line, copied)
            self.replica.log.applied(needed, self._disk.log.log_size())
        self._write_checkpoint()

    def _on_disk_failed(self, error: DiskError) -> None:
        """Stops this incarnation: the others wait for our disk with every message, so we leave them (trap 8).
        Reads go on."""
        if not self._is_closed:
            self.telemetry.disk_failed(error)
            self._stop(error)

    def _watch_disk(self, sync_stall_ms: float) -> None:
        if self.writer is not None and self.writer.busy_ms() > sync_stall_ms:
            self._on_disk_failed(StalledDisk(f"a write has been under way for {self.writer.busy_ms():.0f} ms"))
        if not self._is_closed:
            self._stall_timer = self._loop.call_later(sync_stall_ms / 4_000.0, self._watch_disk, sync_stall_ms)
