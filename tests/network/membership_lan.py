"""Five nodes with membership on a LAN, a process each: what is done to them, and which views must follow.

    with running(directory) as members:
        members.cut("ab|cde")
        members.expect("ab|cde")

Every expectation measures how long the views took: from just before what was done was begun to the last member's
view. At the end all logs together are replayed, in the order of their times, into the simulator's checkers.
"""

from __future__ import annotations

import heapq
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from tests.network.lan import Lan, poll_until
from tests.network.member import Changing, Delivered, Installed, Record, Sent, from_line
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

NAMES = "abcde"
PORT = 7_400
PROJECT = Path(__file__).parents[2]
PATIENCE_MS = 20_000
"""For a machine that is busy with other tests. How long views may take is the campaign's to judge."""
STEADY_MS = 700
"""How long the expected views must have lasted, unless said otherwise."""
NO_FLAPPING_MS = 5_000
"""How long where some links are bad, and the same change might be tried again and again."""


class ScenarioFailed(AssertionError):
    """What was expected did not happen; the message tells each member's story."""


class Timing(NamedTuple):
    """How long a change took, and how many views the member had that had most."""

    cause: str
    took_ms: float
    views: int


class Member:
    """A node's process, or its next after it was killed, and what its log has said so far."""

    def __init__(self, lan: Lan, name: str, directory: Path) -> None:
        self.name = name
        self.records: list[Record] = []
        self.views: list[Installed] = []
        self.last_change_ns = 0
        self.is_changing = False
        self.unseen: set[int] = set()
        """Own messages, of this incarnation, that it has not delivered."""
        self.delivered: dict[Machine, int] = {}
        """How many of each member's messages, in its view."""
        self._lan = lan
        self._out, self._err, self._log = (directory / f"{name}.{suffix}" for suffix in ("out", "err", "log"))
        self._data = directory / name
        self._log.touch()
        self._bytes_read = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-W", "error", "-m", "tests.network.member", "--node", self.name]
        command += ["--broadcast", f"{self._lan.broadcast_address}:{PORT}"]
        command += ["--data", str(self._data), "--log", str(self._log)]
        with open(self._out, "w") as out, open(self._err, "a") as err:
            self.process: subprocess.Popen[str] = self._lan.spawn(
                self.name, command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=out, stderr=err, text=True
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close()

    def has_failed(self) -> bool:
        return self.process.poll() not in (None, 0, -signal.SIGKILL)

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: whoever waits for what follows will see that, and say why
            print(command, file=self.process.stdin, flush=True)

    def close(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def has_said(self, line: str) -> bool:
        """Its present incarnation."""
        return line in self._out.read_text().splitlines()

    @property
    def view(self) -> View:
        return self.views[-1].view

    @property
    def me(self) -> Machine:
        return self.views[-1].machine

    def read(self) -> None:
        with open(self._log, "rb") as log:
            log.seek(self._bytes_read)
            lines, newline, _ = log.read().rpartition(b"\n")
        self._bytes_read += len(lines) + len(newline)
        for line in lines.decode().splitlines():
            self._note(from_line(line))

    def _note(self, record: Record) -> None:
        self.records.append(record)
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

    def testimony(self, since_ns: int) -> str:
        """Its changes from then on, in seconds, and what it complained of."""
        status = self.process.poll()
        lines = [f"--- {self.name}, {'running' if status is None else f'exit status {status}'}"]
        for record in self.records:
            seconds = (record.at_ns - since_ns) / 1e9
            if isinstance(record, Changing):
                lines.append(f"{seconds:8.3f} {record.machine} ends {record.view}")
            elif isinstance(record, Installed):
                transitional = " ".join(map(str, record.view.transitional))
                members = " ".join(map(str, record.view.members))
                lines.append(f"{seconds:8.3f} {record.machine} has {record.view.id}: {members} ({transitional})")
        return "\n".join([*lines, *self._err.read_text().splitlines()[-20:]])


class Members:
    """All nodes of the LAN. What is done to them is timed until the expectation that follows it."""

    def __init__(self, lan: Lan, directory: Path) -> None:
        self.timings: list[Timing] = []
        self._lan = lan
        self._directory = directory
        self._begin("start")
        self._members = {name: Member(lan, name, directory) for name in lan.names}
        self._wait(lambda: all(member.has_said("ready") for member in self._members.values()), "all come up")
        self._read()
        self._begin("start")
        self.expect("".join(lan.names))

    # What happens to them

    def cut(self, groups: str) -> None:
        self._begin(f"cut {groups}")
        self._lan.cut(groups.split("|"))

    def cut_link(self, one: str, another: str) -> None:
        """These two do not hear each other; everybody else hears both."""
        self._begin(f"cut {one}-{another}")
        self._lan.cut([one, another])

    def cut_one_way(self, source: str, target: str) -> None:
        self._begin(f"cut {source}→{target}")
        self._lan.cut_one_way(source, target)

    def heal(self) -> None:
        self._begin("heal")
        self._lan.heal()

    def kill(self, name: str) -> None:
        self._begin(f"kill -9 {name}")
        self._members[name].kill()

    def restart(self, name: str) -> None:
        """Timed from when it is up: how long Python takes to start is not the matter here."""
        member = self._members[name]
        member.start()
        self._wait(lambda: member.has_said("ready"), f"{name} comes up again")
        self._read()
        self._begin(f"restart {name}")
        self._since_ns = max(view.at_ns for view in member.views if view.previous is None)

    def freeze(self, name: str) -> None:
        self._begin(f"SIGSTOP {name}")
        self._members[name].process.send_signal(signal.SIGSTOP)

    def thaw(self, name: str, after_ms: int) -> None:
        """So long after it was stopped, which was the last thing that happened."""
        time.sleep(max(0.0, self._since_ns / 1e9 + after_ms / 1e3 - time.monotonic()))
        self._begin(f"SIGCONT {name}")
        self._members[name].process.send_signal(signal.SIGCONT)

    # What must follow

    def expect(self, views: str) -> None:
        """These views, each the same at all its members, and messages of all members in each."""
        components = [[self._members[name] for name in group] for group in views.split("|")]
        self._settle(f"views {views}", lambda: all(map(_share_a_view, components)), STEADY_MS)

    def expect_cliques(self, *broken: str) -> None:
        """Views in which every pair hears each other, as the broken pairs do not. No two could be one view, and
        they do not change any more."""

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
        """Everything that was sent arrives, the processes end, and their logs break no rule."""
        members = list(self._members.values())
        for member in members:
            member.tell("stop")
        self._wait(lambda: all(member.has_said("stopped") for member in members), "all stop sending")
        self._wait(self._is_all_delivered, "everything arrives")
        for member in members:
            member.close()
        self._wait(lambda: all(member.process.poll() == 0 for member in members), "all end")
        self._read()
        try:
            check_rules({name: member.records for name, member in self._members.items()})
        except Violation as violation:
            raise ScenarioFailed(self._tell(str(violation))) from violation

    def pauses_ms(self) -> Iterator[float]:
        """Of sending, for each change of view at each member."""
        for member in self._members.values():
            began_ns: int | None = None
            for record in member.records:
                if isinstance(record, Changing):
                    began_ns = record.at_ns
                elif isinstance(record, Installed):
                    if began_ns is not None and record.previous is not None:
                        yield (record.at_ns - began_ns) / 1e6
                    began_ns = None

    def _begin(self, cause: str) -> None:
        self._cause = cause
        self._since_ns = time.monotonic_ns()

    def _settle(self, what: str, are_as_expected: Callable[[], bool], steady_ms: int) -> None:
        def is_settled() -> bool:
            self._read()
            last_change_ns = max(member.last_change_ns for member in self._members.values())
            return are_as_expected() and time.monotonic_ns() - last_change_ns >= steady_ms * 1_000_000

        self._wait(is_settled, what)
        installs = [[v.at_ns for v in m.views if v.at_ns > self._since_ns] for m in self._members.values()]
        last_ns = max((max(times) for times in installs if times), default=self._since_ns)
        self.timings.append(Timing(self._cause, (last_ns - self._since_ns) / 1e6, max(map(len, installs))))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def is_over() -> bool:
            return condition() or any(member.has_failed() for member in self._members.values())

        if not poll_until(is_over, PATIENCE_MS) or not condition():
            raise ScenarioFailed(self._tell(f"after '{self._cause}' it did not happen that {what}"))

    def _is_all_delivered(self) -> bool:
        self._read()
        members = self._members.values()
        counts = {member.view.id: member.delivered for member in members}
        is_same = all(member.delivered == counts[member.view.id] for member in members)
        return is_same and not any(member.is_changing or member.unseen for member in members)

    def _read(self) -> None:
        for member in self._members.values():
            member.read()

    def _tell(self, message: str) -> str:
        stories = [member.testimony(self._since_ns) for member in self._members.values()]
        return "\n".join([message, f"logs and journals are in {self._directory}", *stories])


@contextmanager
def running(directory: Path) -> Iterator[Members]:
    """Five members that have found each other; what is done to them here is checked at the end."""
    with Lan(list(NAMES)) as lan:
        members = Members(lan, directory)
        yield members
        members.finish()


def _share_a_view(component: Sequence[Member]) -> bool:
    """Exactly these have the same view, and deliver each other's messages in it."""
    machines = tuple(sorted(member.me for member in component))
    views = {member.view.id for member in component}
    return len(views) == 1 and all(
        member.view.members == machines and not member.is_changing and set(member.delivered) == set(machines)
        for member in component
    )


def check_rules(logs: Mapping[str, Sequence[Record]]) -> None:
    """The logs together break no rule of the membership."""
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
    for record in heapq.merge(*logs.values(), key=attrgetter("at_ns")):
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
