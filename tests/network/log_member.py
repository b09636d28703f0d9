"""One node with its log as a process of its own: it submits a steady load and writes down what it is told.

    python -m tests.network.log_member --node a --roster a,b,c --broadcast 10.77.0.255:7400 --data /tmp/a \\
        --record /tmp/a.record --bootstrap

It submits from the beginning. On stdin it obeys `burst N` (submit so many at once) and `stop` (submit no more);
when stdin closes it ends, after everything green is so on disk. The data directory is its disk: incarnation,
clock, store and journal. The record is not on it, and a restarted node appends to it.

The record is a line of JSON per event, handed to the kernel at once: a killed process takes nothing back that it
has been told. Its times are of the system-wide monotonic clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import uvloop

from corel import effects
from corel.config import CorelConfig
from corel.corel import Corel
from corel.outbox import TooMuch
from corel.quorum import Roster
from corel.storage import Image
from corel.store import Store
from kvstore.journal import JournalWriter
from kvstore.node import LogConfig, Node, NodeConfig, Upward
from membership.floor import ClockFloor
from transport.effects import Journal
from transport.incarnation import next_incarnation
from transport.messages import Machine, View
from transport.udp import BroadcastMode, parse_address

CLUSTER = "test"
STORE = "store"
"""The directory of the log, in the data directory."""
MESSAGES_PER_SECOND = 50.0
BODY_BYTES = 100
BATCH_BYTES = 16_384
"""Of a retransmission. Small, so that thousands of messages take several rounds."""
OPEN_SCAN = 4
"""Small, so that a restart reads more of the log than what was not green, as it would under a heavy load."""
_DISK_SECONDS = 5.0


class Started(NamedTuple):
    """A node begins, with what its disk says."""

    at_ns: int
    machine: str
    is_voter: bool
    green: int
    length: int
    """Of the whole queue."""


class Staged(NamedTuple):
    """It is at another stage of its recovery or of its primary component."""

    at_ns: int
    machine: str
    stage: str
    view: str
    members: str
    """Their names, one letter each."""
    number: int
    """Of the last primary component that it committed to."""


class Logged(NamedTuple):
    """These are acknowledged: they are on its disk."""

    at_ns: int
    machine: str
    ids: tuple[str, ...]


class Greened(NamedTuple):
    """These have their final places, from this position on."""

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
    """It has submitted so many messages and will submit no more."""

    at_ns: int
    machine: str
    submitted: int


class Replaced(NamedTuple):
    """The test has given the node an empty disk: what was only on the old one is gone."""

    at_ns: int
    machine: str


Record: TypeAlias = Started | Staged | Logged | Greened | Noted | Stopped | Replaced
KINDS: dict[str, Callable[..., Record]] = {
    kind.__name__.lower(): kind for kind in (Started, Staged, Logged, Greened, Noted, Stopped, Replaced)
}
REORDERED = "reordered"
"""What is not green is to be looked at again."""
NOTED = (effects.Event.STATES_EXCHANGED, effects.Event.RETRANSMITTED, effects.Event.VOTER)


def as_line(record: Record) -> str:
    """`[event, nanoseconds, machine, ...]`, the rest as the event has it."""
    return json.dumps([type(record).__name__.lower(), *record]) + "\n"


def from_line(line: str) -> Record:
    event, *fields = json.loads(line)
    return KINDS[event](*[tuple(field) if isinstance(field, list) else field for field in fields])


def body_of(message_id: str) -> bytes:
    """What the message of this id says, so that a body under another's id is noticed."""
    return message_id.encode().ljust(BODY_BYTES, b".")


class Recorder:
    """What one incarnation is told, line by line."""

    def __init__(self, machine: Machine, path: Path) -> None:
        self._machine = str(machine)
        self._members = machine.name
        self._file = open(path, "a", buffering=1)  # noqa: SIM115 (open as long as the process runs)

    def on_start(self, image: Image) -> None:
        lines = image.lines
        self._write(Started(time.monotonic_ns(), self._machine, lines.is_voter, lines.green, len(image.queue)))

    def on_view(self, view: View) -> None:
        self._members = "".join(member.name for member in view.members)

    def on_logged(self, logged: effects.Logged) -> None:
        self._write(Logged(time.monotonic_ns(), self._machine, _ids(logged)))

    def on_greened(self, greened: effects.Greened) -> None:
        self._write(Greened(time.monotonic_ns(), self._machine, greened.position, _ids(greened)))

    def on_reordered(self) -> None:
        self._write(Noted(time.monotonic_ns(), self._machine, REORDERED))

    def on_journal(self, entry: Journal) -> None:
        now_ns = time.monotonic_ns()
        if entry.event is effects.Event.STATE:
            number = entry.details["committed"]
            assert isinstance(number, int)
            stage = str(entry.details["stage"])
            self._write(Staged(now_ns, self._machine, stage, entry.id, self._members, number))
        elif entry.event in NOTED:
            self._write(Noted(now_ns, self._machine, str(entry.event)))

    def on_stopped(self, count: int) -> None:
        self._write(Stopped(time.monotonic_ns(), self._machine, count))

    def close(self) -> None:
        self._file.close()

    def _write(self, record: Record) -> None:
        self._file.write(as_line(record))


