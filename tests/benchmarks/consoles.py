"""What open consoles cost: PUT/s with none and with ten, in turn; and the CPU that many streams take from a node
with a little to do, which can be told more exactly.

    python -m tests.benchmarks.consoles

Three nodes on this machine; a console holds a stream of every node's status, as the page does, and reads what
comes. Needs wrk. Prints Markdown for `docs/performance.md`."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from tests.benchmarks.store import NodesUnderLoad

CONNECTIONS = 63
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
    def put() -> float:
        return nodes.measure("put", CONNECTIONS, options.seconds).requests_per_second

    without: list[float] = []
    beside: list[float] = []
    for number in range(options.rounds):
        for with_consoles in (number % 2 == 0, number % 2 == 1):  # the machine's speed drifts
            with _open_consoles(nodes.ports, options.consoles if with_consoles else 0):
                (beside if with_consoles else without).append(put())
    ratios = sorted(one / other for one, other in zip(beside, without, strict=True))
    idle, watched = (_cpu_share(nodes, streams, options.seconds) for streams in (0, STREAMS))
    print(
        f"| consoles | PUT/s without | with | ratio, median | least to most | CPU: {STREAMS} streams of a node |"
    )
    print("|---|---|---|---|---|---|")
    rates = f"{statistics.median(without):,.0f} | {statistics.median(beside):,.0f}"
    spread = f"{statistics.median(ratios):.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f}"
    print(f"| {options.consoles} | {rates} | {spread} | {idle:.1%} without, {watched:.1%} with |")


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
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=5)
    return parser


if __name__ == "__main__":
    sys.exit(main())
