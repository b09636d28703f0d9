"""One node with membership as a process of its own: it multicasts a steady load and records what happens to it.

    python -m tests.network.membership_member --node a --broadcast 10.77.0.255:7400 --data /tmp/a \\
        --record /tmp/a.record

It says `ready` when its sockets are bound, and multicasts from then on. On stdin it obeys `stop` (send no more),
and says `stopped`; when stdin closes it ends. The data directory keeps its incarnation, its clock and its journal;
the record is appended to, so a restarted node goes on where its former incarnation was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kvstore.node.recorder import Recorder as JournalRecorder
from kvstore.node.synced_numbers import ClockFloor, next_incarnation
from tests.drivers import MulticastDriver
from tests.journals import journal_in
from tests.network import member_process
from tests.network.member_process import new_parser, obey, run_node, say
from transport.messages import Machine, Message, Service, View, ViewId
from transport.udp import BroadcastMode, parse_address

MESSAGES_PER_SECOND = 50.0
SERVICES = (Service.AGREED, Service.CAUSAL, Service.SAFE)
"""The services, used in turn. Basic messages are left out: a change of view promises nothing about them."""


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
    """The application was given this message; its payload says its sender and its number."""

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
    """Returns `[nanoseconds, [name, incarnation], event, ...]`, followed by the fields of the event."""
    return json.dumps([record.at_ns, record.machine, _NAMES[type(record)], *record.as_fields()]) + "\n"


def from_line(line: str) -> Record:
    at_ns, machine, event, *fields = json.loads(line)
    return KINDS[event].from_fields(at_ns, Machine(*machine), fields)


def _machines(fields: list[Any]) -> tuple[Machine, ...]:
    return tuple(Machine(*machine) for machine in fields)


class Recorder(member_process.Recorder[Record]):
    """Records what happens to one machine."""

    def __init__(self, machine: Machine, path: Path) -> None:
        super().__init__(path, as_line)
        self._machine = machine
        self._view: ViewId | None = None

    def on_view(self, view: View) -> None:
        self.write(Installed(time.monotonic_ns(), self._machine, view, self._view))
        self._view = view.id

    def on_changing(self, view: View) -> None:
        self.write(Changing(time.monotonic_ns(), self._machine, view.id))

    def on_sent(self, number: int, service: Service) -> None:
        self.write(Sent(time.monotonic_ns(), self._machine, number, service))

    def on_delivered(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.write(Delivered(time.monotonic_ns(), self._machine, message))


async def _run(options: argparse.Namespace) -> None:
    machine = Machine(options.node, next_incarnation(options.data))
    mode = BroadcastMode(parse_address(options.broadcast))
    recorder = Recorder(machine, options.record)
    clock_floor = ClockFloor(options.data)
    journal = journal_in(options.data / "journal")
    node = MulticastDriver.in_group(
        machine,
        mode,
        clock=clock_floor.clock,
        cluster="test",
        on_stopped=lambda error: os._exit(1),  # the driver has said why on stderr
        clock_floor=clock_floor,
        journal=JournalRecorder(journal, machine),
    )
    node.listen(
        Delivered=lambda delivered: recorder.on_delivered(delivered.messages),
        ChangeStarted=lambda started: recorder.on_changing(started.view),
        ViewChanged=lambda changed: recorder.on_view(changed.view),
    )
    recorder.on_view(node.view)
    say("ready")
    async with asyncio.TaskGroup() as group:  # an error in sending ends the process at once
        sending = group.create_task(_send(node, recorder, options.messages_per_second))
        await obey(stop=lambda: _stop(sending))
        sending.cancel()
    node.close()
    journal.stop()
    recorder.close()


async def _send(node: MulticastDriver, recorder: Recorder, messages_per_second: float) -> None:
    """Multicasts at this rate while the queue has room; what a change of view holds back waits in the node."""
    number = 0
    while True:
        await asyncio.sleep(1.0 / messages_per_second)
        await node.room()
        service = SERVICES[number % len(SERVICES)]
        recorder.on_sent(number, service)
        node.multicast(service, b"%s:%d" % (str(node.transport.me).encode(), number))
        number += 1


def _stop(sending: asyncio.Task[None]) -> None:
    sending.cancel()
    say("stopped")


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("membership_member", __doc__)
    parser.add_argument("--broadcast", required=True, help="HOST:PORT")
    parser.add_argument("--data", required=True, type=Path, help="directory for incarnation, clock and journal")
    parser.add_argument("--messages-per-second", type=float, default=MESSAGES_PER_SECOND)
    return parser


if __name__ == "__main__":
    run_node(_parser(), _run)
