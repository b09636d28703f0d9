"""A cluster that is bootstrapped anew in the middle of a run, and the nodes that were forgotten then (decision
20), empty or from a copy of a disk of before.

A node that was left over and never was in a primary component is bound to no generation. It joins the new
cluster, and what it has merges there: these are writes that it accepted and promised to merge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from corel.messages import identity_of, is_bound
from corel.stages import Stage
from tests.simulator.checkers import Violation
from tests.simulator.checkers.log import History
from tests.simulator.corel.generations import BOOTSTRAP_DOWN_MS, Bootstrap, Restore
from tests.simulator.corel.judges import Jury
from tests.simulator.corel.process import CorelProcess
from tests.simulator.corel.snapshot import Snapshot, is_damaged_from
from tests.simulator.world import World
from transport.effects import Reason

POLL_MS = 20.0


class LeftOver:
    """The operator of one run with a `Bootstrap`."""

    def __init__(
        self,
        plan: Bootstrap,
        restore: Restore | None,
        world: World,
        processes: Mapping[str, CorelProcess],
        jury: Jury,
        coverage: Counter[str],
    ) -> None:
        self._plan = plan
        self._restore = restore
        self._world = world
        self._processes = processes
        self._jury = jury
        self._coverage = coverage
        self._old = jury.last()
        self._left_over: tuple[str, ...] = ()
        self._is_met = False
        """Whether the nodes that were left over are up, and the others are bound to the new generation."""

    def schedule(self) -> None:
        self._world.at(self._plan.at_ms, self._bootstrap)

    def strangers(self) -> list[CorelProcess]:
        """Returns the nodes of the old generation: those that were left over, and empty disks which met them
        first."""
        return [one for one in self._processes.values() if self._jury.of(one.name) is self._old]

    def is_kept_out(self) -> bool:
        """Whether there is one component of all nodes of the new generation and no other, which is primary if its
        voters are a majority: disks that were replaced and met a node left over first are not in it."""
        strangers = self.strangers()
        members = [one for one in self._processes.values() if one not in strangers]
        if not self._is_met or any(one.replica is None or one.is_paused() for one in self._processes.values()):
            return False
        voters = [one.name for one in members if one.machine_log.is_voter]
        stage = Stage.PRIMARY if members[0].roster.is_majority(voters) else Stage.NON_PRIMARY
        views = {one.machine_log.view.id for one in members}
        names = {machine.name for one in members for machine in one.machine_log.view.members}
        return (
            len(views) == 1
            and names == {one.name for one in members}
            and all(one.machine_log.stage is stage for one in members)
            and all(self._has_noticed(one) for one in strangers)
            and (not strangers or any(self._has_noticed(one) for one in members))
        )

    def check_reported(self) -> None:
        """What the strangers were kept out by, and that they have no primary component."""
        for one in self.strangers():
            if one.machine_log.stage is Stage.PRIMARY:
                raise Violation(f"{one.name}, left over from before the bootstrap, is in a primary component")
        captured = sum(one.name not in self._left_over for one in self.strangers())
        self._coverage["nodes left over"] += len(self._left_over)
        self._coverage["empty disks that met a node left over first"] += captured
        self._coverage["datagrams of another generation dropped"] += sum(
            one.headers.dropped[Reason.OTHER_CLUSTER] for one in self._processes.values()
        )

    def replace_disks(self) -> None:
        """Wipes the strangers, as the log line of `other_cluster` says."""
        for one in self.strangers():
            one.crash()
            one.wipe()
            self._jury.replaced(one.name)
            self._world.after(1.0, one.start)

    def _has_noticed(self, process: CorelProcess) -> bool:
        return process.headers.dropped[Reason.OTHER_CLUSTER] > 0

    def _is_bound(self, process: CorelProcess) -> bool:
        lines = process.log.lines
        return is_bound(lines.committed, lines.generation, lines.attempted_view)

    def _bootstrap(self) -> None:
        for one in self._processes.values():
            if one.replica is not None or one.is_away:
                one.crash()
            one.is_stopped = True
        self._world.after(BOOTSTRAP_DOWN_MS, self._start_new)

    def _start_new(self) -> None:
        self._left_over = self._plan.left_over
        wiped = [one for one in self._processes.values() if one.name not in self._left_over]
        self._coverage["clusters bootstrapped anew"] += 1
        backup = self._backup(self._restore) if self._restore is not None else None
        for one in wiped:
            one.wipe(is_new_cluster=True)
        for name in self._left_over:
            if not self._is_bound(self._processes[name]):
                self._coverage["nodes left over that are bound to no generation"] += 1
                self._jury.left_over([record.id for record in self._processes[name].log.messages])
        self._jury.bootstrapped([one.name for one in wiped])
        if self._restore is not None and backup is not None:
            self._restore_all(wiped, self._restore, *backup)
        for one in wiped:
            one.is_stopped = False
            one.start()
        self._world.after(POLL_MS, self._start_left_over)

    def _backup(self, restore: Restore) -> tuple[Snapshot, History] | None:
        """Returns what is on a disk of the old cluster, and the history that led to it; None if it is damaged."""
        source = self._processes[restore.source]
        if is_damaged_from(source.log, source.log.lines.cut):
            return None
        return source.snapshot(), self._jury.of(source.address).history

    def _restore_all(self, new: list[CorelProcess], restore: Restore, backup: Snapshot, before: History) -> None:
        """Has the new cluster begin with the green messages of a disk of the old one."""
        self._coverage["clusters restored from a copy"] += 1
        self._jury.last().begin_with(before, backup.lines.green)
        for one in new:
            if one.name in restore.empty:
                self._coverage["nodes of a restored cluster that begin with empty disks"] += 1
                one.wipe()
            else:
                one.restore(backup, identity_of(b"restored"))

    def _start_left_over(self) -> None:
        """Starts them as soon as every other disk is bound to the new generation."""
        new = [one for one in self._processes.values() if one.name not in self._left_over]
        if not all(map(self._is_bound, new)):
            self._world.after(POLL_MS, self._start_left_over)
            return
        for name in self._left_over:
            self._processes[name].is_stopped = False
            self._processes[name].start()
        self._is_met = True
