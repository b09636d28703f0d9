"""Five nodes with membership on a LAN, a process each: what is done to them, and which views must follow.

    with running(directory) as members:
        members.cut("ab|cde")
        members.expect("ab|cde")

Every expectation measures how long the views took: from just before the cause to the last member's view. At the
end the records of all nodes are replayed, in the order of their times, into the simulator's checkers.
"""

from __future__ import annotations

import heapq
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from tests.network import cluster
from tests.network.cluster import NAMES, PORT, Cluster
from tests.network.lan import Lan
from tests.network.membership_member import Changing, Delivered, Installed, Record, Sent, from_line
from tests.simulator.checkers import Violation
from tests.simulator.checkers.ascending_views import AscendingViews
from tests.simulator.checkers.causal_cut import CausalCut
from tests.simulator.checkers.membership import MembershipChecker, Period
from tests.simulator.checkers.nothing_lost import NothingLost
from tests.simulator.checkers.own_view import OwnView
from tests.simulator.checkers.timestamp_order import TimestampOrder
from tests.simulator.checkers.view_agreement import ViewAgreement
from tests.simulator.checkers.virtual_synchrony import VirtualSynchrony
from transport.messages import ORDERED, Machine, Service, View

STEADY_MS = 700
"""How long the expected views must have lasted."""
NO_FLAPPING_MS = 5_000
"""How long they must have lasted where some links are bad, and the same change might be tried again and again."""


class Timing(NamedTuple):
    """How long a change took, and the largest number of views that a member installed meanwhile."""

    cause: str
    took_ms: float
    views: int


class Member(cluster.Member[Record]):
    """A node, and what its record says of its views and messages."""

    module = "membership_member"

    def __init__(self, lan: Lan, name: str, directory: Path) -> None:
        super().__init__(lan, name, directory, from_line)
        self.views: list[Installed] = []
        self.last_change_ns = 0
        self.is_changing = False
        self.unseen: set[int] = set()
        """The numbers of its own messages, of this incarnation, that it has not delivered."""
        self.delivered: dict[Machine, int] = {}
        """How many messages of each member it has delivered in its view."""
        self.start()

    def start(self, *arguments: str) -> None:
        address = f"{self._lan.broadcast_address}:{PORT}"
        super().start("--broadcast", address, "--data", str(self.data), *arguments)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close()

    @property
    def view(self) -> View:
        return self.views[-1].view

    @property
    def me(self) -> Machine:
        return self.views[-1].machine

    def note(self, record: Record) -> None:
        super().note(record)
        if isinstance(record, Installed):
            self.views.append(record)
            self.is_changing = False
            self.last_change_ns = record.at_ns
            self.delivered.clear()
            if record.previous is None:
                self.unseen.clear()
        elif isinstance(record, Changing):
            self.is_changing = True
            self.last_change_ns = record.at_ns
        elif isinstance(record, Sent):
            self.unseen.add(record.number)
        else:
            sender = record.message.sender
            self.delivered[sender] = self.delivered.get(sender, 0) + 1
            if sender == record.machine:
                self.unseen.discard(record.number)

    def history(self, since_ns: int) -> Iterator[str]:
        """Its changes of view."""
        for record in self.records:
            seconds = (record.at_ns - since_ns) / 1e9
            if isinstance(record, Changing):
                yield f"{seconds:8.3f} {record.machine} ends {record.view}"
            elif isinstance(record, Installed):
                transitional = " ".join(map(str, record.view.transitional))
                members = " ".join(map(str, record.view.members))
                yield f"{seconds:8.3f} {record.machine} has {record.view.id}: {members} ({transitional})"


