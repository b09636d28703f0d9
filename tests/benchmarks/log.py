"""The log on real disks: three processes on loopback broadcast, everything synced before it is acknowledged.

Every member keeps a number of its own messages outstanding and submits the next when one is green, so the load is
whatever the log can carry. Time to green is from `submit` to green at the submitter. What the disk can do is
measured in the same run: three processes, each with an LMDB environment of its own, commit one record at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import lmdb
import uvloop

from corel.effects import Greened
from corel.messages import MessageId
from corel.stages import Stage
from tests.benchmarks.members import Barrier, run_members
from tests.drivers import LogDriver, loopback_config

PORT = 7_456
NAMES = "abc"
WARM_UP_SECONDS = 1.0
_DEADLINE_SECONDS = 240.0
_HEADER = (
    "| outstanding | operations/message | messages/s | operations/s | p50 ms | p99 ms | p50 in syncs "
    "| syncs/s of a member | CPU µs/message |"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the report."""

    outstanding: int
    """How many messages are in flight, over all members."""
    operations: int = 1
    """How many operations of 100 bytes each message carries."""


@dataclass(frozen=True, slots=True)
class MemberResult:
    green: int
    seconds: float
    cpu_seconds: float
    syncs: int
    latencies_ms: list[float]


@dataclass(frozen=True, slots=True)
class Result:
    messages_per_second: float
    operations_per_second: float
    p50_ms: float
    p99_ms: float
    syncs_per_second: float
    """The rate of one member."""
    cpu_us_per_message: float


