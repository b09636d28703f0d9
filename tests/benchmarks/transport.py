"""The transport on loopback broadcast: real processes, real sockets, all members sending at once.

Every member keeps a number of its own messages outstanding and sends the next when one is delivered to it, so
the load is whatever the protocol can carry. Latency is from `multicast` at the sender to delivery at each member
(one machine, one clock). A datagram is counted once however many members receive it. The UDP ping-pong of the
same run, through the same event loop, says how fast the machine is today.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import struct
import sys
import time
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection

import uvloop

from kvstore.node.config import PRESETS
from tests.benchmarks.members import Barrier, run_members
from tests.drivers import MulticastDriver
from transport.effects import Delivered
from transport.messages import Machine, Service, View, ViewId
from transport.udp import BroadcastMode

PORT = 7_455
WARM_UP_SECONDS = 0.5
_STAMP = struct.Struct("!Q")
_SAMPLE_EVERY = 8
_DEADLINE_SECONDS = 60.0
_HEADER = (
    "| members | view | service | bytes | outstanding | messages/s | p50 ms | p99 ms | p50 in ping-pongs "
    "| datagrams/message | CPU µs/message |"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the report."""

    members: int
    service: Service
    message_bytes: int
    outstanding: int
    """How many messages of each member are in flight; 0 means a low load: only the first sends, one every 5 ms."""
    datagram_bytes_max: int | None = None
    """None is what a node chooses on loopback; 1,400 is what it would choose on a LAN."""
    with_membership: bool = False
    """Whether the members find each other, and watch each other, instead of having a fixed view."""


@dataclass(frozen=True, slots=True)
class MemberResult:
    messages_delivered: int
    seconds: float
    cpu_seconds: float
    datagrams_sent: int
    latencies_ms: list[float]


@dataclass(frozen=True, slots=True)
class Result:
    messages_per_second: float
    """The rate at which messages are delivered at every member: that of the slowest."""
    p50_ms: float
    p99_ms: float
    datagrams_per_message: float
    cpu_us_per_message: float
    """The CPU time of all members together, per message delivered at every member."""


def measure(case: Case, seconds: float) -> Result:
    arguments = [(index, case, seconds, os.getpid()) for index in range(case.members)]
    return _combine(run_members(_member, arguments, _DEADLINE_SECONDS))


