"""What it costs the others that one of three nodes comes back with an empty disk, beside etcd's new member.

    python -m tests.benchmarks.joining --keys 1000000

Both clusters are filled with as many keys of 100 bytes. Then wrk writes to the two nodes that stay, as fast as
they take it, and the third is killed, loses its disk, and is started again (etcd's is removed and added as a new
member). The gap is the longest time in which the number of writes of the node that is asked did not grow, from the
moment the empty node is started. Needs wrk; measures etcd too if it is installed. Prints Markdown for
`docs/performance.md`."""

from __future__ import annotations

import argparse
import base64
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.benchmarks.failing_clusters import ETCD_PORT, HTTP_PORT, Corelkv, Etcd, call, wait_until
from tests.benchmarks.store import SCRIPT

_SAMPLE_SECONDS = 0.005
_BEFORE_SECONDS = 10.0
_AFTER_SECONDS = 3.0
_JOIN_SECONDS_MAX = 600.0
_FILLING_THREADS = 4
_VALUE = "x" * 100


class Growing(Protocol):
    """A cluster whose third node can be replaced."""

    name: str
    put: str
    """What wrk is told to do."""

    def start(self) -> None: ...

    def fill(self, first: int, count: int) -> None:
        """Puts so many keys in one transaction."""

    def ports(self) -> list[int]:
        """Returns the ports of the nodes that stay."""

    def kill(self) -> None:
        """Kills the third node, and removes its disk."""

    def replace(self) -> None:
        """Starts it again."""

    def writes(self) -> int:
        """Returns how many writes the first node has made final."""

    def has_joined(self) -> bool: ...

    def close(self) -> None: ...


class GrowingCorelkv(Corelkv):
    put = "put"
    keys_at_once = 1_000

    def _start(self, name: str, *options: str) -> None:
        urls = ",".join(f"{other}=http://127.0.0.1:{self._port(other)}" for other in self.names)
        super()._start(name, "--urls", urls, *options)

    def fill(self, first: int, count: int) -> None:
        puts = [{"put": {"key": f"filled/{first + n:09}", "value": _VALUE}} for n in range(count)]
        call("POST", self._port("a"), "/v1/txn?timeout_ms=60000", json.dumps({"then": puts}).encode())

    def ports(self) -> list[int]:
        return [self._port("a"), self._port("b")]

    def kill(self) -> None:
        self.fail("kill -9")
        shutil.rmtree(self.directory / self.victim)

    def replace(self) -> None:
        self._start(self.victim)

    def writes(self) -> int:
        return int(json.loads(call("GET", HTTP_PORT, "/v1/status"))["green"]["revision"])

    def has_joined(self) -> bool:
        status = json.loads(call("GET", self._port(self.victim), "/v1/status"))
        return bool(status["primary"] and status["voter"]) and len(status["view"]["members"]) == len(self.names)


class GrowingEtcd(Etcd):
    put = "etcd-put"
    keys_at_once = 100
    last = 2

    def fill(self, first: int, count: int) -> None:
        value = base64.b64encode(_VALUE.encode()).decode()
        keys = [base64.b64encode(b"filled/%09d" % (first + n)).decode() for n in range(count)]
        puts = [{"requestPut": {"key": key, "value": value}} for key in keys]
        call("POST", ETCD_PORT, "/v3/kv/txn", json.dumps({"success": puts}).encode())

    def ports(self) -> list[int]:
        return [ETCD_PORT, ETCD_PORT + 1]

    def kill(self) -> None:
        self._victim = self.last
        self.fail("kill -9")
        shutil.rmtree(self.directory / f"etcd-{self.last}")
        members = json.loads(call("POST", ETCD_PORT, "/v3/cluster/member/list", b"{}"))["members"]
        (gone,) = [member["ID"] for member in members if member.get("name") == f"n{self.last}"]
        call("POST", ETCD_PORT, "/v3/cluster/member/remove", json.dumps({"ID": gone}).encode())

    def replace(self) -> None:
        peer = f"http://127.0.0.1:{ETCD_PORT + 10 + self.last}"
        call("POST", ETCD_PORT, "/v3/cluster/member/add", json.dumps({"peerURLs": [peer]}).encode())
        self._start(self.last, "existing")

    def writes(self) -> int:
        return int(self._status(0)["header"]["revision"])

    def has_joined(self) -> bool:
        theirs, ours = (int(self._status(place)["raftAppliedIndex"]) for place in (0, self.last))
        return self._is_healthy(self.last) and ours + 1_000 >= theirs


