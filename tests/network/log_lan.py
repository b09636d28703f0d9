"""Nodes with their logs on a LAN, a process each: what is done to them, and what must become of their messages.

    with running(directory) as replicas:
        replicas.cut("abc|de")
        replicas.expect(primary="abc", red="de")

All of them submit messages all the time. Every expectation measures how long it took: from just before the cause
to the last node's stage. At the end the nodes are stopped, their orders are read from their disks, and compared
with each other and with everything that any of them ever reported.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import NamedTuple, TypeAlias

from corel.effects import CorelEvent
from corel.lmdb_log import LmdbLog
from corel.stages import Stage
from tests.network import cluster
from tests.network.cluster import NAMES, PORT, Cluster, ScenarioFailed
from tests.network.lan import Lan
from tests.network.log_member import (
    CLUSTER,
    MESSAGES_PER_SECOND,
    REORDERED,
    Greened,
    Logged,
    Noted,
    Record,
    Replaced,
    Staged,
    Started,
    Stopped,
    as_line,
    body_of,
    from_line,
)
from tests.network.storm import draw_storm
from tests.simulator.checkers import Violation

STEADY_MS = 300
"""How long the expected stages must have lasted."""

Order: TypeAlias = Sequence[tuple[str, bytes]]
"""The green messages of one disk: their ids, with their bodies."""


class Timing(NamedTuple):
    """How long it took from the cause until the nodes were at this stage."""

    cause: str
    stage: Stage
    took_ms: float
    starting_ms: float
    """If the cause was a start: from when the last process was started until the last one was up. It is not part
    of `took_ms`."""


class Member(cluster.Member[Record]):
    """A node, and what its record says of its log."""

    module = "log_member"

    def __init__(self, lan: Lan, name: str, directory: Path) -> None:
        super().__init__(lan, name, directory, from_line)
        self.started: list[Started] = []
        self.stage: Staged | None = None
        self.heard: set[str] = set()
        """The machines of which a message was logged or became green at this stage."""
        self.green_line = 0
        self.logged: set[str] = set()
        """The messages that it acknowledged, except those that were lost with an old disk."""
        self.stopped: Stopped | None = None

    def start(self, *arguments: str) -> None:
        roster, address = ",".join(self._lan.names), f"{self._lan.broadcast_address}:{PORT}"
        super().start("--roster", roster, "--broadcast", address, "--data", str(self.data), *arguments)

    def replace_disk(self) -> None:
        shutil.rmtree(self.data)
        with open(self._record, "a") as record:
            record.write(as_line(Replaced(time.monotonic_ns(), self.me)))

    @property
    def me(self) -> str:
        return self.started[-1].machine

    def is_at(self, stage: Stage, component: str) -> bool:
        """Whether it is at this stage with exactly these members, and gets messages of all of them."""
        now = self.stage
        is_there = now is not None and (now.stage, now.members) == (stage, component)
        return is_there and {machine.partition(".")[0] for machine in self.heard} == set(component)

    def has_noted(self, event: CorelEvent, since_ns: int) -> bool:
        recent = takewhile(lambda record: record.at_ns > since_ns, reversed(self.records))
        return any(isinstance(record, Noted) and record.event == event for record in recent)

    def note(self, record: Record) -> None:
        super().note(record)
        if isinstance(record, Started):
            self.started.append(record)
            self.stage = self.stopped = None
            self.green_line = record.green
        elif isinstance(record, Staged):
            self.stage = record
            self.heard = set()
        elif isinstance(record, Logged):
            self.logged.update(record.ids)
            if self.stage is not None and self.stage.stage == Stage.NON_PRIMARY:
                self.heard.update(map(stream_of, record.ids))
        elif isinstance(record, Greened):
            self.green_line = record.position + len(record.ids)
            self.heard.update(map(stream_of, record.ids))
        elif isinstance(record, Stopped):
            self.stopped = record
        elif isinstance(record, Replaced):
            self.logged = set()

    def history(self, since_ns: int) -> Iterator[str]:
        """Its lines and its stages."""
        yield f"    green to {self.green_line}, {len(self.logged)} logged, heard {sorted(self.heard)}"
        for record in self.records:
            if not isinstance(record, (Logged, Greened)):
                what = " ".join(map(str, record[2:]))
                seconds = (record.at_ns - since_ns) / 1e9
                yield f"{seconds:8.3f} {record.machine} {type(record).__name__.lower()} {what}"


class Replicas(Cluster[Member]):
    """All nodes, to which messages are submitted all the time."""

    timeout_ms = 30_000
    """How long it may really take is for the campaign to judge."""

    def __init__(self, lan: Lan, directory: Path, messages_per_second: float = MESSAGES_PER_SECOND) -> None:
        super().__init__(lan, directory, {name: Member(lan, name, directory) for name in lan.names})
        self.names = "".join(lan.names)
        self.timings: list[Timing] = []
        self._load = f"--messages-per-second={messages_per_second}"
        self._places: dict[str, int] = {}
        """The place of every message that any node reported green."""
        self._records_seen = dict.fromkeys(lan.names, 0)
        self._start(self.names, "start", "--bootstrap")
        self.expect(primary=self.names)

    # What happens to them

    def cut(self, groups: str) -> None:
        self._begin("cut")
        self._lan.cut(groups.split("|"))

    def storm(self, seed: int, storm_ms: float) -> None:
        """Cuts links one way and heals them at random for so long, then heals all, but not before the last cuts
        have parted a node from the primary component of all."""
        self._begin(f"storm {seed}")
        for at_ms, links in draw_storm(self.names, seed, storm_ms):
            self._sleep_until(at_ms)
            self._lan.set_one_way_cuts(links)
            self._read()
        self._sleep_until(storm_ms)
        self._wait_reading(self._are_parted, "the cuts part the nodes")
        self._begin(f"storm {seed}")
        self._lan.heal()

    def kill(self, names: str) -> None:
        """Kills these with `kill -9`, all at once."""
        self._begin("kill")
        members = self._named(names)
        for member in members:
            member.process.kill()
        for member in members:
            member.process.wait()
            member.close()
        self._read()

    def restart(self, names: str) -> None:
        """Starts these again. Times are from when they are up: how long Python takes to start does not matter."""
        self._start(names, "restart")

    def restart_to_die(self, name: str, after_copies: int) -> None:
        """Starts a node again that is killed in its recovery, when so many messages were retransmitted to it."""
        (member,) = self._named(name)
        self._start(name, "restart", f"--die-after-copies={after_copies}")
        self._wait(lambda: member.process.poll() is not None, f"{name} dies of its recovery")
        member.close()
        self._begin("kill")
        self._read()
        died_at = (Stage.RECOVERING, self.names)
        if member.stage is None or (member.stage.stage, member.stage.members) != died_at:
            raise self._failure(f"{name} was killed, but not in its recovery with the others")

    def replace_disk(self, name: str) -> None:
        """Gives a node that is down an empty disk."""
        (member,) = self._named(name)
        assert member.process.poll() is not None
        member.replace_disk()

    def burst(self, names: str, count: int) -> None:
        """Submits so many messages at each of these, which are the primary component, until all are green."""
        self._begin("burst")
        self._read()
        members = self._named(names)
        line = min(member.green_line for member in members) + count * len(names)
        for member in members:
            member.tell(f"burst {count}")
        self._wait_reading(lambda: all(member.green_line >= line for member in members), "the burst is green")

    # What must follow

    def expect(self, primary: str = "", red: str = "") -> None:
        """Waits until the nodes of `primary` are a primary component that makes messages green, among them all
        that they had logged, and in each component of `red` messages are logged and stay red."""
        self._read()
        components = [(Stage.PRIMARY, primary)] if primary else []
        components += [(Stage.NON_PRIMARY, names) for names in red.split("|") if names]
        old = self.logged_by(primary)

        def is_settled() -> bool:
            for stage, names in components:
                members = self._named(names)
                views = {member.stage.view for member in members if member.stage is not None}
                if len(views) != 1 or not all(member.is_at(stage, names) for member in members):
                    return False
            staged_ns = max(staged.at_ns for staged in self._stages(primary + red.replace("|", "")))
            is_steady = time.monotonic_ns() - staged_ns >= STEADY_MS * 1_000_000
            return is_steady and self._is_green(old, primary)

        what = f"{primary or 'no node'} is primary, {red or 'no node'} red"
        self._wait_reading(is_settled, what)
        for stage in dict(components):
            names = "".join(names for its_stage, names in components if its_stage is stage)
            took_ms = (max(staged.at_ns for staged in self._stages(names)) - self._since_ns) / 1e6
            self.timings.append(Timing(self._cause, stage, took_ms, self._starting_ms))

    def logged_by(self, names: str) -> set[str]:
        """Returns the messages that these nodes have acknowledged so far."""
        self._read()
        return set[str]().union(*[member.logged for member in self._named(names)])

    def expect_green(self, ids: set[str], at: str) -> None:
        """Waits until these messages are green at these nodes."""
        self._wait_reading(lambda: self._is_green(ids, at), f"{len(ids)} messages are green at {at}")

    def expect_retransmitted(self) -> None:
        """Waits until a node has all red messages of the component that has just merged."""

        def is_retransmitted() -> bool:
            return any(member.has_noted(CorelEvent.MERGED, self._since_ns) for member in self._members.values())

        self._wait_reading(is_retransmitted, "the red messages are retransmitted")

    def is_voter_from_its_disk(self, name: str) -> bool:
        """Whether it could vote when it last started."""
        return self._members[name].started[-1].is_voter

    def surviving_open(self, name: str) -> int:
        """How many messages that were not green its disk had when it last started."""
        started = self._members[name].started[-1]
        return started.length - started.green

    def expect_voter(self, name: str) -> None:
        """Waits until the node may vote again."""
        member = self._members[name]
        since_ns = member.started[-1].at_ns
        self._wait_reading(lambda: member.has_noted(CorelEvent.VOTER, since_ns), f"{name} becomes a voter")

    def finish(self) -> None:
        """Waits until everything is green at every node, ends the processes, and checks disks and records."""
        self._begin("stop")
        self._tell_all("stop")
        self._wait_reading(self._is_quiet, "everything becomes green everywhere")
        self._end_all()
        members = list(self._members.values())
        try:
            orders = {member.name: read_order(member) for member in members}
            check_rules({member.name: member.records for member in members}, orders)
        except Violation as violation:
            raise self._failure(str(violation)) from violation

    def counts(self) -> tuple[int, int]:
        """Returns how many messages were logged at any node, and how many became green."""
        return len(self.logged_by(self.names)), len(self._places)

    def _start(self, names: str, cause: str, *arguments: str) -> None:
        self._begin(cause)
        members = self._named(names)
        starts = {member.name: len(member.started) + 1 for member in members}
        for member in members:
            member.start(self._load, *arguments)
        spawned_ns = time.monotonic_ns()
        self._wait_reading(lambda: all(len(m.started) == starts[m.name] for m in members), f"{names} come up")
        self._since_ns = max(member.started[-1].at_ns for member in members)
        self._starting_ms = (self._since_ns - spawned_ns) / 1e6

    def _begin(self, cause: str) -> None:
        super()._begin(cause)
        self._starting_ms = 0.0

    def _are_parted(self) -> bool:
        whole = (Stage.PRIMARY, self.names)
        return any((staged.stage, staged.members) != whole for staged in self._stages(self.names))

    def _sleep_until(self, at_ms: float) -> None:
        """Sleeps until so long after the last cause."""
        time.sleep(max(0.0, self._since_ns / 1e9 + at_ms / 1e3 - time.monotonic()))

    def _named(self, names: str) -> list[Member]:
        return [self._members[name] for name in names]

    def _stages(self, names: str) -> list[Staged]:
        return [member.stage for member in self._named(names) if member.stage is not None]

    def _is_green(self, ids: Iterable[str], at: str) -> bool:
        line = min((member.green_line for member in self._named(at)), default=0)
        return not at or all(self._places.get(message_id, line) < line for message_id in ids)

    def _is_quiet(self) -> bool:
        lasts = set[str]()
        for member in self._members.values():
            if member.stopped is None:
                return False
            if member.stopped.submitted:
                lasts.add(f"{member.me}.{member.stopped.submitted}")
        return self._is_green(self.logged_by(self.names) | lasts, self.names)

    def _read(self) -> None:
        super()._read()
        for name, member in self._members.items():
            for record in member.records[self._records_seen[name] :]:
                if isinstance(record, Greened):
                    self._places.update(zip(record.ids, range(record.position, member.green_line), strict=False))
            self._records_seen[name] = len(member.records)

    def _failure(self, message: str) -> ScenarioFailed:
        logged = set[str]().union(*[member.logged for member in self._members.values()])
        if pending := sorted(logged.difference(self._places)):
            message += f"\n{len(pending)} acknowledged messages are not green: {' '.join(pending[:20])} ..."
        return super()._failure(message)


@contextmanager
def running(
    directory: Path, messages_per_second: float = MESSAGES_PER_SECOND, names: str = NAMES
) -> Iterator[Replicas]:
    """Yields nodes that are a primary component; what is done to them in the block is checked at its end."""
    with Lan(list(names)) as lan:
        replicas = Replicas(lan, directory, messages_per_second)
        yield replicas
        replicas.finish()


def read_order(member: Member) -> Order:
    """Returns what is green on the disk of a node that has ended."""
    log = LmdbLog(member.data, CLUSTER, member.name)
    try:
        green = log.load().lines.green
        return [(str(entry.id), entry.body or b"") for entry in log.green(0, green)]
    finally:
        log.close()


def stream_of(message_id: str) -> str:
    """Returns the machine that sent this message."""
    return message_id.rpartition(".")[0]


def check_rules(records: Mapping[str, Sequence[Record]], orders: Mapping[str, Order]) -> None:
    """Raises `Violation` unless the disks have one order, which is the one that the nodes reported, with
    everything that they acknowledged."""
    first = min(orders)
    for name, order in orders.items():
        _check_same(first, orders[first], name, order)
    order = orders[first]
    places = {message_id: position for position, (message_id, _) in enumerate(order)}
    _check_streams(order)
    _check_one_primary(records)
    for name, reported in records.items():
        _check_own_reported(reported)
        _check_promises(name, reported, places)
        _check_reported_green(reported, [message_id for message_id, _ in order])


def _check_same(one: str, its_order: Order, another: str, other_order: Order) -> None:
    for position, (mine, other) in enumerate(zip_longest(its_order, other_order)):
        if mine != other:
            raise Violation(f"at {position} {one} has {mine and mine[0]}, {another} has {other and other[0]}")


def _check_streams(order: Order) -> None:
    """Checks causal order, and that every message is there once: each stream is dense and ascending."""
    lasts: dict[str, int] = {}
    for position, (message_id, body) in enumerate(order):
        stream, _, sequence = message_id.rpartition(".")
        if int(sequence) != lasts.get(stream, 0) + 1:
            raise Violation(f"at {position} {message_id} follows {stream}.{lasts.get(stream, 0)}")
        lasts[stream] = int(sequence)
        if body != body_of(message_id):
            raise Violation(f"at {position} {message_id} says {body!r}")


def _check_promises(name: str, records: Iterable[Record], places: Mapping[str, int]) -> None:
    """Checks that what was acknowledged is there, unless the disk that it was on was replaced."""
    promised = set[str]()
    for record in records:
        if isinstance(record, Logged):
            promised.update(record.ids)
        elif isinstance(record, Replaced):
            promised.clear()
    if lost := sorted(promised.difference(places)):
        raise Violation(f"{name} acknowledged {len(lost)} messages that are lost: {', '.join(lost[:10])}")


def _check_reported_green(records: Iterable[Record], order: Sequence[str]) -> None:
    """Checks that messages become green in their final places, one after the other, and only in a primary
    component or a recovery."""
    line, stage = 0, ""
    for record in records:
        if isinstance(record, Started):
            line, stage = record.green, Stage.RECOVERING
        elif isinstance(record, Staged):
            stage = record.stage
        elif isinstance(record, Greened):
            if stage == Stage.NON_PRIMARY:
                raise Violation(f"{record.machine} was told that {record.ids[0]} is green, outside of a primary")
            if record.position != line:
                raise Violation(f"{record.machine} was told of green from {record.position} on, after {line}")
            line += len(record.ids)
            for position, message_id in enumerate(record.ids, record.position):
                if position >= len(order) or order[position] != message_id:
                    raise Violation(f"{record.machine} was told that {message_id} is green at {position}")


def _check_own_reported(records: Iterable[Record]) -> None:
    """Checks that a node that submitted a message hears that it is logged, or that the queue was reordered, before
    it hears of its next: a client may wait for that."""
    through, is_excused = 0, False
    for record in records:
        if isinstance(record, Started):
            through, is_excused = 0, False
        elif isinstance(record, Noted):
            is_excused |= record.event == REORDERED
        elif isinstance(record, (Logged, Greened)):
            for stream, _, sequence in (message_id.rpartition(".") for message_id in record.ids):
                if stream == record.machine and int(sequence) > through:
                    if int(sequence) > through + 1 and not is_excused:
                        raise Violation(
                            f"{stream} was told of {sequence} of its messages, but not of {through + 1}"
                        )
                    through, is_excused = int(sequence), False


def _check_one_primary(records: Mapping[str, Sequence[Record]]) -> None:
    """Checks that no two primary components have the same number."""
    views: dict[int, str] = {}
    for reported in records.values():
        for record in reported:
            if isinstance(record, Staged) and record.stage == Stage.PRIMARY:
                view = views.setdefault(record.number, record.view)
                if view != record.view:
                    raise Violation(
                        f"primary {record.number} is view {view}, and {record.view} at {record.machine}"
                    )
