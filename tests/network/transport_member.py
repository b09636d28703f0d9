"""One node of a transport whose members never change, as a process of its own: it multicasts a planned load and
records whatever happens to it.

    python -m tests.network.transport_member --node a --roster a,b --broadcast 10.77.0.255:7400 \\
        --record /tmp/a.record

It says `ready` when its sockets are bound. On stdin it obeys `start` (send the load) and `counters` (print them
as a line of JSON). When it has delivered everything that all nodes were to send it says `done`, and answers
requests for retransmissions until stdin closes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.drivers import MulticastDriver
from tests.network import member_process
from tests.network.member_process import new_parser, obey, run_node, say
from transport.config import TransportConfig
from transport.messages import ORDERED, Machine, Message, Service, View, ViewId
from transport.udp import BroadcastMode, Mode, MulticastMode, PeersMode, parse_address

SENT, RECEIVED, DELIVERED = "sent", "received", "delivered"
QUEUE_MESSAGES_MAX = 64
"""Small, so that a burst meets backpressure."""


@dataclass(frozen=True, slots=True)
class Load:
    """What every node is to send, drawn alike in every process. Each field is a flag of the command line."""

    seed: int = 1
    messages_per_service: int = 150
    bytes_max: int = 300
    large_bytes_max: int = 40_000
    large_share: float = 0.02
    burst: int = 20
    pause_ms: float = 5.0

    def messages_of(self, name: str) -> list[tuple[Service, bytes]]:
        """Returns the messages of one node in the order of their numbers; a payload begins `name:number:`.

        Some that need not wait for an order come first: later nearly every causal message waits for ordered ones
        in its past, which would hide one that overtakes a lost cause.
        """
        random = Random(f"{self.seed} {name}")
        prompt = [Service.BASIC, Service.CAUSAL] * self.messages_per_service
        prelude, rest = prompt[: self.messages_per_service], prompt[self.messages_per_service :]
        rest += ORDERED * self.messages_per_service
        random.shuffle(prelude)
        random.shuffle(rest)
        messages = []
        for number, service in enumerate(prelude + rest):
            size = random.randint(0, self.bytes_max)
            if random.random() < self.large_share:
                size = random.randint(self.bytes_max, self.large_bytes_max)
            messages.append((service, b"%s:%d:" % (name.encode(), number) + random.randbytes(size)))
        return messages

    def as_arguments(self) -> list[str]:
        return [f"{_flag(name)}={value}" for name, value in asdict(self).items()]


class Record(NamedTuple):
    """One line of the record. What is sent has no clock and no sequence yet; only deliveries have places."""

    at_ns: int
    event: str
    node: str
    sender: str
    number: int
    service: Service
    clock: int = 0
    sequence: int = 0
    place: int = 0
    is_intact: bool = True

    @classmethod
    def from_line(cls, line: str) -> Record:
        fields = json.loads(line)
        return cls(**{**fields, "service": Service(fields["service"])})

    def as_line(self) -> str:
        return json.dumps(self._asdict()) + "\n"


class Recorder(member_process.Recorder[Record]):
    """Records what happens to the node, and says `done` when nothing is left to deliver."""

    def __init__(self, node: str, plans: dict[str, list[tuple[Service, bytes]]], path: Path) -> None:
        super().__init__(path, Record.as_line, "w", buffering=-1)  # too many events to hand over one by one
        self._node = node
        self._plans = plans
        self._awaited = {(name, number) for name, plan in plans.items() for number in range(len(plan))}
        self._delivered_count = 0

    def on_sent(self, number: int, service: Service) -> None:
        self.write(Record(time.monotonic_ns(), SENT, self._node, self._node, number, service))

    def on_received(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.write(self._record(RECEIVED, message))

    def on_delivered(self, messages: Iterable[Message]) -> None:
        was_waiting = bool(self._awaited)
        for message in messages:
            record = self._record(DELIVERED, message)
            self.write(record)
            self._delivered_count += 1
            self._awaited.discard((record.sender, record.number))
        if was_waiting and not self._awaited:
            self.flush()
            say("done")

    def _record(self, event: str, message: Message) -> Record:
        name, digits, _ = message.payload.split(b":", 2)
        sender, number = name.decode(), int(digits)
        is_intact = (message.service, message.payload) == self._plans[sender][number]
        is_intact = is_intact and message.sender.name == sender
        return Record(
            time.monotonic_ns(), event, self._node, sender, number, message.service,
            message.clock, message.sequence, self._delivered_count, is_intact,
        )  # fmt: skip


def shrink_receive_buffers(node: MulticastDriver, size_bytes: int) -> None:
    """Makes the buffers smaller than the driver knows: its window was fitted to larger ones."""
    for opened in node.udp._sockets:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes)


class Sending:
    """The application: sends its load in bursts, as fast as backpressure allows."""

    def __init__(
        self, node: MulticastDriver, recorder: Recorder, load: Load, messages: list[tuple[Service, bytes]]
    ) -> None:
        self._node = node
        self._recorder = recorder
        self._load = load
        self._messages = messages
        self.waits_for_room = 0

    async def run(self) -> None:
        for number, (service, payload) in enumerate(self._messages):
            if number and number % self._load.burst == 0:
                await asyncio.sleep(self._load.pause_ms / 1_000.0)
            self.waits_for_room += self._node.transport.queued_messages() >= QUEUE_MESSAGES_MAX
            await self._node.room()
            self._recorder.on_sent(number, service)
            self._node.multicast(service, payload)


async def _run(options: argparse.Namespace) -> None:
    asyncio.get_running_loop().set_exception_handler(_die)
    load = Load(**{name: getattr(options, name) for name in asdict(Load())})
    names = sorted(options.roster.split(","))
    plans = {name: load.messages_of(name) for name in names}
    recorder = Recorder(options.node, plans, options.record)
    view = View(ViewId(1, "a", 1), tuple(Machine(name, 1) for name in names))
    transport = TransportConfig(window_bytes_max=options.window_bytes, queue_messages_max=QUEUE_MESSAGES_MAX)
    node = MulticastDriver.in_view(Machine(options.node, 1), view, _mode(options), transport, cluster="test")
    node.listen(
        Delivered=lambda delivered: recorder.on_delivered(delivered.messages),
        Received=lambda received: recorder.on_received(received.messages),
    )
    if options.receive_buffer_bytes is not None:
        shrink_receive_buffers(node, options.receive_buffer_bytes)
    sending = Sending(node, recorder, load, plans[options.node])
    say("ready")
    tasks: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:  # an error in sending ends the process at once
        await obey(
            start=lambda: tasks.append(group.create_task(sending.run())),
            counters=lambda: say(json.dumps(_counters(node, sending))),
        )
        for task in tasks:
            task.cancel()
    node.close()
    recorder.close()


def _counters(node: MulticastDriver, sending: Sending) -> dict[str, int]:
    state = {
        "waits_for_room": sending.waits_for_room,
        "window_bytes": node.transport.window_bytes()[0],
    }
    groups: dict[str, Mapping[str, int]] = {
        "machine": node.transport.counters,
        "udp": node.udp.counters,
        "peer_errors": {str(reason): count for reason, count in node.telemetry.peer_errors.counts.items()},
        "kernel": _kernel_udp_counters(),
        "state": state,
    }
    return {f"{group}.{name}": count for group, counts in groups.items() for name, count in counts.items()}


def _kernel_udp_counters() -> dict[str, int]:
    """Returns the kernel's UDP counters of this process's network namespace."""
    with open("/proc/net/snmp") as lines:
        names, values = [line.split()[1:] for line in lines if line.startswith("Udp:")]
    return dict(zip(names, map(int, values), strict=True))


def _die(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ends the process: an error in a callback would otherwise only be logged, and the test wait in vain."""
    loop.default_exception_handler(context)
    os._exit(1)


def _mode(options: argparse.Namespace) -> Mode:
    if options.broadcast is not None:
        return BroadcastMode(parse_address(options.broadcast))
    if options.multicast is not None:
        return MulticastMode(parse_address(options.multicast))
    peers = dict(zip(options.roster.split(","), map(parse_address, options.peers.split(",")), strict=True))
    return PeersMode(peers[options.node], tuple(peers.values()))


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("transport_member", __doc__)
    parser.add_argument("--roster", required=True, help="all nodes' names: a,b,c")
    modes = parser.add_mutually_exclusive_group(required=True)
    modes.add_argument("--broadcast", help="HOST:PORT")
    modes.add_argument("--multicast", help="GROUP:PORT")
    modes.add_argument("--peers", help="HOST:PORT,... in the order of the roster")
    parser.add_argument("--window-bytes", type=int, default=TransportConfig().window_bytes_max)
    parser.add_argument("--receive-buffer-bytes", type=int, help="shrink the sockets' buffers to this once open")
    for name, default in asdict(Load()).items():
        parser.add_argument(_flag(name), type=type(default), default=default)
    return parser


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


if __name__ == "__main__":
    run_node(_parser(), _run)
