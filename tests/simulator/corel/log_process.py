"""A simulated process that hosts the protocol stack up to the log, on a disk that syncs slowly, stalls, loses in a
crash what it had not synced, and may refuse a write: then the node leaves, and comes back as a real one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from corel.corel import Corel
from corel.disk_errors import DiskError, StalledDisk
from corel.effects import Greened, Logged, Persist, Queued, Reordered, StageChanged, Yellowed
from corel.messages import Entry, MessageId
from corel.recovery_plan import OutOfReach, ReplacedDisk
from corel.replica import Replica
from corel.storage import Lines, LogWrite
from kvstore.node.coming_back import ComingBack
from kvstore.node.twins import must_stop
from membership.effects import LeftBehind
from tests.simulator.corel.absence import Absence
from tests.simulator.corel.generations import WALL_CLOCK_MS, HeadedDatagram, Headers
from tests.simulator.corel.memory_log import MemoryLog
from tests.simulator.corel.plan import CorelPlan
from tests.simulator.disk import Disk
from tests.simulator.membership.process import GroupProcess
from tests.simulator.process import Environment
from transport.messages import Datagram, Machine

RESTART_MS = 1_000.0

REPORT_MS_MAX = 5.0
"""How long the news of a failed meta page may take from the writing thread to the event loop."""


class Crashed(Exception):
    """The process has just crashed, in the middle of its effects."""


_LEAVING = (DiskError, OutOfReach, ReplacedDisk)
"""Errors after which a node leaves the others."""


class LogProcess(GroupProcess):
    """One node."""

    def __init__(self, name: str, environment: Environment, plan: CorelPlan, address: str | None = None) -> None:
        super().__init__(name, environment, plan.below.membership, plan.below.config, address)
        self.log = MemoryLog(Lines(is_voter=True), f"{name} 0")
        self.disks = 1
        """How many disks the node has had."""
        self.replica: Replica | None = None
        self.roster = plan.roster
        self.headers = Headers(plan.roster, self.address)
        self.carry = self.headers.put
        self.is_stopped = False
        """Whether an operator has stopped it, or it has stopped itself, and it does not start by itself."""
        self.corel = plan.config
        self.sync_ms = plan.sync_ms
        self.stalled_until = 0.0
        self.crash_after_effects: int | None = None
        """After how many more effects it crashes, if it does."""
        self.starts = 0
        self.lives = 1
        self._incarnation_life = 0
        """The life in which the last incarnation began."""
        """How many processes of this node there have been: several incarnations may share one."""
        self.on_greened: Callable[[Greened], None] = lambda greened: None
        self.on_logged: Callable[[Logged], None] = lambda logged: None
        self.on_reordered: Callable[[], None] = lambda: None
        self.on_written: Callable[[], None] = lambda: None
        self.on_crash: Callable[[LogWrite | None, bool], None] = lambda write, was_written: None
        """Called with the write that was under way, and whether it reached the disk."""
        self.on_step: Callable[[], None] = lambda: None
        self.on_started: Callable[[Corel], None] = lambda log: None
        self.on_left: Callable[[DiskError], None] = lambda error: None
        """Called when the node has left because of its disk, or cannot start because of it."""
        self.on_returned: Callable[[], None] = lambda: None
        self.on_twin: Callable[[Machine], None] = lambda twin: None
        self.on_replaced: Callable[[ReplacedDisk], None] = lambda error: None
        """Called when the process has stopped because its disk was replaced."""
        """Called when the process has stopped because it heard another one of its name."""
        self.on_own: Callable[[Corel, Entry], None] = lambda log, entry: None
        """Called when a message of its own is about to enter its queue."""
        self.on_left_behind: Callable[[Machine], None] = lambda ahead: None
        """Called with a machine that this one is too far behind to join."""
        self.on_out_of_reach: Callable[[], None] = lambda: None
        """Called when the process stops because the members of its view have truncated what it lacks."""
        self.restart_ms = 1.0 if plan.truncation is None else plan.truncation.restart_ms
        """How long it is down when it has left a view because it lacks what the others have truncated."""
        self.down_ms = 0.0
        """How long it stays down when it crashes after so many effects."""
        self._under_way: LogWrite | None = None
        self._under_way_until = 0.0
        self._meta_page_fails = False
        self._coming_back = ComingBack()
        self._absence: Absence | None = None
        self._stays_away = False
        """Whether its log is damaged, so that it waits for an operator."""

    @property
    def is_away(self) -> bool:
        """Whether the process runs without taking part, because of its disk."""
        return self._absence is not None or self._stays_away

    @property
    def trouble(self) -> Exception | None:
        return self._coming_back.trouble

    @property
    def stall_ends(self) -> float:
        """When the disk does not stall any more, and has what was to be written meanwhile."""
        return self.stalled_until + 1.5 * self.sync_ms

    @property
    def machine_log(self) -> Corel:
        assert self.replica is not None
        return self.replica.log

    def next_incarnation(self, last: int) -> int:
        """Begins at the wall clock in a new process, and counts on in the same one, as a node does."""
        is_new_process, self._incarnation_life = self._incarnation_life != self.lives, self.lives
        return max(last + 1, WALL_CLOCK_MS + int(self._world.now) if is_new_process else 0)

    def least_clock(self) -> int:
        return self.log.lines.clock

    def start(self) -> None:
        """Starts the process, unless it runs. If its disk is damaged it stays down; if there is no room for its
        small files, somebody starts it again."""
        if self.is_stopped or self.group is not None or self.is_away:
            return
        try:
            self._begin()
        except DiskError as error:
            self.on_left(error)
        except OSError:
            self._world.after(RESTART_MS, self.start)

    def _begin(self) -> None:
        """Starts an incarnation, or raises, and nothing has started."""
        image = self.log.load()
        self.log.space.check_files()
        super().start()
        assert self.group is not None
        self.starts += 1
        log = Corel(self.me, self.group.view, self.roster, self.corel, image, self.log)
        _watch(log, self.on_own)
        self.machine = self.replica = Replica(self.group, log)
        self.headers.bind(log.generation)
        self.on_started(log)
        try:
            self._execute(self.replica.start())
        except DiskError:
            self._stop()
            raise
        self._wake_soon()

    def crash(self) -> None:
        write, self._under_way = self._under_way, None
        was_written = write is not None and self._random.random() < 0.5 and self._is_applied(write)
        if self._absence is not None:
            self._absence.cancel()
            self._absence = None
        self._stays_away = False
        self._coming_back = ComingBack()
        self.lives += 1
        self._meta_page_fails = self.log.space.is_unusable = False
        self.replica = None
        self.crash_after_effects = None
        super().crash()
        self.on_crash(write, was_written)

    def wipe(self, is_new_cluster: bool = False) -> None:
        """Replaces the disk by an empty one. Only the disks of a new cluster vote."""
        self.log = MemoryLog(Lines(is_voter=is_new_cluster), f"{self.name} {self.disks}")
        self.disks += 1
        self.disk = Disk(self._random)

    def submit(self, body: bytes) -> MessageId:
        assert self.replica is not None
        message_id, effects = self.replica.submit(body)
        self._execute(effects)
        self._wake_soon()
        return message_id

    def fail_meta_page(self) -> None:
        """Has the next write fail in a way after which LMDB has to be opened again."""
        self._meta_page_fails = True

    def stall(self, duration_ms: float) -> None:
        self.stalled_until = max(self.stalled_until, self._world.now + duration_ms)

    def _execute(self, effects: Sequence[Any], may_stop: bool = False) -> None:
        # A crash after a report for the journal, which changes nothing, is a crash before it.
        ahead = [effect.machine for effect in effects if isinstance(effect, LeftBehind)]
        effects = [effect for effect in effects if not isinstance(effect, (Queued, Yellowed, LeftBehind))]
        try:
            super()._execute(effects, may_stop)
        except Crashed:
            return
        if self.replica is not None and not self._rest:
            self.on_step()
        for machine in ahead:
            if self.replica is not None:
                self.on_left_behind(machine)

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
        if at > self._world.now + self.corel.sync_stall_ms:
            self._world.after(self.corel.sync_stall_ms, lambda: self._stalled(effect))

    def _persisted(self, effect: Persist, starts: int) -> None:
        if starts != self.starts or self._under_way is not effect.write:
            return
        if self._is_postponed(lambda: self._persisted(effect, starts)):
            return
        self._under_way = None
        if self._meta_page_fails:
            self._break_meta_page(effect.write, starts)
            return
        try:
            self._apply(effect.write)
            self.on_written()
            if self.replica is not None:  # else it has left while this was being written
                self._execute(self.replica.persisted(effect.token), may_stop=True)
        except _LEAVING as error:
            self._leave(error)
        self._apply_greens()
        self._wake_soon()

    def _apply(self, write: LogWrite) -> None:
        """Puts the write on disk."""
        self._log_write(write)

    def _log_write(self, write: LogWrite, also_bytes: int = 0) -> None:
        self.log.write(write, also_bytes)

    def _apply_greens(self) -> None:
        """What a subclass does when a write is on disk."""

    def _is_applied(self, write: LogWrite) -> bool:
        """Puts the write on disk if the disk takes it, and returns whether it did."""
        try:
            self._apply(write)
        except DiskError:
            return False
        return True

    # A disk that fails

    def take_in(self, datagram: Datagram) -> None:
        try:
            if not self.headers.admits(datagram):
                return
            if self.group is not None and must_stop(self.me, self.group.view, datagram.sender):
                self.is_stopped = True
                self.crash()
                self.on_twin(datagram.sender)
                return
            super().take_in(datagram)
        except _LEAVING as error:
            self._leave(error)

    def source_of(self, datagram: Datagram) -> str:
        assert isinstance(datagram, HeadedDatagram)
        return datagram.address

    def tick(self) -> None:
        try:
            super().tick()
        except _LEAVING as error:
            self._leave(error)

    def _resume(self) -> None:
        try:
            super()._resume()
        except _LEAVING as error:
            self._leave(error)

    def _reserve(self, clock: int) -> None:
        try:
            self.log.space.check_files()
        except OSError as error:
            raise DiskError(f"the clock floor cannot be written: {error}") from error
        super()._reserve(clock)

    def _break_meta_page(self, write: LogWrite, starts: int) -> None:
        """Fails on LMDB's meta page: whether the write is there is known when the log has been opened again."""
        self._meta_page_fails = False
        if self._random.random() < 0.5:
            self._is_applied(write)
        self.log.space.is_unusable = True
        error = DiskError("the simulated disk: the meta page cannot be written")
        delay_ms = self._random.random() * REPORT_MS_MAX
        self._world.after(delay_ms, lambda: self._leave(error) if starts == self.starts else None)

    def _stalled(self, effect: Persist) -> None:
        if self._under_way is effect.write and not self._is_postponed(lambda: self._stalled(effect)):
            self._leave(StalledDisk("a simulated write takes too long"))

    def _leave(self, error: DiskError | OutOfReach | ReplacedDisk) -> None:
        """Leaves the others and stays away until the disk takes writes, as `RestartingDriver` does. A write that
        is under way goes on. A node that is out of reach of the others starts again."""
        if self.replica is None:
            return
        if isinstance(error, OutOfReach):
            self.crash()
            self._world.after(self.restart_ms, self.start)
            self.on_out_of_reach()
            return
        if isinstance(error, ReplacedDisk):
            self._stop_replaced(error)
            return
        self._stop()
        self._go_away(error)

    def _stop_replaced(self, error: ReplacedDisk) -> None:
        self.is_stopped = True
        self.crash()
        self.on_replaced(error)

    def _go_away(self, error: DiskError) -> None:
        pause = self._coming_back.failed(error, self._world.now / 1_000.0)
        if pause is None:
            self._stay_away(error)
            return
        self._absence = Absence(
            self._world,
            lambda: self.log,
            lambda: self._under_way is not None,
            self._is_postponed,
            self._come_back,
            self._stay_away,
        )
        self.on_left(error)
        self._absence.start(self._coming_back, pause)

    def _stay_away(self, error: DiskError) -> None:
        self._absence, self._stays_away = None, True
        self.on_left(error)

    def _stop(self) -> None:
        """Ends this incarnation. The process goes on."""
        self.replica = self.group = self.machine = None
        self.crash_after_effects = None
        self._forget_inputs()
        self._network.detach(self.address)

    def _come_back(self) -> None:
        self._begin()
        self._absence = None
        self.on_returned()


def _watch(log: Corel, on_own: Callable[[Corel, Entry], None]) -> None:
    queue = log.queue
    for name in ("add_yellow", "add_red"):
        setattr(queue, name, partial(_add, log, getattr(queue, name), on_own))


def _add(log: Corel, add: Callable[[Entry], None], on_own: Callable[[Corel, Entry], None], entry: Entry) -> None:
    if entry.id.stream == log.me:
        on_own(log, entry)
    add(entry)
