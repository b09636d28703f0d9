"""How long machines take from a stable network to one view, as distributions over seeds: `make settle`.

Each seed brings the machines into a situation, makes the network stable and measures the simulated time until all
of them are in one view. The situations: *started*, all machines start within 20 ms; *singles*, *pairs*, *halves*:
components that had settled are healed; *storms*: links were cut one way and healed at random for four seconds, and
some cuts lasted one second more.

The last column counts control messages that were sent again for each new one, from the start of the machines to
their view. The simulated machines handle any number of datagrams at once, unless `--cpu-us` says how long a
machine is busy with one (a Python node with 50 to 150 µs).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from string import ascii_lowercase
from typing import NamedTuple

from membership.config import MembershipConfig
from membership.effects import MembershipEvent
from tests.simulator.event_loop import Cpu
from tests.simulator.membership.process import GroupProcess
from tests.simulator.network import Weather
from tests.simulator.run import SimulatedRun
from transport.config import TransportConfig
from transport.effects import Journal

SITUATIONS = ("started", "singles", "pairs", "halves", "storms")
DELAY_MS = 5.0
JITTER_MS = 10.0
STORM_MS = 4_000.0
AFTER_STORM_MS = 1_000.0
"""How long the cuts that are left at the end of a storm last."""
SOCKET_DATAGRAMS_MAX = 2_000
"""How many datagrams wait for a machine that is busy."""
LIMIT_MS = 60_000.0
"""Machines that are not in one view by then count as never."""


_COLUMNS = (
    "situation",
    "machines",
    "loss",
    "jitter",
    "cpu µs",
    "seeds",
    "p50",
    "p90",
    "p99",
    "max ms",
    "slowest",
    "resent/new",
)


class Case(NamedTuple):
    """What is measured over seeds. `loss` and `jitter_ms` are those of the stable network too."""

    situation: str
    machines: int
    loss: float
    jitter_ms: float = JITTER_MS
    cpu_us: float = 0.0
    """How long a machine is busy with a datagram that has arrived; 0 means that work takes no time."""


class Settled(NamedTuple):
    """One seed's result; `after_ms` is infinite if there was no one view."""

    after_ms: float
    controls_sent: int
    controls_resent: int


