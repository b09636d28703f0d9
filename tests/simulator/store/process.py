"""A simulated process that hosts a node's store on top of its log, both on one disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from corel.disk_errors import DiskError
from corel.effects import Logged, LogReport, Persist, StageChanged
from corel.messages import MessageId
from corel.outbox import TooMuch
from corel.stages import Stage
from corel.storage import LogWrite
from kvstore.store.config import StoreConfig
from kvstore.store.green_state import Checkpoint
from kvstore.store.observer import Observer
from kvstore.store.store import Store
from tests.simulator.checkers import Violation
from tests.simulator.corel.log_process import Crashed
from tests.simulator.corel.plan import CorelPlan
from tests.simulator.corel.process import CorelProcess
from tests.simulator.corel.snapshot import Snapshot
from tests.simulator.process import NEVER, TICKS_MAX, Environment
from tests.simulator.store.memory_tree import MemoryTree
from tests.simulator.store.model import Knowledge

TURN_MS = 0.5
"""How long a store that has more to do yields to the network."""


def checkpoint_bytes(checkpoint: Checkpoint) -> int:
    """Returns how much of the disk a checkpoint takes."""
    values = sum(len(item.value) for item in checkpoint.items.values() if item is not None)
    return values + 50 * (len(checkpoint.items) + len(checkpoint.fates) + len(checkpoint.memories))


@dataclass(frozen=True, slots=True)
class TreeSnapshot(Snapshot):
    """The disk of a node as it was when the transfer began, with its tree."""

    tree: MemoryTree


class StoreProcess(CorelProcess):
    """One node, driven as `kvstore.node.driver` drives a real one."""

    def __init__(self, name: str, environment: Environment, plan: CorelPlan, config: StoreConfig) -> None:
        super().__init__(name, environment, plan)
        self.store: Store | None = None
        self.away_store: Store | None = None
        """The store of the last incarnation while the node is away: it answers reads."""
        self.tree = MemoryTree()
        self.config = config
        self.on_store_started: Callable[[Store], None] = lambda store: None
        self.on_primary_check: Callable[[], None] = lambda: None
        self.on_checkpoint: Callable[[Checkpoint, str], None] = lambda checkpoint, how: None
        """Called when a checkpoint is in the tree, with how it got there."""
        self.on_log_full: Callable[[], None] = lambda: None
        """Called when the log does not accept another message."""
        self.on_sent: Callable[[MessageId, Knowledge], None] = lambda message_id, knowledge: None
        """Called with each message that is submitted, and what this node knows."""
        self.on_took_over: Callable[[MemoryTree], None] = lambda tree: None
        """Called when the tree of another node has taken the place of this one's."""
        self.observer: Observer | None = None
        """Who is told what the next store does, if anybody."""
        self._with_write: Checkpoint | None = None
        """The checkpoint that is written with the log's write under way."""
        self._alone: Checkpoint | None = None
        """The checkpoint that is written by itself, until `_alone_until`."""
        self._alone_until = 0.0
        self._unreported: list[Checkpoint] = []
        """Checkpoints that are in the tree, but not yet reported to the store."""
        self._primary_began_at = 0
        """How many messages the last primary component of this node began with."""
        self.logged: set[MessageId] = set()
        """The messages that the log has reported as logged to this store."""
        self._store_wakes_at = NEVER
        self._wakes = (0.0, 0)
        """The instant in which the store last woke, and how often it woke in it."""
        self._is_dispatching = False

    def _begin(self) -> None:
        super()._begin()
        if self.replica is None:
            return  # it crashed at once
        self._store_wakes_at = NEVER
        self._is_dispatching = False
        self._unreported = []
        self.away_store, self.logged = None, set()
        store = self.store = Store(
            self.machine_log,
            self.tree,
            self._submit,
            self._check_primary,
            self.config,
            observer=self.observer,
        )
        self.on_store_started(store)
        self._sleep_store()

    def crash(self) -> None:
        self._end_checkpoint()
        self.store = self.away_store = None
        super().crash()
        self._with_write = None
        self._unreported = []

    def _stop(self) -> None:
        """Ends this incarnation; every request that waits is answered, and reads go on."""
        self._end_checkpoint()
        if self.store is not None:
            self.store.leave()
        self.away_store, self.store = self.store, None
        super()._stop()

    def _end_checkpoint(self) -> None:
        """Decides whether a checkpoint that is written by itself reaches the disk before the end."""
        alone, self._alone = self._alone, None
        is_first = self._under_way is None or self._alone_until <= self._under_way_until
        if alone is not None and is_first and self._random.random() < 0.5 and self._takes(alone):
            self._put(alone, "by itself in a crash")

    def _takes(self, checkpoint: Checkpoint) -> bool:
        """Whether the disk takes this checkpoint."""
        try:
            self.log.space.take(checkpoint_bytes(checkpoint))
        except DiskError:
            return False
        return True

    def wipe(self, is_new_cluster: bool = False) -> None:
        super().wipe(is_new_cluster)
        self.tree = MemoryTree()

    # The state of another node

    def snapshot(self) -> Snapshot:
        found = self._snapshot_at(self.tree.line)
        return TreeSnapshot(found.lines, found.line, found.digest, found.tail, self.tree.copy())

    def _take_over(self, snapshot: Snapshot) -> None:
        assert isinstance(snapshot, TreeSnapshot)
        super()._take_over(snapshot)
        self.tree = snapshot.tree.copy()
        self.away_store = None  # its disk is gone
        self.on_took_over(self.tree)

    def leave(self) -> None:
        """Begins an orderly stop, unless the process is stopped in the middle of its effects."""
        if self.store is not None and not self._rest:
            self._safely(self.store.leave)

    # Requests

    def ask(self, request: Callable[[Store], None]) -> None:
        """Hands a request to the store as soon as the process runs, unless it crashes before."""
        store = self.store
        if store is not None:
            self._ask(request, store)

    def _ask(self, request: Callable[[Store], None], store: Store) -> None:
        if store is not self.store:
            return
        if self._is_postponed(lambda: self._ask(request, store)):
            return
        self._safely(lambda: request(store))
        if not self._is_dispatching:  # what arrives in this instant leaves together
            self._is_dispatching = True
            self._world.after(0.0, lambda: self._dispatch(store))
        self._sleep_store()

    def _dispatch(self, store: Store) -> None:
        if store is not self.store:
            return
        self._is_dispatching = False
        if not self.is_paused():
            self._safely(store.dispatch)
            self._sleep_store()

    def _safely(self, action: Callable[[], None]) -> None:
        """Calls into the store, which may submit, and the process may crash in the middle of that."""
        try:
            action()
        except Crashed:
            assert self.store is None
        except DiskError as error:
            self._leave(error)

    def _submit(self, body: bytes) -> MessageId:
        log = self.machine_log
        base = self._primary_began_at if log.stage is Stage.PRIMARY else None
        knowledge = Knowledge(log.queue.green, frozenset([entry.id for entry in log.queue]), base)
        try:
            message_id = self.submit(body)
        except TooMuch:
            self.on_log_full()
            raise
        self.on_sent(message_id, knowledge)
        if self.replica is None:
            raise Crashed
        return message_id

    def _check_primary(self, number: int) -> None:
        assert self.replica is not None
        self.on_primary_check()
        self._execute(self.replica.check_primary(number))
        self._wake_soon()
        if self.replica is None:
            raise Crashed

    # What the log reports

    def _execute(self, effects: Sequence[Any], may_stop: bool = False) -> None:
        for effect in effects:  # the store may send as soon as it hears of what the first of them says
            if isinstance(effect, StageChanged) and effect.stage is Stage.PRIMARY:
                self._primary_began_at = effect.length
        super()._execute(effects, may_stop)

    def _execute_one(self, effect: Any) -> None:
        if self.replica is None:
            raise Crashed  # by what an effect before this one led to
        super()._execute_one(effect)
        store = self.store
        if store is None:
            return
        if isinstance(effect, Logged):
            self.logged.update(entry.id for entry in effect.entries)
        if isinstance(effect, LogReport):
            store.handle(effect)
            self._sleep_store()

    # Checkpoints

    def _persist(self, effect: Persist) -> None:
        if self.store is not None:
            self._with_write = self.store.take_checkpoint(effect.write.lines.green, self._world.now)
        super()._persist(effect)

    def _apply(self, write: LogWrite) -> None:
        checkpoint, self._with_write = self._with_write, None
        self._log_write(write, 0 if checkpoint is None else checkpoint_bytes(checkpoint))
        if checkpoint is not None:
            self._put(checkpoint, "with a write" if self.store is not None else "with a write in a crash")

    def _persisted(self, effect: Persist, starts: int) -> None:
        super()._persisted(effect, starts)
        self._report_written()

    def _apply_greens(self) -> None:
        """Does nothing: checkpoints tell the log what is applied."""

    def _write_checkpoint(self) -> None:
        """Writes a checkpoint by itself, when there is no write of the log that it could go with."""
        store = self.store
        if store is None:
            return
        checkpoint = store.take_checkpoint(self.machine_log.green_on_disk, self._world.now)
        if checkpoint is None:
            return
        free_at = max(self._world.now, self.stalled_until, self._under_way_until)
        self._alone = checkpoint
        self._alone_until = free_at + self.sync_ms * (0.5 + self._random.random())
        self.stalled_until = self._alone_until  # the log's next write waits for this one
        self._world.at(self._alone_until, lambda: self._written_alone(checkpoint, store))

    def _written_alone(self, checkpoint: Checkpoint, store: Store) -> None:
        if store is not self.store:
            return
        if self._is_postponed(lambda: self._written_alone(checkpoint, store)):
            return
        self._alone = None
        try:
            self.log.space.take(checkpoint_bytes(checkpoint))
            self._put(checkpoint, "by itself")
            self._report_written()
        except DiskError as error:
            self._leave(error)

    def _put(self, checkpoint: Checkpoint, how: str) -> None:
        self.tree.apply(checkpoint)
        self.tree_line = self.tree.line
        self._unreported.append(checkpoint)
        self.on_checkpoint(checkpoint, how)

    def _report_written(self) -> None:
        store = self.store
        if store is None or not self._unreported:
            return
        if self._rest:  # the write was reported first
            self._world.at(self.paused_until, self._report_written)
            return
        for checkpoint in self._unreported:
            store.green.written(checkpoint)
        self._unreported = []
        if self._truncation is not None:
            self.machine_log.applied(self.tree.line, self.log.size)
        self._write_checkpoint()
        self._sleep_store()  # there is room to apply more

    # Time

    def _sleep_store(self) -> None:
        store = self.store
        if store is None:
            return
        deadline = store.next_deadline()
        if deadline < self._store_wakes_at:
            self._store_wakes_at = deadline
            at = self._world.now + TURN_MS if deadline < self._world.now else deadline
            self._world.at(at, lambda: self._wake_store(deadline, store))

    def _wake_store(self, scheduled: float, store: Store) -> None:
        if store is not self.store or scheduled != self._store_wakes_at:
            return
        if self._is_postponed(lambda: self._wake_store(scheduled, store)):
            return
        self._store_wakes_at = NEVER
        now = self._world.now
        self._wakes = (now, self._wakes[1] + 1 if self._wakes[0] == now else 1)
        if self._wakes[1] > TICKS_MAX:
            raise Violation(f"the store of {self.name} wants to act again and again without time passing")
        self._safely(lambda: store.tick(now))
        self._write_checkpoint()
        self._sleep_store()