def measure(case: Case, seconds: float, directory: Path) -> Result:
    results: list[MemberResult] = _in_processes(_measured, [(name, case, seconds) for name in NAMES], directory)
    slowest = min(results, key=lambda result: result.green)
    latencies = sorted(latency for result in results for latency in result.latencies_ms)
    return Result(
        messages_per_second=slowest.green / slowest.seconds,
        operations_per_second=slowest.green * case.operations / slowest.seconds,
        p50_ms=latencies[len(latencies) // 2],
        p99_ms=latencies[len(latencies) * 99 // 100],
        syncs_per_second=statistics.mean(result.syncs / result.seconds for result in results),
        cpu_us_per_message=sum(result.cpu_seconds for result in results) / max(1, slowest.green) * 1e6,
    )


def catch_up_per_second(missed: int, directory: Path) -> tuple[float, float]:
    """Returns how fast a node that missed so many messages catches up, and how long that held up the others."""
    arguments = [(name, missed, str(directory)) for name in NAMES]
    results = _in_processes(_caught_up, arguments, directory)
    seconds, pause = next(result for result in results if result is not None)
    return missed / seconds, pause


def _in_processes(target: Callable[..., Any], arguments: list[tuple[Any, ...]], directory: Path) -> list[Any]:
    run = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    cases = [(target, case, run, str(directory)) for case in arguments]
    return run_members(_run, cases, _DEADLINE_SECONDS)


def _run(
    target: Callable[..., Any],
    arguments: tuple[Any, ...],
    run: str,
    directory: str,
    barrier: Barrier,
    pipe: Connection,
) -> None:
    uvloop.run(target(*arguments, _Member(arguments[0], run, Path(directory)), barrier, pipe))


class _Member:
    """The node of one process."""

    def __init__(self, name: str, run: str, directory: Path) -> None:
        self.config = loopback_config(name, NAMES, directory / run / name, PORT, cluster=run)
        self.on_green: Callable[[Greened], None] = lambda greened: None
        self.node: LogDriver

    def start(self) -> None:
        self.node = LogDriver(self.config)
        self.node.start(Greened=lambda greened: self.on_green(greened))

    async def primary(self, members: int) -> None:
        await self.until(lambda: self._is_primary(members))

    def _is_primary(self, members: int) -> bool:
        log = self.node.log
        return log.stage is Stage.PRIMARY and len(log.view.members) == members

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            while not condition():
                await asyncio.sleep(0.005)

    @property
    def green(self) -> int:
        return self.node.log.queue.green


async def _meet(barrier: Barrier) -> None:
    await asyncio.get_running_loop().run_in_executor(None, barrier.wait, _DEADLINE_SECONDS)


async def _measured(
    name: str,
    case: Case,
    seconds: float,
    member: _Member,
    barrier: Barrier,
    pipe: Connection,
) -> None:
    body = bytes(100 * case.operations)
    sent_at: dict[MessageId, float] = {}
    latencies_ms: list[float] = []
    place = NAMES.index(name)
    share = case.outstanding // len(NAMES) + (place < case.outstanding % len(NAMES))
    is_sending = True

    def send() -> None:
        sent_at[member.node.submit(body)] = time.perf_counter()

    def on_green(greened: Greened) -> None:
        now = time.perf_counter()
        for entry in greened.entries:
            at = sent_at.pop(entry.id, None)
            if at is not None:
                latencies_ms.append((now - at) * 1e3)
                if is_sending:
                    send()

    member.start()
    await member.primary(len(NAMES))
    member.on_green = on_green
    await _meet(barrier)
    for _ in range(share):
        send()
    await asyncio.sleep(WARM_UP_SECONDS)
    latencies_ms.clear()
    green, syncs = member.green, member.node.writes
    cpu, started = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - started
    result = MemberResult(
        member.green - green, took, time.process_time() - cpu, member.node.writes - syncs, list(latencies_ms)
    )
    is_sending = False
    await _meet(barrier)
    await asyncio.sleep(0.3)
    await member.node.close()
    pipe.send(result)


async def _caught_up(
    name: str,
    missed: int,
    directory: str,
    member: _Member,
    barrier: Barrier,
    pipe: Connection,
) -> None:
    member.start()
    await member.primary(len(NAMES))
    await _meet(barrier)
    if name == "c":
        await member.node.close()
        await _meet(barrier)
        started = time.perf_counter()
        member.start()
        await member.until(lambda: member.green >= missed)
        caught = time.perf_counter() - started
        await member.primary(len(NAMES))
        await _meet(barrier)
        await member.node.close()
        pipe.send((caught, time.perf_counter() - started))
        return
    await member.primary(2)
    sent = 0
    mine = missed // 2
    while sent < mine:
        while sent < mine and sent - member.green / 2 < 2_000:
            member.node.submit(bytes(100))
            sent += 1
        await asyncio.sleep(0.001)
    await member.until(lambda: member.green >= missed)
    await _meet(barrier)
    await _meet(barrier)
    await member.node.close()
    pipe.send(None)


def concurrent_sync_ms(directory: Path, count: int = 200) -> float:
    """Returns the median time of a commit with sync of one small record, while two other processes do the same."""
    arguments = [(str(directory / f"sync-{place}"), count) for place in range(3)]
    return float(statistics.median(run_members(_sync, arguments, within_seconds=60.0)))


def _sync(directory: str, count: int, barrier: Barrier, pipe: Connection) -> None:
    environment = lmdb.open(directory, map_size=1 << 28)
    times = []
    barrier.wait(30.0)
    for number in range(count):
        started = time.perf_counter()
        with environment.begin(write=True) as transaction:
            transaction.put(number.to_bytes(8, "big"), bytes(100))
        times.append((time.perf_counter() - started) * 1e3)
    pipe.send(statistics.median(times))


CASES = [Case(1), Case(64), Case(1_024), Case(64, operations=64), Case(1_024, operations=64)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.log", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured time per case (default 4)")
    parser.add_argument("--missed", type=int, default=100_000, help="messages to catch up with (default 100,000)")
    parser.add_argument("--data", type=Path, help="where the disks are (default: where temporary files are)")
    parser.add_argument("--json", action="store_true", help="one JSON object per case instead of tables")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corelkv-bench-", dir=options.data) as name:
        directory = Path(name)
        sync_ms = concurrent_sync_ms(directory)
        print(f"LMDB commit with sync, three processes at once, p50: {sync_ms:.2f} ms\n")
        print(_HEADER + "\n" + "|---" * 9 + "|")
        for case in CASES:
            result = measure(case, options.seconds, directory)
            if options.json:
                print(json.dumps({"sync_ms": sync_ms, **asdict(case), **asdict(result)}), flush=True)
            else:
                print(
                    f"| {case.outstanding:,} | {case.operations} | {result.messages_per_second:,.0f} "
                    f"| {result.operations_per_second:,.0f} | {result.p50_ms:.2f} | {result.p99_ms:.2f} "
                    f"| {result.p50_ms / sync_ms:.1f} | {result.syncs_per_second:,.0f} "
                    f"| {result.cpu_us_per_message:.0f} |",
                    flush=True,
                )
        rate, pause = catch_up_per_second(options.missed, directory)
        print(f"\nA node that missed {options.missed:,} messages catches up at {rate:,.0f} messages/s; ", end="")
        print(f"from its start to a primary component of all: {pause:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
