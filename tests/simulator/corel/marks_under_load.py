"""How long marks take from `mark()` until the other members have heard them, and what that costs in datagrams.

    python -m tests.simulator.corel.marks_under_load

Three nodes on a network that loses nothing. Each keeps some messages of its own under way, and submits the next
one when one of them has become green there, at once or a moment later. A node may tick only once in `turn_ms`, as
a busy event loop does: what becomes due meanwhile is sent in one tick. So packets and marks often leave together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from random import Random
from typing import NamedTuple

from corel.config import CorelConfig
from corel.effects import CorelEffect, Greened
from corel.quorum import Roster
from corel.stages import Stage
from membership.config import MembershipConfig
from tests.simulator.corel.plan import CorelPlan
from tests.simulator.corel.process import CorelProcess
from tests.simulator.membership.plan import MembershipPlan
from tests.simulator.network import Network, Weather
from tests.simulator.process import Environment
from tests.simulator.run import datagram_bytes
from tests.simulator.world import World
from transport.config import TransportConfig
from transport.messages import Datagram, Machine

NODES = tuple("abc")

DELAY_MS = 0.1
"""How long the network takes for every datagram."""

SYNC_MS = 0.6
"""How long a disk takes, on average."""

MEET_MS = 5_000.0
"""The nodes are a primary component by then."""


class Load(NamedTuple):
    under_way: int
    """How many messages of its own each node keeps under way."""
    payload_bytes: int
    client_ms: float
    """The next message is submitted within this time after one has become green."""
    turn_ms: float = 0.0
    """How long a turn of a node's event loop takes; 0 if it ticks whenever something is due."""

    def __str__(self) -> str:
        return (
            f"{self.under_way} of {self.payload_bytes} bytes, the next within {self.client_ms} ms, "
            f"turns of {self.turn_ms} ms"
        )


class Unheard(NamedTuple):
    """A mark that a member has not heard yet."""

    since_ms: float
    marks: tuple[int, ...]


class BusyProcess(CorelProcess):
    """A node that takes in what arrives at any time, but ticks for it only at the end of a turn."""

    def __init__(self, name: str, environment: Environment, plan: CorelPlan, turn_ms: float) -> None:
        super().__init__(name, environment, plan)
        self._turn_ms = turn_ms

    def _wake_soon(self) -> None:
        if self._turn_ms and self.machine is not None:
            self._sleep_until(ceil(self._world.now / self._turn_ms) * self._turn_ms)
        else:
            super()._wake_soon()


