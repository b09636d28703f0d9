"""What the runs of the membership and of all layers above it have in common: processes that start, send and suffer
faults as a plan of the membership layer says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Generic, TypeVar

from tests.simulator.membership.network_faults import Gust, Stop
from tests.simulator.membership.plan import Fault, MembershipPlan
from tests.simulator.membership.process import GroupProcess
from tests.simulator.run import SimulatedRun
from transport.messages import Datagram

AnyProcess = TypeVar("AnyProcess", bound=GroupProcess)


class GroupRun(SimulatedRun, Generic[AnyProcess]):
    """A run over a plan of the membership layer."""

    processes: dict[str, AnyProcess]

    def __init__(self, random_seed: str, below: MembershipPlan, write: Callable[[str], None] | None) -> None:
        super().__init__(random_seed, below.weather, write)
        self._below = below
        refusals = Random(f"refusals of {random_seed}")
        self.network.refuse(below.unicasts_refused, below.broadcasts_refused, refusals)
        self._is_sending = True

    def _through_codec(self, datagram: Datagram) -> Datagram:
        """Encodes and decodes what is sent in some seeds, which changes nothing but the speed."""
        return self._codec.decode(self._codec.encode(datagram)) if self._below.seed % 4 == 0 else datagram

    def _settles(self, condition: Callable[[], bool], within_ms: float) -> bool:
        """Whether the condition holds within this time, counted from when no process is stopped any more."""
        longest = max(process.pause_left_ms() for process in self.processes.values())
        return self.world.run_until(self.world.now + within_ms + longest, stop=condition)

    def _prepare(self, process: AnyProcess, name: str) -> AnyProcess:
        """Gives a process what all of them have."""
        process.carry = self._through_codec
        process.count = self._count
        cpu = dict(self._below.network_faults.cpus).get(name)
        if cpu is not None:
            process.limit_cpu(cpu)
            self.coverage["cpu: nodes whose work takes time"] += 1
        return process

    def _count(self, what: str) -> None:
        self.coverage[what] += 1

    # Applications

    def _schedule_starts(self) -> None:
        for process, at_ms in zip(self.processes.values(), self._below.starts_ms, strict=True):
            self.world.at(at_ms, process.start)
            self._schedule_send(process)

    def _schedule_send(self, process: AnyProcess) -> None:
        if not self._below.messages_per_second:
            return
        delay = self.random.expovariate(self._below.messages_per_second / 1_000.0 / len(self.processes))
        self.world.after(delay, lambda: self._send_and_reschedule(process))

    def _send_and_reschedule(self, process: AnyProcess) -> None:
        if self._is_sending:
            process.when_free(partial(self._send_if_up, process))
            self._schedule_send(process)

    def _send_if_up(self, process: AnyProcess) -> None:
        if process.is_up():
            self._send(process)

    def _send(self, process: AnyProcess) -> None:
        """Sends one message of a process that is up."""
        raise NotImplementedError

    # Faults

    def _schedule_faults(self) -> None:
        for fault in self._below.faults:
            self.world.at(fault.at_ms, partial(self._apply, fault))
        more = self._below.network_faults
        for gust in more.storm:
            self.world.at(gust.at_ms, partial(self._blow, gust))
        for link in more.slow_links:
            self.world.at(link.at_ms, partial(self.network.slow_down, link.source, link.target, link.extra_ms))
        for stop in more.stops:
            self.world.at(stop.at_ms, partial(self._stop_between_effects, stop))

    def _end_network_faults(self) -> None:
        """Ends what is wrong with the network and the machines, but for cuts. A slow machine stays slow."""
        self.network.weather = self._below.weather.cleared()
        self.network.end_link_delays()
        for process in self.processes.values():
            process.stop_after_effects = None

    def _blow(self, gust: Gust) -> None:
        for source, target in gust.pairs:
            self._count("one-way cuts in storms")
            self.network.cut_one_way(source, target)
        if gust.heals:
            self.network.heal()

    def _stop_between_effects(self, stop: Stop) -> None:
        process = self.processes[stop.node]
        process.stop_after_effects, process.stop_ms = stop.after_effects, stop.for_ms

    def _apply(self, fault: Fault) -> None:
        if fault.kind == "partition":
            self.network.partition(fault.groups)
        elif fault.kind == "isolate":
            self.network.partition([[fault.node], [name for name in self.processes if name != fault.node]])
        elif fault.kind == "one_way":
            for source, target in fault.pairs:
                self.network.cut_one_way(source, target)
        elif fault.kind == "heal":
            self.network.heal()
        elif fault.kind == "pause":
            self.processes[fault.node].pause(fault.for_ms)
        elif self.processes[fault.node].group is not None:
            self._crash(self.processes[fault.node], fault.for_ms)

    def _crash(self, process: AnyProcess, down_ms: float) -> None:
        process.crash()
        self.world.after(down_ms, process.start)
