"""One node with membership as a process of its own: it multicasts a steady load and logs whatever happens to it.

    python -m tests.network.member --node a --broadcast 10.77.0.255:7400 --data /tmp/a --log /tmp/a.log

It says `ready` when its sockets are bound, and multicasts from then on. On stdin it obeys `stop` (send no more),
and says `stopped`; when stdin closes it ends. The data directory keeps its incarnation, its clock and its journal;
the log is appended to, so a restarted node goes on where its former incarnation was killed.

The log is a line of JSON per event, handed to the kernel at once: a killed process loses none that others could
know of. Its times are of the system-wide monotonic clock, so merging the logs of several processes by time puts
every event after its causes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import uvloop

from kvstore.journal import JournalWriter
from kvstore.node import Node, NodeConfig, Upward
from membership.floor import ClockFloor
from tests.network.worker import say
from transport.incarnation import next_incarnation
from transport.messages import Machine, Message, Service, View, ViewId
from transport.udp import BroadcastMode, parse_address

MESSAGES_PER_SECOND = 50.0
SERVICES = (Service.AGREED, Service.CAUSAL, Service.SAFE)
"""Taken in turn. Basic messages are left out: a change of view promises nothing about them."""


class Installed(NamedTuple):
    """A machine has a new view; without a previous one it has just started."""

    at_ns: int
    machine: Machine
    view: View
    previous: ViewId | None

    def as_fields(self) -> tuple[object, ...]:
        view = self.view
        return view.id, view.members, view.transitional, self.previous

    @classmethod
    def from_fields(cls, at_ns: int, machine: Machine, fields: list[Any]) -> Installed:
        view_id, members, transitional, previous = fields
        view = View(ViewId(*view_id), _machines(members), _machines(transitional))
        return cls(at_ns, machine, view, previous and ViewId(*previous))


class Changing(NamedTuple):
    """The view is ending: the machine sends nothing more in it."""

    at_ns: int
    machine: Machine
    view: ViewId

    def as_fields(self) -> tuple[object, ...]:
        return (self.view,)

    @classmethod
    def from_fields(cls, at_ns: int, machine: Machine, fields: list[Any]) -> Changing:
        return cls(at_ns, machine, ViewId(*fields[0]))


class Sent(NamedTuple):
    """The application is about to multicast its message of this number; they count from 0."""

    at_ns: int
    machine: Machine
    number: int
    service: Service

    def as_fields(self) -> tuple[object, ...]:
        return self.number, self.service

    @classmethod
    def from_fields(cls, at_ns: int, machine: Machine, fields: list[Any]) -> Sent:
        return cls(at_ns, machine, fields[0], Service(fields[1]))


class Delivered(NamedTuple):
    """The application was given this message; its payload says whose and of which number it is."""

    at_ns: int
    machine: Machine
    message: Message

    @property
    def number(self) -> int:
        sender, number = self.message.payload.split(b":")
        if sender.decode() != str(self.message.sender):
            raise ValueError(f"{self.machine} was given as of {self.message.sender}: {self.message}")
        return int(number)

    def as_fields(self) -> tuple[object, ...]:
        clock, sender, sequence, service, view, payload = self.message
        return clock, sender, sequence, service, view, payload.decode()

    @classmethod
    def from_fields(cls, at_ns: int, machine: Machine, fields: list[Any]) -> Delivered:
        clock, sender, sequence, service, view, payload = fields
        message = Message(clock, Machine(*sender), sequence, Service(service), ViewId(*view), payload.encode())
        return cls(at_ns, machine, message)


Record: TypeAlias = Installed | Changing | Sent | Delivered
KINDS: dict[str, type[Record]] = {
    "view": Installed,
    "changing": Changing,
    "sent": Sent,
    "delivered": Delivered,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def as_line(record: Record) -> str:
    """`[nanoseconds, [name, incarnation], event, ...]`, the rest as the event has it."""
    return json.dumps([record.at_ns, record.machine, _NAMES[type(record)], *record.as_fields()]) + "\n"


def from_line(line: str) -> Record:
    at_ns, machine, event, *fields = json.loads(line)
    return KINDS[event].from_fields(at_ns, Machine(*machine), fields)


def _machines(fields: list[Any]) -> tuple[Machine, ...]:
    return tuple(Machine(*machine) for machine in fields)


class Recorder:
    """What happens to one machine, line by line."""

    def __init__(self, machine: Machine, log: Path) -> None:
        self._machine = machine
        self._log = open(log, "a", buffering=1)  # noqa: SIM115 (open as long as the process runs)
        self._view: ViewId | None = None

    def on_view(self, view: View) -> None:
        self._write(Installed(time.monotonic_ns(), self._machine, view, self._view))
        self._view = view.id

    def on_changing(self, view: View) -> None:
        self._write(Changing(time.monotonic_ns(), self._machine, view.id))

    def on_sent(self, number: int, service: Service) -> None:
        self._write(Sent(time.monotonic_ns(), self._machine, number, service))

    def on_delivered(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._write(Delivered(time.monotonic_ns(), self._machine, message))

    def close(self) -> None:
        self._log.close()

    def _write(self, record: Record) -> None:
        self._log.write(as_line(record))


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format=f"{options.node}  %(levelname)s %(message)s")
    uvloop.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    machine = Machine(options.node, next_incarnation(options.data, is_new_cluster=True))
    mode = BroadcastMode(parse_address(options.broadcast))
    config = NodeConfig(machine, mode, cluster="test", clock_floor=ClockFloor(options.data))
    recorder = Recorder(machine, options.log)
    upward = Upward(
        delivered=recorder.on_delivered,
        changing=recorder.on_changing,
        view_changed=recorder.on_view,
        failed=lambda error: os._exit(1),  # the driver has said why on stderr
    )
    node = Node(config, upward, JournalWriter(options.data / "journal", options.node))
    recorder.on_view(node.view)
    say("ready")
    async with asyncio.TaskGroup() as group:  # an error in sending ends the process at once
        sending = group.create_task(_send(node, recorder, options.messages_per_second))
        await _obey(sending)
    node.close()
    recorder.close()


async def _send(node: Node, recorder: Recorder, messages_per_second: float) -> None:
    """At this rate as long as there is room; what a change of view holds back waits in the node."""
    number = 0
    while True:
        await asyncio.sleep(1.0 / messages_per_second)
        await node.room()
        service = SERVICES[number % len(SERVICES)]
        recorder.on_sent(number, service)
        node.multicast(service, b"%s:%d" % (str(node.transport.me).encode(), number))
        number += 1


async def _obey(sending: asyncio.Task[None]) -> None:
    commands = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(commands)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while command := (await commands.readline()).strip():
        if command != b"stop":
            raise ValueError(f"no command {command!r}: expected stop")
        sending.cancel()
        say("stopped")
    sending.cancel()
    transport.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.network.member", description=__doc__)
    parser.add_argument("--node", required=True, help="this node's name")
    parser.add_argument("--broadcast", required=True, help="HOST:PORT")
    parser.add_argument("--data", required=True, type=Path, help="directory for incarnation, clock and journal")
    parser.add_argument("--log", required=True, type=Path, help="where to write what happens")
    parser.add_argument("--messages-per-second", type=float, default=MESSAGES_PER_SECOND)
    return parser


if __name__ == "__main__":
    main()