def _combine(results: list[MemberResult]) -> Result:
    slowest = min(results, key=lambda result: result.messages_delivered)
    messages = slowest.messages_delivered
    latencies = sorted(latency for result in results for latency in result.latencies_ms)
    return Result(
        messages_per_second=messages / slowest.seconds,
        p50_ms=latencies[len(latencies) // 2],
        p99_ms=latencies[len(latencies) * 99 // 100],
        datagrams_per_message=sum(result.datagrams_sent for result in results) / messages,
        cpu_us_per_message=sum(result.cpu_seconds for result in results) / messages * 1e6,
    )


def _member(
    index: int,
    case: Case,
    seconds: float,
    run: int,
    barrier: Barrier,
    pipe: Connection,
) -> None:
    uvloop.run(_Member(index, case, run).run(seconds, barrier, pipe))


class _Member:
    """The node of one process."""

    def __init__(self, index: int, case: Case, run: int) -> None:
        machines = tuple(Machine(chr(ord("a") + number), 1) for number in range(case.members))
        self._case = case
        self._is_talker = case.outstanding > 0 or index == 0
        self._me = machines[index]
        self._machines = machines
        self._cluster = f"bench-{run}"
        self._padding = bytes(case.message_bytes - _STAMP.size)
        self._delivered = 0
        self._latencies_ms: list[float] = []
        self._is_sending = False

    async def run(self, seconds: float, barrier: Barrier, pipe: Connection) -> None:
        self._node = self._open()
        self._node.listen(Delivered=self._on_delivered)
        async with asyncio.timeout(_DEADLINE_SECONDS):
            while len(self._node.view.members) < self._case.members:
                await asyncio.sleep(0.01)
        await asyncio.get_running_loop().run_in_executor(None, barrier.wait, _DEADLINE_SECONDS)
        self._is_sending = self._is_talker
        low_load = asyncio.create_task(self._send_slowly()) if self._case.outstanding == 0 else None
        for _ in range(self._case.outstanding):
            self._send()
        await asyncio.sleep(WARM_UP_SECONDS)
        pipe.send(await self._measure(seconds))
        self._is_sending = False
        if low_load is not None:
            low_load.cancel()
        await asyncio.sleep(0.3)  # others may still request what this one has
        self._node.close()

    def _open(self) -> MulticastDriver:
        mode = BroadcastMode(("127.255.255.255", PORT))
        transport = PRESETS["loopback"].transport
        if self._case.datagram_bytes_max is not None:
            transport = replace(transport, datagram_bytes_max=self._case.datagram_bytes_max)
        if self._case.with_membership:
            return MulticastDriver.in_group(self._me, mode, transport, cluster=self._cluster)
        view = View(ViewId(1, "a", 1), self._machines)
        return MulticastDriver.in_view(self._me, view, mode, transport, cluster=self._cluster)

    async def _measure(self, seconds: float) -> MemberResult:
        self._delivered = 0
        self._latencies_ms.clear()
        datagrams = self._node.udp.counters["datagrams_sent"]
        cpu, started = time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        return MemberResult(
            messages_delivered=self._delivered,
            seconds=time.perf_counter() - started,
            cpu_seconds=time.process_time() - cpu,
            datagrams_sent=self._node.udp.counters["datagrams_sent"] - datagrams,
            latencies_ms=list(self._latencies_ms),
        )

    def _send(self) -> None:
        self._node.multicast(self._case.service, _STAMP.pack(time.monotonic_ns()) + self._padding)

    async def _send_slowly(self) -> None:
        while self._is_sending:
            self._send()
            await asyncio.sleep(0.005)

    def _on_delivered(self, delivered: Delivered) -> None:
        messages = delivered.messages
        now = time.monotonic_ns()
        self._delivered += len(messages)
        sample = messages if len(messages) < _SAMPLE_EVERY else messages[::_SAMPLE_EVERY]
        self._latencies_ms += [(now - _STAMP.unpack_from(message.payload)[0]) / 1e6 for message in sample]
        if self._is_sending and self._case.outstanding:
            for _ in range(sum([message.sender == self._me for message in messages])):
                self._send()


def ping_pong_ms(rounds: int = 2_000) -> float:
    """Returns the median time for a datagram to another process and back, through the same kind of event loop."""
    context = multiprocessing.get_context("spawn")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind(("127.0.0.1", 0))
        ours.settimeout(5.0)
        echo = context.Process(target=_echo, args=(ours.getsockname(), rounds))
        echo.start()
        try:
            _, address = ours.recvfrom(100)  # the other process has started
            times = []
            for _ in range(rounds):
                started = time.perf_counter()
                ours.sendto(b"x" * 100, address)
                ours.recvfrom(200)
                times.append(time.perf_counter() - started)
        finally:
            echo.join(5.0)
            if echo.is_alive():
                echo.kill()
    return statistics.median(times) * 1e3


def _echo(address: tuple[str, int], rounds: int) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        left = rounds
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
            ours.setblocking(False)

            def on_readable() -> None:
                nonlocal left
                ours.sendto(ours.recv(200), address)
                left -= 1
                if not left:
                    done.set_result(None)

            loop.add_reader(ours.fileno(), on_readable)
            ours.sendto(b"ready", address)
            await asyncio.wait_for(done, 20.0)

    uvloop.run(serve())


CASES: dict[str, list[Case]] = {
    "Three members, all sending, as a node on loopback": [
        Case(3, service, size, outstanding)
        for size in (100, 1_024)
        for service in (Service.AGREED, Service.SAFE)
        for outstanding in (64, 512)
    ],
    "The same in datagrams of 1,400 bytes, as on a LAN": [
        Case(3, service, size, 64, 1_400) for size in (100, 1_024) for service in (Service.AGREED, Service.SAFE)
    ],
    "Membership at work, and a fixed view: three members, 100-byte agreed messages": [
        Case(3, Service.AGREED, 100, outstanding, with_membership=with_membership)
        for _ in range(3)
        for outstanding in (64, 512)
        for with_membership in (False, True)
    ],
    "Low load: one member sends 200 messages/s": [
        Case(3, service, 100, 0) for service in (Service.AGREED, Service.SAFE)
    ],
    "More members, 100-byte agreed messages": [
        Case(members, Service.AGREED, 100, 64) for members in (2, 3, 4, 5, 6, 7, 8)
    ],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.transport", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured time per case (default 4)")
    parser.add_argument("--json", action="store_true", help="one JSON object per case instead of tables")
    options = parser.parse_args()
    reference_ms = ping_pong_ms()
    if not options.json:
        print(f"UDP ping-pong between two processes, p50: {reference_ms:.3f} ms\n")
    for title, cases in CASES.items():
        if not options.json:
            print(f"### {title}\n")
            print(_HEADER + "\n" + "|---" * 11 + "|")
        for case in cases:
            result = measure(case, options.seconds)
            if options.json:
                print(json.dumps({"ping_pong_ms": reference_ms, **asdict(case), **asdict(result)}), flush=True)
            else:
                print(_row(case, result, reference_ms), flush=True)
        if not options.json:
            print()
    return 0


def _row(case: Case, result: Result, reference_ms: float) -> str:
    view = "agreed on" if case.with_membership else "fixed"
    return (
        f"| {case.members} | {view} | {case.service.name.lower()} | {case.message_bytes:,} "
        f"| {case.outstanding or '-'} "
        f"| {result.messages_per_second:,.0f} | {result.p50_ms:.2f} | {result.p99_ms:.2f} "
        f"| {result.p50_ms / reference_ms:.1f} | {result.datagrams_per_message:.3f} "
        f"| {result.cpu_us_per_message:.1f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
