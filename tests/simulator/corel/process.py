"""A simulated process that hosts the protocol stack up to the log, on a disk that syncs slowly, stalls, and
loses in a crash what it had not synced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from corel.corel import Corel
from corel.effects import Greened, Logged, Persist, Reordered, StageChanged
from corel.messages import Entry, MessageId
from corel.replica import Replica
from corel.storage import Lines, LogWrite
from tests.simulator.corel.generations import WALL_CLOCK_SECONDS, Headers
from tests.simulator.corel.memory_log import MemoryLog
from tests.simulator.corel.plan import CorelPlan
from tests.simulator.disk import Disk
from tests.simulator.membership.process import GroupProcess
from tests.simulator.process import Environment
from transport.messages import Datagram


class Crashed(Exception):
    """The process has just crashed, in the middle of its effects."""


class CorelProcess(GroupProcess):
    """One node."""

    def __init__(self, name: str, environment: Environment, plan: CorelPlan) -> None:
        super().__init__(name, environment, plan.below.membership, plan.below.config)
        self.log = MemoryLog(Lines(is_voter=True), f"{name} 0")
        self.disks = 1
        """How many disks the node has had."""
        self.replica: Replica | None = None
        self.roster = plan.roster
        self.headers = Headers(plan.roster)
        self.carry = self.headers.put
        self.is_stopped = False
        """Whether an operator has stopped it, and it does not start by itself."""
        self.corel = plan.config
        self.sync_ms = plan.sync_ms
        self.stalled_until = 0.0
        self.crash_after_effects: int | None = None
        """After how many more effects it crashes, if it does."""
        self.starts = 0
        self.on_greened: Callable[[Greened], None] = lambda greened: None
        self.on_logged: Callable[[Logged], None] = lambda logged: None
        self.on_reordered: Callable[[], None] = lambda: None
        self.on_written: Callable[[], None] = lambda: None
        self.on_crash: Callable[[LogWrite | None, bool], None] = lambda write, was_written: None
        """Called with the write that was under way, and whether it reached the disk."""
        self.on_step: Callable[[], None] = lambda: None
        self.on_started: Callable[[Corel], None] = lambda log: None
        self.on_own: Callable[[Corel, Entry], None] = lambda log, entry: None
        """Called when a message of its own is about to enter its queue."""
        self.down_ms = 0.0
        """How long it stays down when it crashes after so many effects."""
        self._under_way: LogWrite | None = None
        self._under_way_until = 0.0

    @property
    def machine_log(self) -> Corel:
        assert self.replica is not None
        return self.replica.log

    def least_clock(self) -> int:
        return self.log.lines.clock

    def start(self) -> None:
        if self.is_stopped or self.replica is not None:
            return
        super().start()
        assert self.group is not None
        self.starts += 1
        image = self.log.load()
        log = Corel(self.me, self.group.view, self.roster, self.corel, image, self.log)
        _watch(log, self.on_own)
        self.machine = self.replica = Replica(self.group, log)
        self.headers.bind(log.generation)
        self.on_started(log)
        self._execute(self.replica.start())
        self._wake_soon()

    def crash(self) -> None:
        write, self._under_way = self._under_way, None
        was_written = write is not None and self._random.random() < 0.5
        if write is not None and was_written:
            self._apply(write)
        self.replica = None
        self.crash_after_effects = None
        super().crash()
        self.on_crash(write, was_written)

    def wipe(self, is_new_cluster: bool = False) -> None:
        """Replaces the disk by an empty one. Only the disks of a new cluster vote, and count incarnations from 1
        (decision 7)."""
        self.log = MemoryLog(Lines(is_voter=is_new_cluster), f"{self.name} {self.disks}")
        self.disks += 1
        self.disk = Disk(self._random)
        if not is_new_cluster:
            self.disk.write("incarnation", b"%d" % (WALL_CLOCK_SECONDS + int(self._world.now)))
            self.disk.sync()

    def submit(self, body: bytes) -> MessageId:
        assert self.replica is not None
        message_id, effects = self.replica.submit(body)
        self._execute(effects)
        self._wake_soon()
        return message_id

    def stall(self, duration_ms: float) -> None:
        self.stalled_until = max(self.stalled_until, self._world.now + duration_ms)

    def take_in(self, datagram: Datagram) -> None:
        if self.headers.admits(datagram):
            super().take_in(datagram)

    def _execute(self, effects: Sequence[Any], may_stop: bool = False) -> None:
        try:
            super()._execute(effects, may_stop)
        except Crashed:
            return
        if self.replica is not None and not self._rest:
            self.on_step()

    def _execute_one(self, effect: Any) -> None:
        if self.crash_after_effects is not None:
            self.crash_after_effects -= 1
            if self.crash_after_effects < 0:
                self.crash()
                self._world.after(self.down_ms, self.start)
                raise Crashed
        if isinstance(effect, Persist):
            self._persist(effect)
        elif isinstance(effect, Greened):
            self.on_greened(effect)
        elif isinstance(effect, Logged):
            self.on_logged(effect)
        elif isinstance(effect, Reordered):
            self.on_reordered()
        elif isinstance(effect, StageChanged):
            self.headers.bind(self.machine_log.generation)
            self.on_journal(effect.journal())
        else:
            super()._execute_one(effect)

    def _persist(self, effect: Persist) -> None:
        assert self._under_way is None
        self._under_way = effect.write
        delay_ms = self.sync_ms * (0.5 + self._random.random())
        at = max(self._world.now, self.stalled_until) + delay_ms
        self._under_way_until = at
        starts = self.starts
        self._world.at(at, lambda: self._persisted(effect, starts))

    def _persisted(self, effect: Persist, starts: int) -> None:
        if self.replica is None or starts != self.starts or self._under_way is not effect.write:
            return
        if self._is_postponed(lambda: self._persisted(effect, starts)):
            return
        self._under_way = None
        self._apply(effect.write)
        self.on_written()
        self._execute(self.replica.persisted(effect.token), may_stop=True)
        self._wake_soon()

    def _apply(self, write: LogWrite) -> None:
        """Puts the write on disk."""
        self.log.apply(write)


def _watch(log: Corel, on_own: Callable[[Corel, Entry], None]) -> None:
    queue = log.queue
    for name in ("add_yellow", "add_red"):
        setattr(queue, name, partial(_add, log, getattr(queue, name), on_own))


def _add(log: Corel, add: Callable[[Entry], None], on_own: Callable[[Corel, Entry], None], entry: Entry) -> None:
    if entry.id.stream == log.me:
        on_own(log, entry)
    add(entry)
