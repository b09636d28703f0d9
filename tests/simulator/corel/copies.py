"""A layer of its own, `copies`: nodes that are started from an older copy of their own disk (a restored snapshot),
and second processes of one name that run from a copy or from an empty disk (`copied_twins`).

It is not part of the layer `corel`, because a copy can break safety: the node has forgotten what it acknowledged
and voted for, and where no member remembers more than its disk does, nobody can know (decision 27). The operator's
guide forbids it. A run requires this:

- Nodes whose disks were never copied do not go on with different green orders.
- After one more recovery, no two members of a component do, whatever their disks are: digests chain over bodies,
  so an id that was given to two messages is noticed.
- Of two processes of one name that hear each other, one stops.
- When the twin is gone and its node has an empty disk, the nodes that go on end in one component, with everything
  green if they are a majority. That is not required after a restoration: where several disks have forgotten, no
  vote may be left that could restore theirs.

Not drawn: a disk of another node, which `LmdbLog` refuses by the identity on it."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from corel.corel import Corel
from corel.effects import CorelEvent, Greened, Logged, Persist
from corel.messages import Entry
from corel.outbox import TooMuch
from corel.recovery_plan import ReplacedDisk
from corel.stages import Stage
from tests.simulator.checkers import Violation
from tests.simulator.checkers.reused_ids import ReusedIds
from tests.simulator.corel.copied_twins import CopiedTwin, CopiedTwins, draw_copied_twin
from tests.simulator.corel.memory_log import MemoryLog
from tests.simulator.corel.plan import CorelPlan, draw_corel_plan
from tests.simulator.corel.process import CorelProcess
from tests.simulator.corel.run import QUIET_MS, SETTLE_MS_MAX, CorelRun
from tests.simulator.disk import Disk
from transport.effects import Journal
from transport.errors import BrokenInvariant
from transport.messages import Datagram, Machine, ViewId

RECOVERY_MS = 3_000.0
"""How long a last recovery may take."""


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
    twin: CopiedTwin | None


def draw_copies_plan(seed: int, nodes_min: int, nodes_max: int) -> CopiesPlan:
    corel = draw_corel_plan(seed, nodes_min, nodes_max, is_truncated=False)
    random = Random(f"copies {seed}")
    restorations = []
    for _ in range(random.choice((1, 1, 2, 4))):
        at_ms = random.uniform(300.0, corel.below.duration_ms)
        age_ms = random.choice((10.0, 100.0, 500.0, 2_000.0))
        node, down_ms = random.choice(corel.below.nodes), random.choice((1.0, 100.0))
        restorations.append(Restoration(at_ms, min(age_ms, at_ms), node, down_ms))
    twin = draw_copied_twin(seed, corel.below)
    if twin is not None and random.random() < 0.7:
        restorations.clear()
    corel = replace(corel, bootstrap=None, replacements=(), twin=None)
    return CopiesPlan(corel, tuple(restorations), twin)


class StoppableProcess(CorelProcess):
    """One node. A broken invariant stops it for good, with its data intact, as it stops a real one."""

    why_stopped: BrokenInvariant | None = None

    def start(self) -> None:
        self._guarded(super().start)

    def submit_if_up(self, body: bytes) -> None:
        self._guarded(lambda: self.submit(body))

    def put_back(self, disk: Disk, log: MemoryLog) -> None:
        """Puts a copy of an earlier disk in place of its own."""
        self.disk, self.log = disk, log

    def take_in(self, datagram: Datagram) -> None:
        self._guarded(lambda: super(StoppableProcess, self).take_in(datagram))

    def tick(self) -> None:
        self._guarded(super().tick)

    def _persisted(self, effect: Persist, starts: int) -> None:
        self._guarded(lambda: super(StoppableProcess, self)._persisted(effect, starts))

    def _stop_replaced(self, error: ReplacedDisk) -> None:
        raise error

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
        """The nodes that were started from a copy, or had a twin."""
        self._reused_ids = ReusedIds()
        self._must_settle = False
        self._copied_twins: CopiedTwins | None = None
        if plan.twin is not None:
            self._copied_twins = CopiedTwins(
                plan.twin,
                self.world,
                self.network,
                self.processes,
                self.jury,
                self._make_stoppable,
                self._schedule_send,
                self._count,
            )
            self._restored.add(plan.twin.node)
        for judges in self.jury.all:
            judges.dismiss()  # they speak of disks that forget nothing

    def run(self) -> None:
        self._schedule_starts()
        self._schedule_faults()
        for one in self._restorations:
            self.world.at(one.at_ms - one.age_ms, partial(self._copy, one))
        if self._copied_twins is not None:
            self._copied_twins.schedule()
        self.world.run_until(self.plan.below.duration_ms)
        self._heal()
        self._remove_twin()
        if not self._settles(self._is_one_component, SETTLE_MS_MAX):
            self._not_settled("not one component of all that go on")
        self._is_sending = False
        self.world.run_until(self.world.now + QUIET_MS)
        if not self._settles(self._is_settled, SETTLE_MS_MAX):
            self._not_settled("not everything green at all that go on")
        self._judge()

    def _remove_twin(self) -> None:
        """Has the operator remove the twin, and give the node an empty disk, as the operator's guide says, or go
        on with its own where that is not allowed."""
        if self._copied_twins is None:
            return
        self._copied_twins.check_stopped()
        node = self._copied_twins.node
        if not self._copied_twins.remove() or self.processes[node].why_stopped is not None:
            return
        process = self.processes[node]
        process.is_stopped = False
        if self._may_lose_disk(node):
            self.coverage["twins: removed, and the node has an empty disk"] += 1
            self._must_settle = not self._restorations
            self._replace_disk(node)
        else:
            self.coverage["twins: removed, and the node goes on with its disk"] += 1
            process.start()

    def _not_settled(self, what: str) -> None:
        if self._must_settle:
            raise Violation(what)
        self.coverage[f"runs from copies: {what}"] += 1

    def _is_one_component(self) -> bool:
        """Whether the nodes that have not stopped are one component, and primary if they are a majority."""
        going = self._going()
        if any(one.replica is None or one.is_paused() for one in going):
            return False
        voters = [one.name for one in going if one.machine_log.is_voter]
        stage = Stage.PRIMARY if self.plan.roster.is_majority(voters) else Stage.NON_PRIMARY
        return all(
            one.machine_log.stage is stage and len(one.machine_log.view.members) == len(going) for one in going
        )

    def _is_settled(self) -> bool:
        return self._is_one_component() and all(
            one.machine_log.stage is Stage.NON_PRIMARY or one.machine_log.queue.green == len(one.machine_log.queue)
            for one in self._going()
        )

    def _judge(self) -> None:
        for process in self.processes.values():
            if process.why_stopped is not None:
                kind = "copied" if process.name in self._restored else "never copied"
                self.coverage[f"nodes stopped, {kind}"] += 1
        self.coverage["runs that end in one primary component"] += self._is_one_primary()
        for fate, ids in self._reused_ids.fates().items():
            self.coverage[f"ids used twice: {fate}"] += ids
        self.disk_failures.forgive_rot()
        self._check_never_copied()
        self._recover_once_more()
        self._check_never_copied()
        self._reused_ids.check(self._components())

    def _recover_once_more(self) -> None:
        """Restarts a node, so that members exchange their states."""
        going = self._going()
        if going:
            self._crash(going[0], down_ms=1.0)
            self.world.run_until(self.world.now + RECOVERY_MS)

    def _going(self) -> list[StoppableProcess]:
        return [one for one in self.processes.values() if one.why_stopped is None and not one.is_stopped]

    def _components(self) -> Iterable[dict[str, Sequence[Entry]]]:
        """Returns the green orders of the members of each component that has recovered."""
        components: dict[ViewId, dict[str, Sequence[Entry]]] = defaultdict(dict)
        for one in self._going():
            if one.replica is not None and one.machine_log.stage in (Stage.PRIMARY, Stage.NON_PRIMARY):
                components[one.machine_log.view.id][one.name] = one.log.green(0, one.log.lines.green)
        return components.values()

    def _check_never_copied(self) -> None:
        orders = {
            one.name: [(entry.id, entry.body) for entry in one.log.green(0, one.log.lines.green)]
            for one in self._going()
            if one.name not in self._restored
        }
        longest = max(orders.values(), key=len, default=[])
        for name, order in orders.items():
            if order != longest[: len(order)]:
                raise Violation(f"{name} has another green order than others, and nobody has noticed")

    def _make_stoppable(self, name: str, address: str) -> StoppableProcess:
        process = self._make(name, address)
        assert isinstance(process, StoppableProcess)
        return process

    def _new_process(self, name: str, address: str | None = None) -> CorelProcess:
        return StoppableProcess(name, self.environment, self.plan, address)

    def _send(self, process: CorelProcess) -> None:
        self._sent += 1
        assert isinstance(process, StoppableProcess)
        with suppress(TooMuch):
            process.submit_if_up(b"%d" % self._sent)

    def _on_own(self, process: CorelProcess, log: Corel, entry: Entry) -> None:
        self._reused_ids.sent(entry)
        super()._on_own(process, log, entry)

    def _on_logged(self, process: CorelProcess, logged: Logged) -> None:
        self._reused_ids.acknowledged(logged.entries)
        super()._on_logged(process, logged)

    def _on_greened(self, process: CorelProcess, greened: Greened) -> None:
        self._reused_ids.greened(greened.entries)
        super()._on_greened(process, greened)

    def _on_twin(self, process: CorelProcess, twin: Machine) -> None:
        if self._copied_twins is None:
            super()._on_twin(process, twin)
        else:
            assert isinstance(process, StoppableProcess)
            self._copied_twins.stopped(process, twin)

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
        process.put_back(disk, log)
        self._restored.add(process.name)
        self.coverage["restorations"] += 1
        self.world.after(restoration.down_ms, process.start)
