"""A simulated process that hosts a node's store on top of its log, on one disk with it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from corel.effects import Event, Greened, Logged, Persist, Proven
from corel.messages import MessageId
from corel.outbox import TooMuch
from corel.storage import Write
from kvstore.green_state import Checkpoint
from kvstore.machine import Machine
from kvstore.store_config import StoreConfig
from tests.simulator.checkers import Violation
from tests.simulator.corel_plan import CorelPlan
from tests.simulator.corel_process import CorelProcess, Crashed
from tests.simulator.group_process import TICKS_MAX
from tests.simulator.memory_tree import MemoryTree
from tests.simulator.network import Network
from tests.simulator.world import World
from transport.effects import Journal
from transport.messages import Datagram

_NEVER = float("inf")

TURN_MS = 0.5
"""A store that has more to do lets the network have its turn, which takes so long."""


class StoreProcess(CorelProcess):
    """One node, driven as `kvstore.service` drives a real one."""

    def __init__(
        self,
        name: str,
        world: World,
        network: Network[Datagram],
        random: Random,
        plan: CorelPlan,
        config: StoreConfig,
    ) -> None:
        below = plan.below
        super().__init__(
            name,
            world,
            network,
            random,
            below.membership,
            below.config,
            plan.config,
            plan.roster,
            plan.sync_ms,
        )
        self.store: Machine | None = None
        self.tree = MemoryTree()
        self.config = config
        self.on_store_started: Callable[[Machine], None] = lambda store: None
        self.on_probe: Callable[[], None] = lambda: None
        self.on_checkpoint: Callable[[Checkpoint, str], None] = lambda checkpoint, how: None
        """One is in the tree."""
        self.on_no_room: Callable[[], None] = lambda: None
        """The log does not take more."""
        self._with_write: Checkpoint | None = None
        """It travels with the log's write under way."""
        self._alone: Checkpoint | None = None
        """It is written by itself, which is done at that time."""
        self._alone_until = 0.0
        self._unreported: list[Checkpoint] = []
        """In the tree, and the store does not know."""
        self._store_wakes_at = _NEVER
        self._wakes = (0.0, 0)
        """How often it woke in this instant."""
        self._is_dispatching = False

    @property
    def paused_until(self) -> float:
        return self._paused_until

    def start(self) -> None:
        super().start()
        if self.replica is None:
            return  # it crashed at once
        self._store_wakes_at = _NEVER
        self._is_dispatching = False
        store = self.store = Machine(self.machine_log, self.tree, self._submit, self._probe, self.config)
        self.on_store_started(store)
        self._safely(store.stage_changed)
        self._sleep_store()

    def crash(self) -> None:
        alone, self._alone = self._alone, None
        is_first = self._under_way is None or self._alone_until <= self._under_way_until
        if alone is not None and is_first and self._random.random() < 0.5:
            self._put(alone, "by itself in a crash")
        self.store = None
        super().crash()
        self._with_write = None
        self._unreported = []

    def wipe(self) -> None:
        super().wipe()
        self.tree = MemoryTree()

    def leave(self) -> None:
        """The beginning of an orderly stop."""
        if self.store is not None:
            self._safely(self.store.leave)

    # Requests

    def ask(self, request: Callable[[Machine], None]) -> None:
        """Hands a request to the store as soon as the process runs, unless it crashes before."""
        store = self.store
        if store is not None:
            self._ask(request, store)

    def _ask(self, request: Callable[[Machine], None], store: Machine) -> None:
        if store is not self.store:
            return
        if self.is_paused():
            self._world.at(self._paused_until, lambda: self._ask(request, store))
            return
        self._safely(lambda: request(store))
        if not self._is_dispatching:  # what arrives in this instant leaves together
            self._is_dispatching = True
            self._world.after(0.0, lambda: self._dispatch(store))
        self._sleep_store()

    def _dispatch(self, store: Machine) -> None:
        if store is not self.store:
            return
        self._is_dispatching = False
        if not self.is_paused():
            self._safely(store.dispatch)
            self._sleep_store()

    def _safely(self, action: Callable[[], None]) -> None:
        """The store may submit, and the process crash in the middle of that."""
        try:
            action()
        except Crashed:
            assert self.store is None

    def _submit(self, body: bytes) -> MessageId:
        try:
            message_id = self.submit(body)
        except TooMuch:
            self.on_no_room()
            raise
        if self.replica is None:
            raise Crashed
        return message_id

    def _probe(self, number: int) -> None:
        assert self.replica is not None
        self.on_probe()
        self._execute(self.replica.probe(number))
        self._wake_soon()
        if self.replica is None:
            raise Crashed

    # What the log reports

    def _execute_one(self, effect: Any) -> None:
        if self.replica is None:
            raise Crashed  # in what an effect before this one led to
        super()._execute_one(effect)
        store = self.store
        if store is None:
            return
        if isinstance(effect, Logged):
            store.logged(effect)
            self._sleep_store()
        elif isinstance(effect, Greened):
            store.greened(effect)
            self._sleep_store()
        elif isinstance(effect, Proven):
            store.proven(effect.number)
        elif isinstance(effect, Journal) and effect.event is Event.STATE:
            store.stage_changed()
            self._sleep_store()

    # Checkpoints

    def _persist(self, effect: Persist) -> None:
        if self.store is not None:
            self._with_write = self.store.take_checkpoint(effect.write.lines.green, self._world.now)
        super()._persist(effect)

    def _apply(self, write: Write) -> None:
        super()._apply(write)
        checkpoint, self._with_write = self._with_write, None
        if checkpoint is not None:
            self._put(checkpoint, "with a write" if self.store is not None else "with a write in a crash")

    def _persisted(self, effect: Persist, starts: int) -> None:
        super()._persisted(effect, starts)
        self._report_written()

    def _write_checkpoint(self) -> None:
        """When nothing else is to be written with which it could travel."""
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

    def _written_alone(self, checkpoint: Checkpoint, store: Machine) -> None:
        if store is not self.store:
            return
        if self.is_paused():
            self._world.at(self._paused_until, lambda: self._written_alone(checkpoint, store))
            return
        self._alone = None
        self._put(checkpoint, "by itself")
        self._report_written()

    def _put(self, checkpoint: Checkpoint, how: str) -> None:
        self.tree.apply(checkpoint)
        self._unreported.append(checkpoint)
        self.on_checkpoint(checkpoint, how)

    def _report_written(self) -> None:
        store = self.store
        if store is None or not self._unreported:
            return
        for checkpoint in self._unreported:
            store.green.written(checkpoint)
        self._unreported = []
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

    def _wake_store(self, scheduled: float, store: Machine) -> None:
        if store is not self.store or scheduled != self._store_wakes_at:
            return
        if self.is_paused():
            self._world.at(self._paused_until, lambda: self._wake_store(scheduled, store))
            return
        self._store_wakes_at = _NEVER
        now = self._world.now
        self._wakes = (now, self._wakes[1] + 1 if self._wakes[0] == now else 1)
        if self._wakes[1] > TICKS_MAX:
            raise Violation(f"the store of {self.name} wants to act again and again without time passing")
        self._safely(lambda: store.tick(now))
        self._write_checkpoint()
        self._sleep_store()