class Members(Cluster[Member]):
    """Five nodes that send messages all the time."""

    timeout_ms = 20_000
    """How long views may really take is for the campaign to judge."""

    def __init__(self, lan: Lan, directory: Path) -> None:
        super().__init__(lan, directory, {name: Member(lan, name, directory) for name in lan.names})
        self.timings: list[Timing] = []
        self._wait_all_said("ready", "all come up")
        self._read()
        self._begin("start")
        self.expect("".join(lan.names))

    # What happens to them

    def cut(self, groups: str) -> None:
        self._begin(f"cut {groups}")
        self._lan.cut(groups.split("|"))

    def cut_link(self, one: str, another: str) -> None:
        """These two do not hear each other; every other node hears both."""
        self._begin(f"cut {one}-{another}")
        self._lan.cut([one, another])

    def cut_one_way(self, source: str, target: str) -> None:
        self._begin(f"cut {source}→{target}")
        self._lan.cut_one_way(source, target)

    def kill(self, name: str) -> None:
        self._begin(f"kill -9 {name}")
        self._members[name].kill()

    def restart(self, name: str) -> None:
        """Starts the node again. Times are from when it is up: how long Python takes to start does not matter."""
        member = self._members[name]
        member.start()
        self._wait(lambda: "ready" in member.said(), f"{name} comes up again")
        self._read()
        self._begin(f"restart {name}")
        self._since_ns = max(view.at_ns for view in member.views if view.previous is None)

    def freeze(self, name: str) -> None:
        self._begin(f"SIGSTOP {name}")
        self._members[name].process.send_signal(signal.SIGSTOP)

    def thaw(self, name: str, after_ms: int) -> None:
        """Lets the node continue so long after it was stopped, which must be the last thing that was done."""
        time.sleep(max(0.0, self._since_ns / 1e9 + after_ms / 1e3 - time.monotonic()))
        self._begin(f"SIGCONT {name}")
        self._members[name].process.send_signal(signal.SIGCONT)

    # What must follow

    def expect(self, views: str) -> None:
        """Waits for these views, each the same at all its members, and for messages of all members in each."""
        components = [[self._members[name] for name in group] for group in views.split("|")]
        self._settle(f"views {views}", lambda: all(map(_share_a_view, components)), STEADY_MS)

    def expect_cliques(self, *broken: str) -> None:
        """Waits for views that last, in which no pair is broken, and of which no two could be one view."""

        def is_clique(names: Iterable[str]) -> bool:
            return not any("".join(pair) in broken for pair in combinations(sorted(names), 2))

        def are_cliques() -> bool:
            views = {member.view.id: [m.name for m in member.view.members] for member in self._members.values()}
            if sorted(name for names in views.values() for name in names) != sorted(self._members):
                return False
            components = [[self._members[name] for name in names] for names in views.values()]
            could_join = any(is_clique(one + another) for one, another in combinations(views.values(), 2))
            return all(map(is_clique, views.values())) and not could_join and all(map(_share_a_view, components))

        self._settle(f"lasting views without the pairs {', '.join(broken)}", are_cliques, NO_FLAPPING_MS)

    def finish(self) -> None:
        """Waits until everything that was sent has arrived, ends the processes, and checks their records."""
        self._tell_all("stop")
        self._wait_all_said("stopped", "all stop sending")
        self._wait_reading(self._is_all_delivered, "everything arrives")
        self._end_all()
        try:
            check_rules({name: member.records for name, member in self._members.items()})
        except Violation as violation:
            raise self._failure(str(violation)) from violation

    def pauses_ms(self) -> Iterator[float]:
        """Yields how long sending paused, for each change of view at each member."""
        for member in self._members.values():
            began_ns: int | None = None
            for record in member.records:
                if isinstance(record, Changing):
                    began_ns = record.at_ns
                elif isinstance(record, Installed):
                    if began_ns is not None and record.previous is not None:
                        yield (record.at_ns - began_ns) / 1e6
                    began_ns = None

    def _settle(self, what: str, are_as_expected: Callable[[], bool], steady_ms: int) -> None:
        def is_settled() -> bool:
            last_change_ns = max(member.last_change_ns for member in self._members.values())
            return are_as_expected() and time.monotonic_ns() - last_change_ns >= steady_ms * 1_000_000

        self._wait_reading(is_settled, what)
        installs = [[v.at_ns for v in m.views if v.at_ns > self._since_ns] for m in self._members.values()]
        last_ns = max((max(times) for times in installs if times), default=self._since_ns)
        self.timings.append(Timing(self._cause, (last_ns - self._since_ns) / 1e6, max(map(len, installs))))

    def _is_all_delivered(self) -> bool:
        members = self._members.values()
        counts = {member.view.id: member.delivered for member in members}
        is_same = all(member.delivered == counts[member.view.id] for member in members)
        return is_same and not any(member.is_changing or member.unseen for member in members)


@contextmanager
def running(directory: Path) -> Iterator[Members]:
    """Yields five members in one view; what is done to them in the block is checked at its end."""
    with Lan(list(NAMES)) as lan:
        members = Members(lan, directory)
        yield members
        members.finish()


def _share_a_view(component: Sequence[Member]) -> bool:
    """Whether exactly these have the same view, and deliver each other's messages in it."""
    machines = tuple(sorted(member.me for member in component))
    views = {member.view.id for member in component}
    return len(views) == 1 and all(
        member.view.members == machines and not member.is_changing and set(member.delivered) == set(machines)
        for member in component
    )


def check_rules(records: Mapping[str, Sequence[Record]]) -> None:
    """Raises `Violation` unless the records of all nodes together keep every rule of the membership."""
    checkers: list[MembershipChecker] = [
        ViewAgreement(),
        AscendingViews(),
        VirtualSynchrony(),
        TimestampOrder(),
        OwnView(),
        CausalCut(),
        NothingLost(),
    ]
    periods: dict[str, Period] = {}
    for record in heapq.merge(*records.values(), key=attrgetter("at_ns")):
        if isinstance(record, Installed):
            _replay_view(record, periods, checkers)
        elif isinstance(record, Sent):
            for checker in checkers:
                checker.multicast(record.number, periods[record.machine.name], record.service)
        elif isinstance(record, Delivered):
            _replay_delivery(record, periods[record.machine.name], checkers)
    for checker in checkers:
        checker.finished(periods, is_whole=True)


def _replay_view(record: Installed, periods: dict[str, Period], checkers: Iterable[MembershipChecker]) -> None:
    machine, view = record.machine, record.view
    old = periods.get(machine.name) if record.previous is not None else None
    new = Period(machine, view, old.view if old is not None else None)
    if old is not None:
        if (old.machine, old.view.id) != (machine, record.previous):
            raise Violation(f"{machine} comes from {record.previous}, but was in {old.view.id} as {old.machine}")
        old.after = view
    periods[machine.name] = new
    for checker in checkers:
        checker.installed(old, new)


def _replay_delivery(record: Delivered, period: Period, checkers: Iterable[MembershipChecker]) -> None:
    message = record.message
    for checker in checkers:
        checker.delivered(record.number, period, message)
    if message.service in ORDERED:
        period.ordered.append(message)
    elif message.service is Service.CAUSAL:
        period.causal.add((message.sender, message.sequence))
