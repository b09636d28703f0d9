"""What being watched costs: PUT/s and CPU time with nobody there, and with ten open consoles and `/metrics` of
every node read each second, in turn; and the CPU that many streams take from a node with a little to do.

    python -m tests.benchmarks.consoles

Three nodes on this machine; a console holds a stream of every node's status, as the page does, and reads what
comes. Needs wrk. Prints Markdown for `docs/performance.md`. The interval beside a median holds the median of all
possible rounds with a probability of 95 % (from the ranks of the rounds, whatever their distribution)."""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from tests.benchmarks.compare import scraped
from tests.benchmarks.store import NodesUnderLoad

STREAMS = 60
"""For the CPU: as many as a node allows, or nearly."""
_REQUEST = b"GET /v1/status/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-consoles-") as directory:
        nodes = NodesUnderLoad(Path(directory), place=6)
        with nodes.running():
            nodes.fill()
            _measure(nodes, options)
    return 0


def _measure(nodes: NodesUnderLoad, options: argparse.Namespace) -> None:
    rates: dict[bool, list[float]] = {False: [], True: []}
    cpu_us: dict[bool, list[float]] = {False: [], True: []}
    for number in range(options.rounds):
        for is_watched in (number % 2 == 0, number % 2 == 1):  # the machine's speed drifts
            with _open_consoles(nodes.ports, options.consoles if is_watched else 0), ExitStack() as stack:
                if is_watched:
                    stack.enter_context(scraped(nodes))
                cpu_before = nodes.cpu_seconds()
                rate = nodes.measure("put", options.connections, options.seconds).requests_per_second
                rates[is_watched].append(rate)
                cpu_us[is_watched].append((nodes.cpu_seconds() - cpu_before) / (rate * options.seconds) * 1e6)
    print(f"{options.connections} connections, {options.rounds} rounds of {options.seconds} s\n")
    print("| measure | nobody watches | consoles and scrapes | ratio, median | 95 % interval | least to most |")
    print("|---|---|---|---|---|---|")
    for name, unit, values in (("PUT/s", ",.0f", rates), ("CPU µs/PUT", ",.1f", cpu_us)):
        ratios = sorted(one / other for one, other in zip(values[True], values[False], strict=True))
        low, high = _interval_of_median(ratios)
        medians = " | ".join(format(statistics.median(values[is_watched]), unit) for is_watched in (False, True))
        spread = f"{low:.3f} to {high:.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f}"
        print(f"| {name} | {medians} | {statistics.median(ratios):.3f} | {spread} |", flush=True)
    idle, watched = (_cpu_share(nodes, streams, options.seconds) for streams in (0, STREAMS))
    print(f"\n{STREAMS} streams of one node: the nodes took {idle:.1%} of a core without, {watched:.1%} with them")


def _interval_of_median(ordered: Sequence[float]) -> tuple[float, float]:
    """Returns two of the values, between which the true median lies with a probability of at least 95 %."""
    count = len(ordered)
    outside, rank = 0.0, 0
    while True:
        outside += 2.0 * math.comb(count, rank) / 2.0**count
        if outside > 0.05 or rank >= count // 2:
            break
        rank += 1
    rank = max(rank - 1, 0)
    return ordered[rank], ordered[count - 1 - rank]


def _cpu_share(nodes: NodesUnderLoad, streams: int, seconds: int) -> float:
    """Returns the share of a core that the nodes take while a little is written, so that every tick has news, and
    so many streams of one node are open."""
    with _open_consoles(nodes.ports[:1], streams):
        time.sleep(2.0)
        before, began = nodes.cpu_seconds(), time.monotonic()
        while time.monotonic() - began < 2 * seconds:
            urlopen(Request(f"{nodes.url('a')}/v1/kv/slow", b"x", method="PUT")).close()
            time.sleep(0.05)
        return (nodes.cpu_seconds() - before) / (time.monotonic() - began)


class _Reading:
    """Streams that are read in a thread."""

    def __init__(self, ports: Sequence[int], consoles: int) -> None:
        self._ports = [port for port in ports for _ in range(consoles)]
        self.is_open = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    def start(self) -> None:
        self._thread.start()
        if not self.is_open.wait(10.0):
            raise SystemExit("the streams cannot be opened")

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        opened = [await asyncio.open_connection("127.0.0.1", port) for port in self._ports]
        for _, writer in opened:
            writer.write(_REQUEST)
        tasks = [asyncio.create_task(self._read(reader)) for reader, _ in opened]
        self.is_open.set()
        await self._stop.wait()
        for task in tasks:
            task.cancel()
        for _, writer in opened:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(65_536):
            pass


@contextmanager
def _open_consoles(ports: Sequence[int], consoles: int) -> Iterator[None]:
    reading = _Reading(ports, consoles)
    reading.start()
    try:
        yield
    finally:
        reading.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.consoles", description=__doc__)
    parser.add_argument("--consoles", type=int, default=10)
    parser.add_argument("--connections", type=int, default=63)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=5)
    return parser


if __name__ == "__main__":
    sys.exit(main())
