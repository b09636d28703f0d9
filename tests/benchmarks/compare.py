"""Two or more trees of corelkv in turn: a cluster of three nodes of each runs all the time, and wrk measures them
one after the other, round by round, so that a slow minute of the machine slows all of them.

    git worktree add /tmp/before HEAD~1
    python -m tests.benchmarks.compare /tmp/before . --only put --connections 63 --rounds 8

For each case it prints the medians of requests/s and of the nodes' CPU time per request, and the medians of the
rounds' ratios to the first tree. CPU time says more on a machine where rates swing from hour to hour.
`--serve` gives the nodes of the last tree more arguments, to measure what a setting costs: name one tree twice.
`--scrape` reads `/metrics` of the nodes of the last tree every second."""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
        for op in options.only or ["put"]:
            for connections in options.connections or (1, 63, 255):
                _compare(clusters, op, connections, options.rounds, options.seconds)
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


def _compare(clusters: Sequence[NodesUnderLoad], op: str, connections: int, rounds: int, seconds: int) -> None:
    rates: list[list[float]] = [[] for _ in clusters]
    cpu_us: list[list[float]] = [[] for _ in clusters]
    for number in range(rounds):
        order = range(len(clusters)) if number % 2 == 0 else reversed(range(len(clusters)))
        for place in order:
            cpu_before = clusters[place].cpu_seconds()
            rate = clusters[place].measure(op, connections, seconds).requests_per_second
            cpu = clusters[place].cpu_seconds() - cpu_before
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
    parser.add_argument("--scrape", action="store_true", help="read the last tree's metrics every second")
    return parser


if __name__ == "__main__":
    sys.exit(main())