class SettlingRun(SimulatedRun):
    """One seed of a case."""

    def __init__(self, case: Case, seed: int, write: Callable[[str], None] | None = None) -> None:
        weather = Weather(case.loss, 0.0, DELAY_MS, case.jitter_ms)
        super().__init__(f"settling {case.situation} {case.machines} {case.loss} {seed}", weather, write)
        self.case = case
        self.names = ascii_lowercase[: case.machines]
        self.processes = {name: self._make(name) for name in self.names}

    def settle(self) -> Settled:
        sizes = {"singles": 1, "pairs": 2, "halves": math.ceil(self.case.machines / 2)}
        if self.case.situation == "started":
            self._start()
        elif self.case.situation == "storms":
            self._start_in_storm()
        else:
            self._start_components(sizes[self.case.situation])
        began = self.world.now
        is_settled = self.world.run_until(began + LIMIT_MS, stop=lambda: self._is_view(self.names))
        after_ms = self.world.now - began if is_settled else math.inf
        return Settled(after_ms, self.coverage["controls sent"], self.coverage["controls resent"])

    # Situations

    def _start(self) -> None:
        for process in self.processes.values():
            self.world.at(self.random.uniform(0.0, 20.0), process.start)
        self.world.run_until(20.0)

    def _start_components(self, size: int) -> None:
        components = [self.names[at : at + size] for at in range(0, len(self.names), size)]
        self.network.partition(components)
        for process in self.processes.values():
            self.world.at(self.random.uniform(0.0, 100.0), process.start)
        self.world.run_until(LIMIT_MS, stop=lambda: all(map(self._is_view, components)))
        self.world.run_until(self.world.now + self.random.uniform(1_000.0, 1_300.0))
        self.network.heal()

    def _start_in_storm(self) -> None:
        stable = self.network.weather
        self.network.weather = Weather(stable.loss, 0.3, DELAY_MS, JITTER_MS)
        for process in self.processes.values():
            process.start()
        pairs = [(a, b) for a in self.names for b in self.names if a != b]
        at_ms = self.random.uniform(0.0, 500.0)
        while at_ms < STORM_MS:
            self.world.run_until(at_ms)
            for source, target in self.random.sample(pairs, self.random.randint(1, len(self.names))):
                self.network.cut_one_way(source, target)
            if self.random.random() < 0.3:
                self.network.heal()
            at_ms += self.random.uniform(100.0, 1_500.0)
        self.world.run_until(STORM_MS + AFTER_STORM_MS)
        self.network.heal()
        self.network.weather = stable

    # Processes

    def _make(self, name: str) -> GroupProcess:
        process = GroupProcess(name, self.environment, MembershipConfig(), TransportConfig())
        process.on_journal = partial(self._on_journal, name)
        if self.case.cpu_us:
            process.limit_cpu(Cpu.per_datagram(self.case.cpu_us, SOCKET_DATAGRAMS_MAX))
        return process

    def _on_journal(self, name: str, journal: Journal) -> None:
        if journal.event is MembershipEvent.CONTROL_SENT:
            self.coverage["controls sent"] += 1
        elif journal.event is MembershipEvent.CONTROL_RESENT:
            self.coverage["controls resent"] += 1
        if self._trace is not None:
            self._trace.on_journal(name, journal)

    def _is_view(self, names: Sequence[str]) -> bool:
        """Whether these machines are in one view, in which no change is under way, and no others are."""
        groups = [self.processes[name].group for name in names]
        first = groups[0]
        if first is None or len(first.view.members) != len(names):
            return False
        return all(
            group is not None and group.view.id == first.view.id and not group.is_changing() for group in groups
        )


def settle(seed: int, case: Case) -> Settled:
    return SettlingRun(case, seed).settle()


def settle_all(cases: Iterable[Case], seeds: range, jobs: int | None, write: Callable[[str], None]) -> bool:
    """Prints the distribution of each case; returns whether there was one view in every seed."""
    write(f"| {' | '.join(_COLUMNS)} |")
    write("|---|" + "---:|" * (len(_COLUMNS) - 1))
    is_whole = True
    if jobs == 1:
        for case in cases:
            is_whole &= _report(case, seeds, list(map(partial(settle, case=case), seeds)), write)
        return is_whole
    with ProcessPoolExecutor(jobs) as pool:
        for case in cases:
            results = list(pool.map(partial(settle, case=case), seeds, chunksize=4))
            is_whole &= _report(case, seeds, results, write)
    return is_whole


def cases_of(
    situations: Iterable[str],
    machines: Iterable[int],
    losses: Iterable[float],
    jitter_ms: float = JITTER_MS,
    cpu_us: float = 0.0,
) -> list[Case]:
    return [Case(*place, jitter_ms, cpu_us) for place in product(situations, machines, losses)]


def percentile(values: Sequence[float], part: float) -> float:
    """Returns the smallest value that at least this part of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def _report(case: Case, seeds: range, results: Sequence[Settled], write: Callable[[str], None]) -> bool:
    times = [result.after_ms for result in results]
    counts: Counter[str] = Counter()
    for result in results:
        counts["sent"] += result.controls_sent
        counts["resent"] += result.controls_resent
    row = (
        case.situation,
        str(case.machines),
        f"{case.loss:.0%}",
        f"{case.jitter_ms:.0f}",
        f"{case.cpu_us:.0f}",
        str(len(seeds)),
        *(f"{percentile(times, part):,.0f}" for part in (0.5, 0.9, 0.99, 1.0)),
        f"seed {seeds[times.index(max(times))]}",
        f"{counts['resent'] / max(1, counts['sent']):.1f}",
    )
    write(f"| {' | '.join(row)} |")
    return math.isfinite(max(times))
