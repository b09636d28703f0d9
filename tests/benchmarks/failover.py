"""How long writes stop when one of three processes fails, beside etcd, and how often a node is suspected wrongly.

    python -m tests.benchmarks.failover --repetitions 20
    python -m tests.benchmarks.failover --soak 30 --load 8

Clients of the two other processes write all the time. The gap of a failure is the longest time without a success
(for us: a green write) of any of them that ends after the failure. A client gives up after a quarter of a second
and tries again: etcd lets a write that was under way when its leader died wait for seven seconds, and accepts new
ones much sooner. Our nodes are killed, stopped, and cut off by their chaos layer, which drops datagrams both ways;
for etcd it matters who leads. etcd is measured if it is installed, with its default timeouts.

With `--soak` nothing fails for so many minutes while `--load` processes keep the cores busy, and every suspicion
in the nodes' journals is a false one. Prints Markdown for `docs/performance.md`."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TypeVar

from tests.benchmarks.failing_clusters import Corelkv, Etcd, FailingCluster, Write

AnyCluster = TypeVar("AnyCluster", bound=FailingCluster)

CLIENTS_PER_PORT = 4
GIVE_UP_SECONDS = 0.25
WATCHED_SECONDS = 2.0
"""How long after a failure the end of a gap is waited for, at least."""
WATCHED_SECONDS_MAX = 20.0
_CALM_SECONDS = 2.5
"""Between two failures: a node that fails soon after it has joined has to back off, which is not measured here."""
_LOOK_SECONDS = 10.0
"""How often the journals are read in a soak: they are rotated."""


class Clients:
    """Threads that write to the given ports, one write after the other, and note when each succeeded."""

    def __init__(self, writes: list[tuple[int, Write]]) -> None:
        self.succeeded_at: list[float] = []
        self._is_over = False
        self._threads = [
            threading.Thread(target=self._run, args=each, daemon=True) for each in writes * CLIENTS_PER_PORT
        ]
        for thread in self._threads:
            thread.start()
            time.sleep(GIVE_UP_SECONDS / len(self._threads))  # so that they do not all give up at once

    def close(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join(10.0)

    def _run(self, port: int, write: Write) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVE_UP_SECONDS)
        while not self._is_over:
            try:
                has_succeeded = write(connection)
            except (OSError, http.client.HTTPException):
                connection.close()
                has_succeeded = False
            if has_succeeded:
                self.succeeded_at.append(time.monotonic())
            time.sleep(0.005)
        connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="failover-") as name:
        directory = Path(name)
        if options.soak:
            with _running(Corelkv(directory)) as nodes:
                return _soak(nodes, options.soak * 60.0, options.load)
        clusters: list[FailingCluster] = [Corelkv(directory)]
        if shutil.which("etcd") is not None and not options.alone:
            clusters.append(Etcd(directory))
        elif not options.alone:
            print("etcd is not measured (apt-get install etcd-server)", file=sys.stderr)
        print("| cluster | failure | times | median s | longest s | all | load average |")
        print("|---|---|---|---|---|---|---|")
        for cluster in clusters:
            with _running(cluster):
                for failure in cluster.failures:
                    _measure(cluster, failure, options.repetitions)
    return 0


@contextlib.contextmanager
def _running(cluster: AnyCluster) -> Iterator[AnyCluster]:
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def _measure(cluster: FailingCluster, failure: str, repetitions: int) -> None:
    gaps = [_gap(cluster, failure) for _ in range(repetitions)]
    every = " ".join(f"{gap:.3f}" for gap in sorted(gaps))
    figures = f"{len(gaps)} | {median(gaps):.3f} | {max(gaps):.3f} | {every} | {os.getloadavg()[0]:.1f}"
    print(f"| {cluster.name} | {failure} | {figures} |", flush=True)


def _gap(cluster: FailingCluster, failure: str) -> float:
    """Returns for how many seconds no write succeeded because of a failure."""
    time.sleep(_CALM_SECONDS)
    clients = Clients(cluster.prepare(failure))
    time.sleep(0.5)
    failed_at = time.monotonic()
    cluster.fail(failure)
    end = failed_at + WATCHED_SECONDS_MAX
    while time.monotonic() < end:
        time.sleep(WATCHED_SECONDS)
        if clients.succeeded_at and time.monotonic() - clients.succeeded_at[-1] < WATCHED_SECONDS / 2.0:
            break
    clients.close()
    cluster.repair(failure)
    gaps = [later - at for at, later in pairwise(sorted(clients.succeeded_at)) if later > failed_at]
    if not gaps:
        raise SystemExit(f"{cluster.name}: no write succeeded within {WATCHED_SECONDS_MAX} s of {failure}")
    return max(gaps)


def _soak(nodes: Corelkv, seconds: float, load: int) -> int:
    time.sleep(_CALM_SECONDS)
    before = nodes.journaled("suspected")
    suspected, probed, loads = set[str](), set[str](), []
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    clients = Clients(nodes.prepare(""))
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0.0:
            time.sleep(min(_LOOK_SECONDS, left))
            suspected |= nodes.journaled("suspected") - before
            probed |= nodes.journaled("probed")
            loads.append(os.getloadavg()[0])
    finally:
        for process in busy:
            process.kill()
            process.wait()
        clients.close()
    gaps = [later - at for at, later in pairwise(sorted(clients.succeeded_at))]
    causes = Counter(json.loads(line)["reason"] for line in suspected)
    print(
        f"{len(suspected)} false suspicions {dict(causes) or ''} in {seconds / 60.0:.1f} min with {load} busy "
        f"processes: load average {median(loads):.1f} (max {max(loads):.1f}), {len(probed)} probes, "
        f"{len(clients.succeeded_at):,} green writes, longest gap {max(gaps):.3f} s"
    )
    for line in sorted(suspected):
        print(line)
    return 1 if suspected else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repetitions", type=int, default=10, help="of each failure (default 10)")
    parser.add_argument("--alone", action="store_true", help="without etcd")
    parser.add_argument(
        "--soak", type=float, default=0.0, metavar="MINUTES", help="count false suspicions instead"
    )
    parser.add_argument("--load", type=int, default=8, help="busy processes in a soak (default 8)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
