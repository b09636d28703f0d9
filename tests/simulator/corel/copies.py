"""A layer of its own, `copies`: nodes that are started from an older copy of their own disk (a restored snapshot).

It is not part of the layer `corel`, and no test runs it, because a copy can break safety today: the node has
forgotten what it acknowledged and voted for, and may count an incarnation, and with it the ids of messages, a
second time. The operator's guide forbids it; issue 17 will have each start write an identity which the others
remember, so that the older of two does not vote. Until then a run requires only that nodes which were never
restored from a copy do not go on with different green orders.

Not drawn: a disk of another node, which `LmdbLog` refuses by the identity on it, and two processes of one name at
the same time, of which the driver stops one (`TwinNode`). Neither is part of the log."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from corel.effects import CorelEvent, Persist
from corel.outbox import TooMuch
from tests.simulator.checkers import Violation
from tests.simulator.corel.memory_log import MemoryLog
from tests.simulator.corel.plan import CorelPlan, draw_corel_plan
from tests.simulator.corel.process import CorelProcess
from tests.simulator.corel.run import QUIET_MS, SETTLE_MS_MAX, CorelRun
from tests.simulator.disk import Disk
from transport.effects import Journal
from transport.errors import BrokenInvariant
from transport.messages import Datagram


@dataclass(frozen=True, slots=True)
class Restoration:
    """A node crashes and is started from the copy of its disk that was made `age_ms` before."""

    at_ms: float
    age_ms: float
    node: str
    down_ms: float


@dataclass(frozen=True, slots=True)
class CopiesPlan:
    """Everything that a seed decides."""

    corel: CorelPlan
    restorations: tuple[Restoration, ...]


def draw_copies_plan(seed: int, nodes_min: int, nodes_max: int) -> CopiesPlan:
    corel = draw_corel_plan(seed, nodes_min, nodes_max)
    random = Random(f"copies {seed}")
    restorations = []
    for _ in range(random.choice((1, 1, 2, 4))):
        at_ms = random.uniform(300.0, corel.below.duration_ms)
        age_ms = random.choice((10.0, 100.0, 500.0, 2_000.0))
        node, down_ms = random.choice(corel.below.nodes), random.choice((1.0, 100.0))
        restorations.append(Restoration(at_ms, min(age_ms, at_ms), node, down_ms))
    return CopiesPlan(replace(corel, bootstrap=None, replacements=(), twin=None), tuple(restorations))


class StoppableProcess(CorelProcess):
    """One node. A broken invariant stops it for good, with its data intact, as it stops a real one."""

    why_stopped: BrokenInvariant | None = None

    def start(self) -> None:
        self._guarded(super().start)

    def submit_if_up(self, body: bytes) -> None:
        self._guarded(lambda: self.submit(body))

    def restore(self, disk: Disk, log: MemoryLog) -> None:
        """Puts a copy of an earlier disk in place of its own."""
        self.disk, self.log = disk, log

    def _on_datagram(self, datagram: Datagram) -> None:
        self._guarded(lambda: super(StoppableProcess, self)._on_datagram(datagram))

    def _wake(self, scheduled: float) -> None:
        self._guarded(lambda: super(StoppableProcess, self)._wake(scheduled))

    def _persisted(self, effect: Persist, starts: int) -> None:
        self._guarded(lambda: super(StoppableProcess, self)._persisted(effect, starts))

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except BrokenInvariant as error:
            self.why_stopped = error
            self.is_stopped = True
            self.crash()


class CopiesRun(CorelRun):
    """One seed's run."""

    processes: dict[str, StoppableProcess]  # type: ignore[assignment]

    def __init__(self, plan: CopiesPlan, write: Callable[[str], None] | None = None) -> None:
        super().__init__(plan.corel, write)
        self._restorations = plan.restorations
        self._restored: set[str] = set()
        for judges in self.jury.all:
            judges.checkers.clear()  # they speak of disks that forget nothing

    def run(self) -> None:
        self._schedule_starts()
        self._schedule_faults()
        for one in self._restorations:
            self.world.at(one.at_ms - one.age_ms, partial(self._copy, one))
        self.world.run_until(self.plan.below.duration_ms)
        self._heal()
        self._settles(self._is_one_primary, SETTLE_MS_MAX)
        self._is_sending = False
        self.world.run_until(self.world.now + QUIET_MS)
        self._judge()

    def _judge(self) -> None:
        for process in self.processes.values():
            if process.why_stopped is not None:
                kind = "restored from a copy" if process.name in self._restored else "never restored"
                self.coverage[f"nodes stopped, {kind}"] += 1
        self.disk_failures.forgive_rot()
        going = [one for one in self.processes.values() if one.why_stopped is None]
        self.coverage["runs that end in one primary component"] += self._is_one_primary()
        orders = {
            one.name: [(entry.id, entry.body) for entry in one.log.green(0, one.log.lines.green)]
            for one in going
            if one.name not in self._restored
        }
        longest = max(orders.values(), key=len, default=[])
        for name, order in orders.items():
            if order != longest[: len(order)]:
                raise Violation(f"{name} has another green order than others, and nobody has noticed")

    def _new_process(self, name: str, address: str | None = None) -> CorelProcess:
        return StoppableProcess(name, self.environment, self.plan, address)

    def _send(self, process: CorelProcess) -> None:
        self._sent += 1
        assert isinstance(process, StoppableProcess)
        with suppress(TooMuch):
            process.submit_if_up(b"%d" % self._sent)

    def _on_written(self, process: CorelProcess) -> None:
        """What a disk holds is not judged."""

    def _on_journal(self, process: CorelProcess, journal: Journal) -> None:
        if journal.event is CorelEvent.REFUSED:
            self.coverage["messages refused"] += 1
        else:
            super()._on_journal(process, journal)

    def _copy(self, restoration: Restoration) -> None:
        process = self.processes[restoration.node]
        copied = copy.deepcopy((process.disk, process.log))
        self.world.at(restoration.at_ms, lambda: self._restore(restoration, *copied))

    def _restore(self, restoration: Restoration, disk: Disk, log: MemoryLog) -> None:
        process = self.processes[restoration.node]
        if process.replica is None:
            return
        process.crash()
        process.restore(disk, log)
        self._restored.add(process.name)
        self.coverage["restorations"] += 1
        self.world.after(restoration.down_ms, process.start)
