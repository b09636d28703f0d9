"""One node with its log as a process of its own: it submits a steady load and records what the log reports.

    python -m tests.network.log_member --node a --roster a,b,c --broadcast 10.77.0.255:7400 --data /tmp/a \\
        --record /tmp/a.record --bootstrap

It submits from the beginning. On stdin it obeys `burst N` (submit so many at once) and `stop` (submit no more);
when stdin closes it ends, as soon as everything that is green is recorded as green on disk. The data directory is
its disk: incarnation, clock, log and journal. The record is not on it, and a restarted node appends to it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from corel import effects
from corel.config import CorelConfig
from corel.corel import Corel
from corel.outbox import TooMuch
from corel.quorum import Roster
from kvstore.node.config import NodeConfig
from tests.drivers import LogDriver
from tests.network import member_process
from tests.network.member_process import new_parser, obey, run_node
from transport.effects import Journal
from transport.messages import View
from transport.udp import parse_address

CLUSTER = "test"
MESSAGES_PER_SECOND = 50.0
BODY_BYTES = 100
BATCH_BYTES = 16_384
"""The size of a retransmitted batch: small, so that thousands of messages take several rounds."""
OPEN_SCAN = 4
"""Small, so that a restart reads more of the log than what was not green, as it would under a heavy load."""
_DISK_SECONDS = 5.0


class Started(NamedTuple):
    """A node has started with what is on its disk."""

    at_ns: int
    machine: str
    is_voter: bool
    green: int
    length: int
    """The length of the whole queue."""


class Staged(NamedTuple):
    """The node has entered another stage of its recovery or of its primary component."""

    at_ns: int
    machine: str
    stage: str
    view: str
    members: str
    """Their names, one letter each."""
    number: int
    """The number of the last primary component that it committed to."""


class Logged(NamedTuple):
    """These messages are acknowledged: they are on the node's disk."""

    at_ns: int
    machine: str
    ids: tuple[str, ...]


class Greened(NamedTuple):
    """These messages have their final places, from this position on."""

    at_ns: int
    machine: str
    position: int
    ids: tuple[str, ...]


class Noted(NamedTuple):
    """A step of the recovery, as the journal calls it, or `REORDERED`."""

    at_ns: int
    machine: str
    event: str


class Stopped(NamedTuple):
    """The node has submitted so many messages and will submit no more."""

    at_ns: int
    machine: str
    submitted: int


class Replaced(NamedTuple):
    """The test has given the node an empty disk: what was only on the old one is lost."""

    at_ns: int
    machine: str


Record: TypeAlias = Started | Staged | Logged | Greened | Noted | Stopped | Replaced
KINDS: dict[str, Callable[..., Record]] = {
    kind.__name__.lower(): kind for kind in (Started, Staged, Logged, Greened, Noted, Stopped, Replaced)
}
REORDERED = "reordered"
"""The event that says that what is not green must be read again."""
NOTED = (effects.CorelEvent.STATES_EXCHANGED, effects.CorelEvent.MERGED, effects.CorelEvent.VOTER)


def as_line(record: Record) -> str:
    """Returns `[event, nanoseconds, machine, ...]`, followed by the other fields of the event."""
    return json.dumps([type(record).__name__.lower(), *record]) + "\n"


def from_line(line: str) -> Record:
    event, *fields = json.loads(line)
    return KINDS[event](*[tuple(field) if isinstance(field, list) else field for field in fields])


def body_of(message_id: str) -> bytes:
    """Returns the body of the message of this id, so that a body under another id is noticed."""
    return message_id.encode().ljust(BODY_BYTES, b".")