class LoadedCluster:
    """Nodes that are kept busy, and what was measured meanwhile."""

    def __init__(self, load: Load, seed: int = 1) -> None:
        self.load = load
        self.heard_after_ms: list[float] = []
        """For each mark and each other member, how long it took until that had heard it, or a later one."""
        self.sent: Counter[str] = Counter()
        """Datagrams, their bytes, and frames by their kind."""
        self.green = 0
        """How many messages have become green at their senders."""
        self._is_loaded = False
        self._unheard: dict[tuple[Machine, Machine], list[Unheard]] = {}
        self._world = World()
        self._random = Random(f"marks {seed}")
        network = Network(self._world, self._random, Weather(delay_ms=DELAY_MS), datagram_bytes)
        environment = Environment(self._world, network, self._random)
        self._processes = [BusyProcess(name, environment, _plan(seed), load.turn_ms) for name in NODES]

    def run(self, duration_ms: float) -> None:
        """Waits until the nodes are a primary component, and loads them for so long."""
        for process in self._processes:
            process.start()
        if not self._world.run_until(MEET_MS, stop=self._is_primary):
            raise AssertionError("the nodes are no primary component")
        for process in self._processes:
            self._watch(process)
        self._is_loaded = True
        for process in self._processes:
            for _ in range(self.load.under_way):
                self._submit(process)
        self._world.run_until(self._world.now + duration_ms)
        self._is_loaded = False
        self._world.run_until(self._world.now + 1_000.0)

    def unheard(self) -> int:
        """Returns how many marks some member has never heard."""
        return sum(map(len, self._unheard.values()))

    def _is_primary(self) -> bool:
        logs = [process.machine_log for process in self._processes]
        return all(log.stage is Stage.PRIMARY and len(log.view.members) == len(NODES) for log in logs)

    def _submit(self, process: CorelProcess) -> None:
        if self._is_loaded:
            process.submit(bytes(self.load.payload_bytes))

    def _watch(self, process: CorelProcess) -> None:
        """Measures from now on what this process sends, marks and hears."""
        group, log = process.group, process.machine_log
        assert group is not None
        mark, marked = partial(self._mark, process, group.mark), partial(self._marked, process, log.marked)
        for owner, name, watched in ((group, "mark", mark), (log, "marked", marked)):
            setattr(owner, name, watched)
        process.carry = lambda datagram: process.headers.put(self._count(datagram))
        process.on_greened = partial(self._on_greened, process)

    def _mark(
        self, process: CorelProcess, mark: Callable[[tuple[int, ...]], None], marks: tuple[int, ...]
    ) -> None:
        for other in self._processes:
            if other is not process:
                self._unheard.setdefault((process.me, other.me), []).append(Unheard(self._world.now, marks))
        mark(marks)

    def _marked(
        self,
        process: CorelProcess,
        marked: Callable[[Machine, Sequence[int]], list[CorelEffect]],
        machine: Machine,
        marks: Sequence[int],
    ) -> list[CorelEffect]:
        unheard = self._unheard.get((machine, process.me), [])
        while unheard and all(new >= old for new, old in zip(marks, unheard[0].marks, strict=True)):
            self.heard_after_ms.append(self._world.now - unheard.pop(0).since_ms)
        return marked(machine, marks)

    def _count(self, datagram: Datagram) -> Datagram:
        if self._is_loaded:
            self.sent["datagrams"] += 1
            self.sent["bytes"] += datagram_bytes(datagram)
            self.sent.update(type(frame).__name__ for frame in datagram.frames)
        return datagram

    def _on_greened(self, process: CorelProcess, greened: Greened) -> None:
        for entry in greened.entries:
            if entry.id.stream == process.me and self._is_loaded:
                self.green += 1
                self._world.after(self._random.uniform(0.0, self.load.client_ms), partial(self._submit, process))


def _plan(seed: int) -> CorelPlan:
    below = MembershipPlan(
        seed=seed,
        nodes=NODES,
        starts_ms=(0.0,) * len(NODES),
        duration_ms=0.0,
        weather=Weather(delay_ms=DELAY_MS),
        faults=(),
        messages_per_second=0.0,
        services=(),
        large_share=0.0,
        config=TransportConfig(),
        membership=MembershipConfig(),
        ends_partitioned=False,
    )
    return CorelPlan(seed, below, Roster.of(NODES), CorelConfig(), SYNC_MS, (), ())


def report(load: Load, duration_ms: float) -> str:
    """Returns what came of this load, as a line."""
    cluster = LoadedCluster(load)
    cluster.run(duration_ms)
    heard_ms = sorted(cluster.heard_after_ms)
    p50, p90, p99 = (heard_ms[int(len(heard_ms) * share)] for share in (0.5, 0.9, 0.99))
    late = sum(after_ms > 1.0 for after_ms in heard_ms) / len(heard_ms)
    per_message = {what: count / cluster.green for what, count in cluster.sent.items()}
    return (
        f"{load}: {cluster.green} green; marks heard after "
        f"p50 {p50:.2f} p90 {p90:.2f} p99 {p99:.2f} max {heard_ms[-1]:.2f} ms, {late:.1%} later than 1 ms; "
        f"per message {per_message['datagrams']:.3f} datagrams, {per_message['Packet']:.3f} packets, "
        f"{per_message['Status']:.3f} statuses, {per_message['bytes']:.0f} bytes"
    )


def main() -> None:
    for payload_bytes in (100, 1_300):
        for under_way in (1, 8):
            for client_ms, turn_ms in ((0.0, 0.0), (0.2, 0.1), (1.0, 0.3)):
                print(report(Load(under_way, payload_bytes, client_ms, turn_ms), duration_ms=1_000.0))


if __name__ == "__main__":
    main()
