"""The membership layer in the simulated world.

A run has three phases. First everything the plan holds happens, and safety is checked at every step. Then, in some
runs, the network stays cut in clean components for a while: each must become one view. At last everything is
healed and every crashed process is back: all must be in one view within a bounded time, and messages must flow in
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from tests.simulator.checkers import Violation
from tests.simulator.checkers.ascending_views import AscendingViews
from tests.simulator.checkers.causal_cut import CausalCut
from tests.simulator.checkers.membership import MembershipChecker, Period
from tests.simulator.checkers.nothing_lost import NothingLost
from tests.simulator.checkers.own_view import OwnView
from tests.simulator.checkers.timestamp_order import TimestampOrder
from tests.simulator.checkers.view_agreement import ViewAgreement
from tests.simulator.checkers.virtual_synchrony import VirtualSynchrony
from tests.simulator.membership.group_run import GroupRun
from tests.simulator.membership.plan import MembershipPlan
from tests.simulator.membership.process import GroupProcess
from transport.lansis import QueueFull
from transport.messages import ORDERED, Machine, Message, Service, View

SETTLE_MS_MAX = 8_000.0
"""After the last change of a network that now works, all machines that hear each other are in one view by then."""

QUIET_MS = 1_500.0
"""How long messages may take to be delivered everywhere in a working network without changes."""


class MembershipRun(GroupRun[GroupProcess]):
    """One seed's run: groups whose members find, lose and find each other again."""

    def __init__(self, plan: MembershipPlan, write: Callable[[str], None] | None = None) -> None:
        super().__init__(f"membership run {plan.seed}", plan, write)
        self.plan = plan
        self.checkers: list[MembershipChecker] = [
            ViewAgreement(),
            AscendingViews(),
            VirtualSynchrony(),
            TimestampOrder(),
            OwnView(),
            CausalCut(),
            NothingLost(),
        ]
        self.processes = {name: self._make(name) for name in plan.nodes}
        self.periods: dict[str, Period] = {}
        self.views_installed = 0
        self._sent: dict[Machine, int] = {}
        if self._trace is not None:
            for name, process in self.processes.items():
                process.on_journal = partial(self._trace.on_journal, name)

    def run(self) -> None:
        plan = self.plan
        self._schedule_starts()
        self._schedule_faults()
        self.world.run_until(plan.duration_ms)
        self._end_network_faults()
        if plan.ends_partitioned:
            shuffled = self.random.sample(plan.nodes, len(plan.nodes))
            edge = self.random.randint(1, len(plan.nodes) - 1) if len(plan.nodes) > 1 else 1
            self._demand_views([shuffled[:edge], shuffled[edge:]])
        self._demand_views([plan.nodes])
        self._is_sending = False
        for process in self.processes.values():
            self._multicast(process, Service.AGREED)
        self.world.run_until(self.world.now + QUIET_MS)
        for checker in self.checkers:
            checker.finished(self.periods, is_whole=True)

    def _demand_views(self, groups: Iterable[Iterable[str]]) -> None:
        components = [tuple(sorted(group)) for group in groups if group]
        self.network.partition(components)
        if not self._settles(lambda: self._is_settled(components), SETTLE_MS_MAX):
            views = {name: process.group and process.group.view for name, process in self.processes.items()}
            stages = {name: process.group and str(process.group.stage) for name, process in self.processes.items()}
            raise Violation(f"no view of each of {components} after {SETTLE_MS_MAX} ms: {views} {stages}")

    def _is_settled(self, components: Iterable[tuple[str, ...]]) -> bool:
        for component in components:
            members = tuple(self.processes[name].me for name in component)
            for name in component:
                process = self.processes[name]
                if process.group is None or process.is_paused() or process.group.is_changing():
                    return False
                if process.group.view.members != members:
                    return False
            if len({self.periods[name].view.id for name in component}) > 1:
                return False
        return True

    # Applications

    def _send(self, process: GroupProcess) -> None:
        self._multicast(process, self.random.choice(self.plan.services))

    def _multicast(self, process: GroupProcess, service: Service) -> None:
        number = self._sent.get(process.me, 0)
        size = self.random.randint(0, 100)
        if self.random.random() < self.plan.large_share:
            size = self.random.randint(1, 4) * self.plan.config.datagram_bytes_max
        try:
            process.multicast(service, b"%d:%s:" % (number, str(process.me).encode()) + bytes(size))
        except QueueFull:
            return
        self._sent[process.me] = number + 1
        for checker in self.checkers:
            checker.multicast(number, self.periods[process.name], service)

    # What happens at the processes

    def _make(self, name: str) -> GroupProcess:
        plan = self.plan
        process = self._prepare(GroupProcess(name, self.environment, plan.membership, plan.config), name)
        process.on_view = partial(self._on_view, process)
        process.on_delivered = partial(self._on_delivered, process)
        return process

    def _on_view(self, process: GroupProcess, view: View) -> None:
        old = self.periods.get(process.name)
        if old is not None and old.machine != process.me:
            old = None  # of its former incarnation
        new = Period(process.me, view, old.view if old is not None else None)
        if old is not None:
            old.after = view
            self.views_installed += 1
        self.periods[process.name] = new
        for checker in self.checkers:
            checker.installed(old, new)

    def _on_delivered(self, process: GroupProcess, message: Message) -> None:
        number, sender, _ = message.payload.split(b":", 2)
        if sender.decode() != str(message.sender):
            raise Violation(f"{message.id} carries a payload of {sender.decode()}")
        period = self.periods[process.name]
        for checker in self.checkers:
            checker.delivered(int(number), period, message)
        if message.service in ORDERED:
            period.ordered.append(message)
        elif message.service is Service.CAUSAL:
            period.causal.add((message.sender, message.sequence))