def _ids(told: effects.Logged | effects.Greened) -> tuple[str, ...]:
    return tuple(str(entry.id) for entry in told.entries)


class Load:
    """The application: submits messages that say their own ids."""

    def __init__(self, node: Node, machine: Machine) -> None:
        self.count = 0
        self._node = node
        self._machine = machine

    def submit(self) -> None:
        message_id = f"{self._machine}.{self.count + 1}"
        try:
            given = self._node.submit(body_of(message_id))
        except TooMuch:
            return
        if str(given) != message_id:
            raise AssertionError(f"{message_id} was given the id {given}")
        self.count += 1

    async def run(self, messages_per_second: float) -> None:
        while True:
            await asyncio.sleep(1.0 / messages_per_second)
            self.submit()


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format=f"{options.node}  %(levelname)s %(message)s")
    uvloop.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    machine = Machine(options.node, next_incarnation(options.data, options.bootstrap))
    store = Store(options.data / STORE, CLUSTER, options.node, options.bootstrap)
    corel = CorelConfig(batch_bytes_max=BATCH_BYTES, open_scan_max=OPEN_SCAN, debug_invariants=True)
    config = NodeConfig(
        machine,
        BroadcastMode(parse_address(options.broadcast)),
        cluster=CLUSTER,
        clock_floor=ClockFloor(options.data),
        log=LogConfig(store, Roster.of(options.roster.split(",")), corel),
    )
    recorder = Recorder(machine, options.record)
    recorder.on_start(store.load())
    upward = Upward(
        view_changed=recorder.on_view,
        logged=recorder.on_logged,
        greened=recorder.on_greened,
        reordered=recorder.on_reordered,
        journaled=recorder.on_journal,
        failed=lambda error: os._exit(1),  # the driver has said why on stderr
        disk_failed=lambda error: os._exit(1),
    )
    node = Node(config, upward, JournalWriter(options.data / "journal", options.node))
    assert node.log is not None
    assert node.writer is not None
    load = Load(node, machine)
    async with asyncio.TaskGroup() as group:  # an error in any of them ends the process at once
        dying = group.create_task(_die_in_mid_recovery(node.log, options.die_after_copies))
        sending = group.create_task(load.run(options.messages_per_second))
        await _obey(sending, load, recorder)
        dying.cancel()
    await node.flush(_DISK_SECONDS)
    node.close()
    if not node.writer.join(_DISK_SECONDS):
        raise TimeoutError(f"the writer did not end within {_DISK_SECONDS} s")
    store.close()
    recorder.close()


async def _die_in_mid_recovery(log: Corel, after_copies: int) -> None:
    """`kill -9`, at a moment that nobody could hit from outside."""
    while not 0 < after_copies <= log.counters["retransmissions_received"]:
        await asyncio.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


async def _obey(sending: asyncio.Task[None], load: Load, recorder: Recorder) -> None:
    commands = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(commands)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while words := (await commands.readline()).split():
        if words[0] == b"burst":
            for _ in range(int(words[1])):
                load.submit()
        elif words[0] == b"stop":
            sending.cancel()
            recorder.on_stopped(load.count)
        else:
            raise ValueError(f"no command {words}: expected burst N or stop")
    sending.cancel()
    transport.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.network.log_member", description=__doc__)
    parser.add_argument("--node", required=True, help="this node's name, one letter")
    parser.add_argument("--roster", required=True, help="all nodes' names: a,b,c")
    parser.add_argument("--broadcast", required=True, help="HOST:PORT")
    parser.add_argument("--data", required=True, type=Path, help="its disk")
    parser.add_argument("--record", required=True, type=Path, help="where to write what it is told")
    parser.add_argument("--bootstrap", action="store_true", help="the cluster is new: an empty disk may vote")
    parser.add_argument("--messages-per-second", type=float, default=MESSAGES_PER_SECOND)
    parser.add_argument("--die-after-copies", type=int, default=0, help="kill -9 when so many were retransmitted")
    return parser


if __name__ == "__main__":
    main()
