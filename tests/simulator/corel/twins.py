"""Two processes of one name: somebody starts a node that runs already, on another machine, with an empty disk and
without `--bootstrap`.

The product's rule (`kvstore.node.twins`) stops the elder one, for the twin begins at the wall clock (decision 7).
So the twin takes the elder's place, as if its disk had been replaced, and a plan does that only where an operator
may replace the disk. In the end the elder's disk is removed. To go on with it instead is not safe once the twin
has voted: it is then a copy that lacks what the node has done since (`tests.simulator.corel.copies`).

The twin may be on any side of the cuts, so that the two do not hear each other and peers of the newer one restart:
what they remember on their disks keeps the elder from voting (decision 27). An elder that crashes first is not
started again: it would be the newer one then.

Two that started in the same millisecond are of one incarnation. Then whoever is alone stops; if that is the twin,
the operator starts it again."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from corel.recovery_plan import ReplacedDisk
from kvstore.node.back_off import BACK_OFF_SECONDS_MAX
from kvstore.node.coming_back import RETRY_SECONDS
from tests.simulator.checkers import Violation
from tests.simulator.corel.judges import Jury
from tests.simulator.membership.plan import MembershipPlan
from tests.simulator.network import Network
from tests.simulator.world import World
from transport.messages import Datagram, Machine

if TYPE_CHECKING:
    from tests.simulator.corel.process import CorelProcess

POLL_MS = 20.0

STARTS_MS_MAX = 1_000.0 * (BACK_OFF_SECONDS_MAX + RETRY_SECONDS) + 2_000.0
"""When no fault happens any more, a process that is down, or away from its disk, runs by then."""

STOPS_MS_MAX = 1_000.0
"""In a network without faults, one of two processes of one name has stopped by then."""


@dataclass(frozen=True, slots=True)
class Twin:
    """From a time on, as soon as an operator may replace the node's disk, a second process of its name is
    started."""

    at_ms: float
    node: str
    beside: str
    """The node on whose side of the cuts the second process is."""


def draw_twin(seed: int, below: MembershipPlan) -> Twin | None:
    """Returns None in most seeds."""
    random = Random(f"twins {seed}")
    if random.random() > 0.05:
        return None
    at_ms = random.uniform(0.2, 0.9) * below.duration_ms
    return Twin(at_ms, random.choice(below.nodes), random.choice(below.nodes))


def address_of_twin(node: str) -> str:
    return f"{node}'"


class Twins:
    """The operator of one run with a `Twin`, and what is required of the two processes. `make` returns a process
    of this name at this address; `schedule_sends` has it send."""

    def __init__(
        self,
        plan: Twin,
        world: World,
        network: Network[Datagram],
        processes: MutableMapping[str, CorelProcess],
        jury: Jury,
        may_lose_disk: Callable[[str], bool],
        make: Callable[[str, str], CorelProcess],
        schedule_sends: Callable[[CorelProcess], None],
        count: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._world = world
        self._network = network
        self._processes = processes
        self._jury = jury
        self._may_lose_disk = may_lose_disk
        self._make = make
        self._schedule_sends = schedule_sends
        self._count = count
        self._has_faults = True
        self.elder: CorelProcess | None = None
        """The first process of the name, once there are two."""

    def schedule(self) -> None:
        self._world.at(self._plan.at_ms, self._start_twin)

    def crashed(self, process: CorelProcess) -> None:
        if process is self.elder and not process.is_stopped:
            self._count("twins: the elder crashes before it hears the other")
            process.is_stopped = True

    def stopped(self, process: CorelProcess, heard: Machine) -> None:
        """A process has stopped itself, because it heard this machine of its name."""
        if process is self.elder:
            self._count("twins: the elder stops")
        elif heard == process.me:
            self._count("twins: of one incarnation, and the twin stops")
            self._world.after(POLL_MS, lambda: self._start_again(process))
        else:
            raise Violation(f"{process.me} at {process.address} stops because of {heard}, which is older")

    def stopped_as_replaced(self, process: CorelProcess, error: ReplacedDisk) -> None:
        """A process has stopped itself, because what it has accepted cannot be merged any more."""
        if process is not self.elder:
            raise Violation(f"{process.me} at {process.address} stops, and its disk was not replaced: {error}")
        self._count("twins: the elder stops, with messages that cannot be merged")

    def end_faults(self) -> None:
        self._has_faults = False
        if self.elder is not None and self.elder.replica is None and not self.elder.is_stopped:
            self._count("twins: the elder is away in the end")
            self.elder.is_stopped = True
            self.elder.crash()
        elif self.elder is not None:
            self.elder.crash_after_effects = self.elder.stop_after_effects = None

    def check_stopped(self) -> None:
        """Waits until only one of the two is left, and removes the disk of the one that has stopped."""
        elder = self.elder
        if elder is None:
            self._count("twins: not started, no moment to replace the disk")
            return
        twin = self._processes[elder.name]
        self._world.run_until(self._world.now + STARTS_MS_MAX, stop=lambda: twin.replica is not None)
        within_ms = max(elder.pause_left_ms(), twin.pause_left_ms()) + STOPS_MS_MAX
        if not self._world.run_until(self._world.now + within_ms, stop=lambda: elder.is_stopped):
            raise Violation(f"{elder.me} goes on after {within_ms} ms, and {twin.me} runs")
        self._jury.replaced(elder.address)

    def _start_again(self, twin: CorelProcess) -> None:
        twin.wipe()
        self._jury.replaced(twin.address)
        twin.is_stopped = False
        twin.start()

    def _start_twin(self) -> None:
        name = self._plan.node
        elder = self._processes[name]
        if not self._has_faults:
            return
        if elder.replica is None or elder.is_paused() or not self._may_lose_disk(name):
            self._world.after(POLL_MS, self._start_twin)
            return
        self.elder = elder
        twin = self._make(name, address_of_twin(name))
        twin.disks = elder.disks
        twin.wipe()
        self._network.place(twin.address, self._plan.beside)
        self._jury.replaced(twin.address)
        self._processes[name] = twin
        self._count("twins: started with an empty disk")
        twin.start()
        self._schedule_sends(twin)