class Recorder(member_process.Recorder[Record]):
    """Records what the log of one incarnation reports."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(path, as_line)
        self._machine = ""
        self._members = name

    def on_start(self, log: Corel) -> None:
        self._machine = str(log.me)
        queue = log.queue
        self.write(Started(time.monotonic_ns(), self._machine, log.is_voter, queue.green, len(queue)))

    def on_view(self, view: View) -> None:
        self._members = "".join(member.name for member in view.members)

    def on_logged(self, logged: effects.Logged) -> None:
        self.write(Logged(time.monotonic_ns(), self._machine, _ids(logged)))

    def on_greened(self, greened: effects.Greened) -> None:
        self.write(Greened(time.monotonic_ns(), self._machine, greened.position, _ids(greened)))

    def on_reordered(self, reordered: effects.Reordered) -> None:
        self.write(Noted(time.monotonic_ns(), self._machine, REORDERED))

    def on_journal(self, entry: Journal) -> None:
        if entry.event in NOTED:
            self.write(Noted(time.monotonic_ns(), self._machine, str(entry.event)))

    def on_stage(self, changed: effects.StageChanged) -> None:
        now_ns, view = time.monotonic_ns(), str(changed.view)
        self.write(Staged(now_ns, self._machine, str(changed.stage), view, self._members, changed.committed))

    def on_stopped(self, count: int) -> None:
        self.write(Stopped(time.monotonic_ns(), self._machine, count))


def _ids(report: effects.Logged | effects.Greened) -> tuple[str, ...]:
    return tuple(str(entry.id) for entry in report.entries)


class Load:
    """The application: submits messages whose bodies hold their own ids."""

    def __init__(self, node: LogDriver) -> None:
        self.count = 0
        self._node = node

    def submit(self) -> None:
        message_id = f"{self._node.machine}.{self.count + 1}"
        try:
            given = self._node.submit(body_of(message_id))
        except TooMuch:
            return
        if str(given) != message_id:
            raise AssertionError(f"{message_id} was given the id {given}")
        self.count += 1

    def burst(self, count: str) -> None:
        for _ in range(int(count)):
            self.submit()

    async def run(self, messages_per_second: float) -> None:
        while True:
            await asyncio.sleep(1.0 / messages_per_second)
            self.submit()


async def _run(options: argparse.Namespace) -> None:
    config = NodeConfig(
        node=options.node,
        roster=Roster.of(options.roster.split(",")),
        data=options.data,
        cluster=CLUSTER,
        broadcast=parse_address(options.broadcast),
        bootstrap=options.bootstrap,
        log=CorelConfig(batch_bytes_max=BATCH_BYTES, open_scan_max=OPEN_SCAN, debug_invariants=True),
    )
    recorder = Recorder(options.node, options.record)
    node = LogDriver(config, lambda error: os._exit(1), recorder.on_journal)  # the driver says why on stderr
    recorder.on_start(node.log)
    node.start(
        ViewChanged=lambda changed: recorder.on_view(changed.view),
        Logged=recorder.on_logged,
        Greened=recorder.on_greened,
        Reordered=recorder.on_reordered,
        StageChanged=recorder.on_stage,
    )
    load = Load(node)
    async with asyncio.TaskGroup() as group:  # an error in any of them ends the process at once
        dying = group.create_task(_die_in_mid_recovery(node.log, options.die_after_copies))
        sending = group.create_task(load.run(options.messages_per_second))
        await obey(burst=load.burst, stop=lambda: _stop(sending, load, recorder))
        sending.cancel()
        dying.cancel()
    await node.close(_DISK_SECONDS)
    recorder.close()


async def _die_in_mid_recovery(log: Corel, after_copies: int) -> None:
    """Does as `kill -9` would, at a moment that cannot be hit from outside."""
    while not 0 < after_copies <= log.counters["retransmissions_received"]:
        await asyncio.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(sending: asyncio.Task[None], load: Load, recorder: Recorder) -> None:
    sending.cancel()
    recorder.on_stopped(load.count)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("log_member", __doc__)
    parser.add_argument("--roster", required=True, help="all nodes' names: a,b,c")
    parser.add_argument("--broadcast", required=True, help="HOST:PORT")
    parser.add_argument("--data", required=True, type=Path, help="its disk")
    parser.add_argument("--bootstrap", action="store_true", help="the cluster is new: an empty disk may vote")
    parser.add_argument("--messages-per-second", type=float, default=MESSAGES_PER_SECOND)
    parser.add_argument("--die-after-copies", type=int, default=0, help="kill -9 when so many were retransmitted")
    return parser


if __name__ == "__main__":
    run_node(_parser(), _run)
