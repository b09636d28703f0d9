"""Two or more trees of corelkv in turn: a cluster of three nodes of each runs all the time, and wrk measures them
one after the other, round by round, so that a slow minute of the machine slows all of them.

    git worktree add /tmp/before HEAD~1
    python -m tests.benchmarks.compare /tmp/before . --only put --connections 63 --rounds 8

For each case it prints the medians of requests/s and of the nodes' CPU time per request, and the medians of the
rounds' ratios to the first tree. CPU time says more on a machine where rates swing from hour to hour.
`--serve` gives the nodes of the last tree more arguments, to measure what a setting costs: name one tree twice.
`--scrape` reads `/metrics` of the nodes of the last tree every second. `--export N` exports the log of a node of
the last tree over and over while that tree is measured, at niceness N."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from tests.benchmarks.store import NodesUnderLoad

_OPERATIONS = ("put", "get", "linearizable", "txn")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-compare-")))
        clusters = []
        for place, tree in enumerate(options.trees):
            is_last = place == len(options.trees) - 1
            more = shlex.split(options.serve) if is_last else []
            clusters.append(NodesUnderLoad(directory / str(place), place, Path(tree).resolve(), more))
        for cluster in clusters:
            stack.enter_context(cluster.running())
            cluster.fill()
        if options.scrape:
            stack.enter_context(scraped(clusters[-1]))
        print(f"| case | connections | measure | {' | '.join(map(str, options.trees))} | ratios |")
        print("|---|---|---|" + "---|" * len(clusters) + "---|")
        disturbed = {} if options.export is None else {len(clusters) - 1: partial(exported, options.export)}
        for op in options.only or ["put"]:
            for connections in options.connections or (1, 63, 255):
                _compare(clusters, op, connections, options.rounds, options.seconds, disturbed)
    return 0


@contextmanager
def scraped(cluster: NodesUnderLoad) -> Iterator[None]:
    """Reads the metrics of all nodes every second, as Prometheus does."""
    is_over = threading.Event()

    def scrape() -> None:
        while not is_over.wait(1.0):
            for port in cluster.ports:
                with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10.0) as response:
                    response.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def exported(niceness: int, cluster: NodesUnderLoad) -> Iterator[None]:
    """Exports the log of a node, from its beginning, again and again."""
    is_over = threading.Event()
    times = 0

    def export() -> None:
        nonlocal times
        while not is_over.is_set():
            with tempfile.TemporaryDirectory(prefix="bench-export-") as out:
                command = ["nice", "-n", str(niceness), sys.executable, "-m", "kvstore", "export"]
                process = subprocess.Popen(
                    [*command, str(cluster.data("a")), "--out", out],
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
                while process.poll() is None and not is_over.wait(0.05):
                    pass
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                times += process.wait() == 0

    thread = threading.Thread(target=export)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        print(f"exported {times} times", file=sys.stderr)


Disturbance = Callable[[NodesUnderLoad], AbstractContextManager[None]]


def _compare(
    clusters: Sequence[NodesUnderLoad],
    op: str,
    connections: int,
    rounds: int,
    seconds: int,
    disturbed: Mapping[int, Disturbance],
) -> None:
    rates: list[list[float]] = [[] for _ in clusters]
    cpu_us: list[list[float]] = [[] for _ in clusters]
    for number in range(rounds):
        order = range(len(clusters)) if number % 2 == 0 else reversed(range(len(clusters)))
        for place in order:
            cluster = clusters[place]
            with disturbed[place](cluster) if place in disturbed else nullcontext():
                cpu_before = cluster.cpu_seconds()
                rate = cluster.measure(op, connections, seconds).requests_per_second
                cpu = cluster.cpu_seconds() - cpu_before
            rates[place].append(rate)
            cpu_us[place].append(cpu / (rate * seconds) * 1e6)
    for name, unit, values in (("requests/s", ",.0f", rates), ("CPU µs/request", ",.1f", cpu_us)):
        medians = " | ".join(format(statistics.median(each), unit) for each in values)
        ratios = ", ".join(_ratio(values[0], each) for each in values[1:])
        print(f"| {op} | {connections} | {name} | {medians} | {ratios} |", flush=True)


def _ratio(first: Sequence[float], other: Sequence[float]) -> str:
    of_rounds = sorted(b / a for a, b in zip(first, other, strict=True))
    return f"{statistics.median(of_rounds):.2f} ({of_rounds[0]:.2f} to {of_rounds[-1]:.2f})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.compare", description=__doc__)
    parser.add_argument("trees", nargs="+", help="folders; the first is what the others are compared with")
    parser.add_argument("--seconds", type=int, default=3, help="of each measurement (default 3)")
    parser.add_argument("--rounds", type=int, default=6, help="measurements of each tree and case (default 6)")
    parser.add_argument("--connections", type=int, action="append", help="only so many (repeatable)")
    parser.add_argument("--only", action="append", choices=_OPERATIONS, help="only this (repeatable; default put)")
    parser.add_argument("--serve", default="", help="more arguments for `corelkv serve` of the last tree")
    parser.add_argument("--export", type=int, metavar="NICENESS", help="export the last tree's log meanwhile")
    parser.add_argument("--scrape", action="store_true", help="read the last tree's metrics every second")
    return parser


if __name__ == "__main__":
    sys.exit(main())
