"""The transport layer in the simulated world: applications that multicast, faults as planned, all checkers.

A run has two phases. In the first everything the plan holds happens, and safety is checked at every step. Then
the network is healed, nothing new is sent, and within a bounded time everything must have arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.simulator.checkers import Checker, Violation
from tests.simulator.checkers.agreed_order import AgreedOrder
from tests.simulator.checkers.bounded_buffers import BoundedBuffers
from tests.simulator.checkers.causal_order import CausalOrder
from tests.simulator.checkers.no_duplicates import NoDuplicates
from tests.simulator.checkers.no_loss import NoLoss
from tests.simulator.checkers.received_once import ReceivedOnce
from tests.simulator.checkers.safe_received import SafeReceived
from tests.simulator.checkers.stuck_reported import StuckReported
from tests.simulator.run import SimulatedRun, datagram_bytes
from tests.simulator.transport.plan import Cut, Plan
from tests.simulator.transport.process import Process
from transport.lansis import Lansis
from transport.messages import Datagram, Machine, Message, Service, View, ViewId

CONVERGENCE_MS_MAX = 10_000.0
"""After healing, everything must have been delivered within this simulated time."""

_HEADER = b"%s:%d:%d:"
"""What a payload begins with: sender, number, and the length of the padding that follows."""

_PATTERN = bytes(range(251)) * 1_000


class TransportRun(SimulatedRun):
    """One seed's run: members of a view that never changes."""

    def __init__(self, plan: Plan, write: Callable[[str], None] | None = None) -> None:
        super().__init__(f"run {plan.seed}", plan.weather, write)
        if write is not None:
            plan = replace(plan, config=replace(plan.config, journal_packets=True))
        self.plan = plan
        self.view = View(ViewId(1, plan.nodes[0], 1), tuple(Machine(name, 1) for name in plan.nodes))
        self.checkers: list[Checker] = [
            CausalOrder(plan.nodes),
            AgreedOrder(),
            SafeReceived(plan.nodes),
            ReceivedOnce(plan.nodes),
            NoDuplicates(),
            NoLoss(),
            StuckReported(),
            BoundedBuffers(),
        ]
        self._tell_sent = [checker.sent for checker in self._overriding("sent")]
        self._tell_received = [checker.received for checker in self._overriding("received")]
        self._tell_delivered = [checker.delivered for checker in self._overriding("delivered")]
        self._tell_stepped = [checker.stepped for checker in self._overriding("stepped")]
        self.sent: dict[str, list[Service]] = {name: [] for name in plan.nodes}
        self.members = {name: self._start(name) for name in plan.nodes}
        """The processes that have been alive all the time: the members of the view."""
        self._undelivered = 0
        if self._trace is not None:
            for name, process in self.members.items():
                process.on_journal = partial(self._trace.on_journal, name)

    def run(self) -> None:
        plan = self.plan
        for process in self.members.values():
            self._schedule_send(process)
        for cut in plan.cuts:
            self.world.at(cut.at_ms, partial(self._cut, cut))
        for at_ms, name in plan.crashes:
            self.world.at(at_ms, partial(self._crash_and_restart, name))
        for at_ms, name, duration_ms in plan.pauses:
            self.world.at(at_ms, partial(self._pause, name, duration_ms))
        self.world.run_until(plan.duration_ms)
        self.network.heal()
        self.network.weather = plan.weather.cleared()
        deadline = self.world.now + CONVERGENCE_MS_MAX
        if plan.crashes:
            # There is no way to know when all is done that can be done, so the members get a while.
            self.world.run_until(self.world.now + 3_000.0)
        else:
            self.world.run_until(deadline, stop=lambda: not self._undelivered)
        live = {name: process.machine for name, process in self.members.items() if process.machine}
        for checker in self.checkers:
            checker.finished(live, self.sent)
        for name, process in self.members.items():
            if process.is_backed_up and not plan.crashes:
                raise Violation(f"{name} is still told that it may not send")

    def _overriding(self, method: str) -> list[Checker]:
        """Returns the checkers that look at this event: most events concern few of them."""
        return [checker for checker in self.checkers if method in vars(type(checker))]

    def messages_sent(self) -> int:
        return sum(map(len, self.sent.values()))

    # Applications

    def _schedule_send(self, process: Process) -> None:
        delay = self.random.expovariate(self.plan.load.messages_per_second / 1_000.0)
        if self.world.now + delay < self.plan.duration_ms:
            self.world.after(delay, lambda: self._send_some(process))

    def _send_some(self, process: Process) -> None:
        load = self.plan.load
        for _ in range(self.random.randint(1, load.burst_max)):
            if process.machine is None or process.is_paused() or process.is_backed_up:
                break
            service = self.random.choice(load.services)
            number = len(self.sent[process.name])
            size = self.random.randint(0, 200)
            if self.random.random() < load.large_share:
                size = self.random.randint(self.plan.config.datagram_bytes_max, load.large_bytes_max)
            header = _HEADER % (process.name.encode(), number, size)
            self.sent[process.name].append(service)
            self._undelivered += len(self.members)
            for tell in self._tell_sent:
                tell(process.name, number, service)
            process.multicast(service, header + _padding(number, size))
        if process.machine is not None:
            self._schedule_send(process)

    def _start(self, name: str) -> Process:
        process = Process(name, self.environment)
        process.on_delivered = lambda message: self._on_delivered(name, message)
        process.on_received = lambda message: self._on_received(name, message)
        process.on_step = lambda machine: self._on_step(name, machine)
        process.on_stuck = lambda laggards: self._on_stuck(name, laggards)
        if self.plan.through_codec:
            process.carry = self._through_codec
        process.start(self.view, self.plan.config)
        return process

    def _through_codec(self, datagram: Datagram) -> Datagram:
        data = self._codec.encode(datagram)
        if len(data) > min(self.plan.config.datagram_bytes_max, datagram_bytes(datagram)):
            raise Violation(f"a datagram of {len(data)} bytes, more than was reckoned with")
        return self._codec.decode(data)

    def _on_delivered(self, node: str, message: Message) -> None:
        sender, number = _parse(message)
        if message.service is not self.sent[sender][number]:
            raise Violation(f"{sender}:{number} was sent as {self.sent[sender][number]}, not {message.service}")
        self._undelivered -= 1
        for tell in self._tell_delivered:
            tell(node, sender, number, message)

    def _on_received(self, node: str, message: Message) -> None:
        sender, number = _parse(message)
        for tell in self._tell_received:
            tell(node, sender, number, message)

    def _on_stuck(self, node: str, laggards: tuple[Machine, ...]) -> None:
        for checker in self.checkers:
            checker.stuck(node, laggards)

    def _on_step(self, node: str, machine: Lansis) -> None:
        for tell in self._tell_stepped:
            tell(node, machine)

    # Faults

    def _cut(self, cut: Cut) -> None:
        self.network.heal()
        if cut.groups:
            self.network.partition(cut.groups)
        for source, target in cut.one_way:
            self.network.cut_one_way(source, target)

    def _pause(self, name: str, duration_ms: float) -> None:
        if name in self.members:
            self.members[name].pause(duration_ms)

    def _crash_and_restart(self, name: str) -> None:
        """Ends the member for good; a process of its name comes back as another machine."""
        process = self.members.pop(name)
        process.crash()
        for checker in self.checkers:
            checker.crashed(name)
        process.on_delivered = process.on_received = lambda message: None
        process.on_step = lambda machine: None
        process.on_stuck = lambda laggards: None
        self.world.after(self.random.uniform(1.0, 500.0), lambda: self._restart(process))

    def _restart(self, process: Process) -> None:
        me = process.start(self.view, self.plan.config)
        if me in self.view.members:
            raise Violation(f"{me} came back under the incarnation it had")


def _padding(number: int, size: int) -> bytes:
    """Returns bytes that are different for every message, and at every place in it."""
    start = number % 251
    return _PATTERN[start : start + size] if start + size <= len(_PATTERN) else bytes(size)


def _parse(message: Message) -> tuple[str, int]:
    sender, number, size, padding = message.payload.split(b":", 3)
    if padding != _padding(int(number), int(size)):
        raise Violation(f"the payload of {message.id} is not what was sent")
    if message.sender.name != sender.decode():
        raise Violation(f"{message.id} carries a payload of {sender.decode()}")
    return sender.decode(), int(number)
