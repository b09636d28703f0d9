"""Part of the layer `copies`: a second process of a node's name, which runs from a copy of the node's disk, or
from an empty disk, on any side of the cuts.

It is not part of the layer `corel`, because a copy can break safety: two disks with one vote may each be part of a
majority, as long as their processes do not hear each other and nobody on either side remembers more than the disk
on its side knows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.checkers import Violation
from tests.simulator.corel.judges import Jury
from tests.simulator.corel.memory_log import MemoryLog
from tests.simulator.corel.twins import STOPS_MS_MAX, address_of_twin
from tests.simulator.disk import Disk
from tests.simulator.membership.plan import MembershipPlan
from tests.simulator.network import Network
from tests.simulator.world import World
from transport.messages import Datagram, Machine

if TYPE_CHECKING:
    from tests.simulator.corel.copies import StoppableProcess


@dataclass(frozen=True, slots=True)
class CopiedTwin:
    """A second process of a node is started beside another node: from a copy of the disk that was made `age_ms`
    before, or from an empty disk."""

    at_ms: float
    age_ms: float | None
    node: str
    beside: str


def draw_copied_twin(seed: int, below: MembershipPlan) -> CopiedTwin | None:
    random = Random(f"copied twins {seed}")
    if random.random() > 0.6:
        return None
    at_ms = random.uniform(300.0, below.duration_ms)
    age_ms = random.choice((0.0, 10.0, 300.0, 1_000.0, None))
    return CopiedTwin(
        at_ms,
        None if age_ms is None else min(age_ms, at_ms),
        random.choice(below.nodes),
        random.choice(below.nodes),
    )


class CopiedTwins:
    """The operator of one run with a `CopiedTwin`, and what is required of the two processes."""

    def __init__(
        self,
        plan: CopiedTwin,
        world: World,
        network: Network[Datagram],
        processes: Mapping[str, StoppableProcess],
        jury: Jury,
        make: Callable[[str, str], StoppableProcess],
        schedule_sends: Callable[[StoppableProcess], None],
        count: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._world = world
        self._network = network
        self._processes = processes
        self._jury = jury
        self._make = make
        self._schedule_sends = schedule_sends
        self._count = count
        self._kind = "empty" if plan.age_ms is None else "copied"
        self.node = plan.node
        self.twin: StoppableProcess | None = None

    def schedule(self) -> None:
        self._world.at(self._plan.at_ms - (self._plan.age_ms or 0.0), self._copy)

    def stopped(self, process: StoppableProcess, heard: Machine) -> None:
        """A process has stopped itself, because it heard this machine of its name."""
        which = "twin" if process is self.twin else "elder"
        why = (
            "newer" if heard.incarnation > process.me.incarnation else "of the same incarnation, and it was alone"
        )
        self._count(f"twins, {self._kind}: the {which} stops, the other is {why}")

    def check_stopped(self) -> None:
        """Waits until only one of the two is left. The network has no faults any more."""
        if self.twin is None:
            return
        both = (self._processes[self._plan.node], self.twin)
        self._world.run_until(self._world.now + max(one.pause_left_ms() for one in both))
        if not self._world.run_until(self._world.now + STOPS_MS_MAX, stop=lambda: not all(map(_runs, both))):
            views = [f"{one.me} at {one.address} in a view of {len(one.machine_log.view.members)}" for one in both]
            raise Violation(f"two processes of one name go on: {', '.join(views)}")

    def remove(self) -> bool:
        """Stops the twin for good, whichever of the two has stopped, and removes its disk. Returns whether there
        was one."""
        if self.twin is None:
            return False
        self.twin.is_stopped = True
        if self.twin.replica is not None or self.twin.is_away:
            self.twin.crash()
        return True

    def _copy(self) -> None:
        elder = self._processes[self._plan.node]
        disk, log = copy.deepcopy((elder.disk, elder.log))
        self._world.at(self._plan.at_ms, lambda: self._start(disk, log))

    def _start(self, disk: Disk, log: MemoryLog) -> None:
        name = self._plan.node
        if self._processes[name].why_stopped is not None:
            return
        self.twin = twin = self._make(name, address_of_twin(name))
        if self._plan.age_ms is None:
            twin.disks = 100
            twin.wipe()
        else:
            disk.crash()  # a copy has what was synced, and perhaps more
            twin.put_back(disk, log)
        self._network.place(twin.address, self._plan.beside)
        self._jury.replaced(twin.address)
        self._count(f"twins, {self._kind}: started")
        twin.start()
        self._schedule_sends(twin)


def _runs(process: StoppableProcess) -> bool:
    return process.replica is not None
