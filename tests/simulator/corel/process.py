"""A simulated process whose log is truncated behind a simulated tree, and which can take over the state of another
node (`learning`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from corel.disk_errors import DiskError
from corel.learning import NotAhead
from corel.storage import Lines, LogWrite
from tests.simulator.corel.log_process import LogProcess
from tests.simulator.corel.plan import CorelPlan
from tests.simulator.corel.snapshot import Snapshot
from tests.simulator.process import Environment

Done: TypeAlias = Callable[[NotAhead | DiskError | None], None]
"""Called with what went wrong, if anything."""


class CorelProcess(LogProcess):
    """One node."""

    def __init__(self, name: str, environment: Environment, plan: CorelPlan, address: str | None = None) -> None:
        super().__init__(name, environment, plan, address)
        self.on_truncated: Callable[[int], None] = lambda count: None
        """Called when this many messages are truncated."""
        self.tree_line = 0
        """Up to where the layer above has applied green messages, on disk."""
        self.taken_over: Lines | None = None
        """What the log was when it had taken over another's, until it starts with that."""
        self._truncation = plan.truncation
        self._applies_at = 0.0
        self._switching: Snapshot | None = None
        """What the node takes over while no incarnation of it runs."""

    @property
    def is_away(self) -> bool:
        return super().is_away or self._switching is not None

    def crash(self) -> None:
        switching, self._switching = self._switching, None
        super().crash()
        if switching is not None and self._random.random() < 0.5:
            with contextlib.suppress(NotAhead, DiskError):
                self._take_over(switching)

    def wipe(self, is_new_cluster: bool = False) -> None:
        super().wipe(is_new_cluster)
        self.tree_line, self.taken_over = 0, None

    def restore(self, snapshot: Snapshot, generation: bytes) -> None:
        """Replaces the disk by one that begins this generation of the cluster with what is on a disk of before."""
        self.wipe(is_new_cluster=True)
        self.log.begin_anew(generation, snapshot.lines, snapshot.line, snapshot.digest, snapshot.tail)
        self.tree_line, self.taken_over = snapshot.line, self.log.lines

    # Truncation

    def _log_write(self, write: LogWrite, also_bytes: int = 0) -> None:
        cut = self.log.lines.cut
        super()._log_write(write, also_bytes)
        if self.log.lines.cut > cut:
            self.on_truncated(self.log.lines.cut - cut)

    def _apply_greens(self) -> None:
        """Has the layer above apply green messages that are on disk, if it is time, and tells the log."""
        plan = self._truncation
        if plan is None or self.replica is None or self._rest or self._world.now < self._applies_at:
            return
        self._applies_at = self._world.now + plan.every_ms
        self.tree_line = max(self.tree_line, self.log.lines.green - plan.lag)
        self.machine_log.applied(self.tree_line, self.log.size)

    # The state of another node

    def snapshot(self) -> Snapshot:
        """Returns what is on the disk now, for another node."""
        return self._snapshot_at(self.tree_line)

    def _snapshot_at(self, line: int) -> Snapshot:
        return Snapshot(self.log.lines, line, self.log.green_digest(line), self.log.tail_from(line))

    def learn(self, snapshot: Snapshot, switch_ms: float, done: Done) -> None:
        """Ends this incarnation, takes over this much later what another node had, and starts again. A crash in
        between leaves the old disk or the new one."""
        self._stop()
        self._switching = snapshot
        self._world.after(switch_ms, partial(self._switch, snapshot, done))

    def _switch(self, snapshot: Snapshot, done: Done) -> None:
        again = partial(self._switch, snapshot, done)
        if self._switching is not snapshot:
            return  # it was killed
        if self._under_way is not None:
            self._world.after(1.0, again)
        elif not self._is_postponed(again):
            try:
                self.log.space.reopen_if_unusable()
                self._take_over(snapshot)
                done(None)
            except (NotAhead, DiskError) as error:
                done(error)
            self._switching = None
            self._start_again()

    def _take_over(self, snapshot: Snapshot) -> None:
        self.log.take_over_parts(self.name, snapshot.lines, snapshot.line, snapshot.digest, snapshot.tail)
        self.tree_line, self.taken_over = snapshot.line, self.log.lines

    def _start_again(self) -> None:
        if self.is_stopped:
            return
        try:
            self._begin()
        except (DiskError, OSError) as error:
            self._go_away(error if isinstance(error, DiskError) else DiskError(str(error)))