class Joined(NamedTuple):
    before_per_second: float
    during_per_second: float
    gap_seconds: float
    join_seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if shutil.which("wrk") is None:
        print("wrk is not installed: apt-get install wrk", file=sys.stderr)
        return 2
    kinds: list[type[GrowingCorelkv] | type[GrowingEtcd]] = [GrowingCorelkv]
    if shutil.which("etcd") is not None and not options.alone:
        kinds.append(GrowingEtcd)
    print("| cluster | keys | PUT/s before | meanwhile | ratio | gap s | until it votes s |")
    print("|---|---|---|---|---|---|---|")
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="bench-joining-") as directory:
            cluster = kind(Path(directory))
            try:
                cluster.start()
                _fill(cluster, options.keys)
                for _ in range(options.repetitions):
                    _print(cluster, options.keys, _measure(cluster, options.connections))
            finally:
                cluster.close()
    return 0


def _fill(cluster: GrowingCorelkv | GrowingEtcd, keys: int) -> None:
    at_once = cluster.keys_at_once
    with ThreadPoolExecutor(_FILLING_THREADS) as pool:
        for _ in pool.map(lambda first: cluster.fill(first, min(at_once, keys - first)), range(0, keys, at_once)):
            pass


def _measure(cluster: Growing, connections: int) -> Joined:
    samples = Samples(cluster)
    with _load(cluster, connections):
        time.sleep(2.0)
        began = time.monotonic()
        time.sleep(_BEFORE_SECONDS)
        ended = time.monotonic()
        cluster.kill()
        time.sleep(2.0)  # the others have gone on without it
        started = time.monotonic()
        cluster.replace()
        wait_until(cluster.has_joined, "the empty node has joined", _JOIN_SECONDS_MAX)
        joined = time.monotonic()
        time.sleep(_AFTER_SECONDS)
        samples.close()
    return Joined(
        samples.rate(began, ended),
        samples.rate(started, joined),
        samples.longest_gap(started, joined + _AFTER_SECONDS),
        joined - started,
    )


def _print(cluster: Growing, keys: int, found: Joined) -> None:
    before, during = found.before_per_second, found.during_per_second
    rates = f"{before:,.0f} | {during:,.0f} | {during / before:.2f}"
    print(
        f"| {cluster.name} | {keys:,} | {rates} | {found.gap_seconds:.2f} | {found.join_seconds:.1f} |", flush=True
    )


class Samples:
    """How many writes there were, again and again, in a thread."""

    def __init__(self, cluster: Growing) -> None:
        self._cluster = cluster
        self._taken: list[tuple[float, int]] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over = True
        self._thread.join(10.0)

    def rate(self, begin: float, end: float) -> float:
        taken = self._between(begin, end)
        return (taken[-1][1] - taken[0][1]) / (taken[-1][0] - taken[0][0])

    def longest_gap(self, begin: float, end: float) -> float:
        """Returns the longest time in which the number did not grow."""
        grown = [taken[0] for last, taken in pairwise(self._between(begin, end)) if taken[1] > last[1]]
        return max((after - before for before, after in pairwise(grown)), default=end - begin)

    def _between(self, begin: float, end: float) -> list[tuple[float, int]]:
        return [taken for taken in self._taken if begin <= taken[0] <= end]

    def _run(self) -> None:
        while not self._is_over:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._taken.append((time.monotonic(), self._cluster.writes()))
            time.sleep(_SAMPLE_SECONDS)


@contextlib.contextmanager
def _load(cluster: Growing, connections: int) -> Iterator[None]:
    """Has wrk write to the nodes that stay."""
    ports = cluster.ports()
    command = [
        "wrk",
        f"-t{len(ports)}",
        f"-c{connections}",
        f"-d{int(_JOIN_SECONDS_MAX) + 60}s",
        "--timeout",
        "10s",
    ]
    environment = {**os.environ, "OP": cluster.put, "PORTS": ",".join(map(str, ports))}
    wrk = subprocess.Popen(
        [*command, "-s", str(SCRIPT), f"http://127.0.0.1:{ports[0]}"], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        wrk.terminate()
        wrk.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=62)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without etcd")
    return parser


if __name__ == "__main__":
    sys.exit(main())
