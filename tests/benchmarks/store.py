"""The store over HTTP: three nodes on this machine, wrk spread over them, beside etcd's REST gateway in the same
run.

    python -m tests.benchmarks.store

Needs wrk; measures etcd too if it is installed (`apt-get install wrk etcd-server`). Both clusters run all the time
and are measured in turn, case by case, so that a slow minute of the machine slows both. Prints Markdown for
`docs/performance.md`."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

SCRIPT = Path(__file__).with_name("requests.lua")
TREE = Path(__file__).parents[2]
NAMES = "abc"
HTTP_PORT = 18_601
UDP_PORT = 7_457
ETCD_PORT = 23_791
CONNECTIONS = (1, 15, 63, 255)
TXN_OPERATIONS_AIM = 30_000
_READY_SECONDS = 60.0


class Case(NamedTuple):
    """One row of the report, and the operations of ours and of etcd that it measures."""

    name: str
    op: str
    etcd_op: str | None
    connections: int
    operations: int = 1
    """How many operations each request has."""


class Result(NamedTuple):
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    errors: int


class Aim(NamedTuple):
    """The ratio of ours to etcd's that must be reached."""

    op: str
    connections: int
    ratio: float
    of_p50: bool = False


AIMS = (
    Aim("put", 63, 1.2),
    Aim("put", 255, 1.2),
    Aim("put", 1, 1.0, of_p50=True),
    Aim("get", 63, 3.0),
    Aim("get", 255, 3.0),
    Aim("linearizable", 63, 1.5),
    Aim("linearizable", 255, 1.5),
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if shutil.which("wrk") is None:
        print("wrk is not installed: apt-get install wrk", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-store-")))
        nodes = NodesUnderLoad(directory)
        stack.enter_context(nodes.running())
        has_etcd = shutil.which("etcd") is not None and not options.alone
        if has_etcd:
            stack.enter_context(etcd_nodes(directory))
        else:
            print("etcd is not measured (apt-get install etcd-server)", file=sys.stderr)
        nodes.fill()
        if has_etcd:
            _measure("etcd-put", 63, etcd_ports(), 6)
        print("| case | connections | ours /s | p50 ms | p99 ms | etcd /s | p50 ms | p99 ms | ratio |")
        print("|---|---|---|---|---|---|---|---|---|")
        results: dict[tuple[str, int], tuple[Result, Result | None]] = {}
        for case in _cases(options.connections or CONNECTIONS):
            if options.only and case.op not in options.only:
                continue
            ours = nodes.measure(case.op, case.connections, options.seconds)
            theirs = None
            if has_etcd and case.etcd_op is not None:
                theirs = _measure(case.etcd_op, case.connections, etcd_ports(), options.seconds)
            results[(case.op, case.connections)] = (ours, theirs)
            print(_row(case, ours, theirs), flush=True)
        if not options.only or "red" in options.only:
            _measure_minority(nodes, options)
        return _verdict(results)


def _cases(connections: Sequence[int]) -> list[Case]:
    cases = [Case("PUT, green", "put", "etcd-put", count) for count in connections]
    cases += [Case("GET, green", "get", "etcd-get", count) for count in connections]
    cases += [Case("GET, linearizable", "linearizable", "etcd-linearizable", count) for count in connections]
    cases += [Case("txn of 100 puts", "txn", "etcd-txn", count, 100) for count in (1, 15, 63)]
    return [*cases, Case("PUT of 1 MiB", "large", None, 3)]


def _measure_minority(nodes: NodesUnderLoad, options: argparse.Namespace) -> None:
    """Measures nodes that hear no other: their writes are red."""
    for name in NAMES:
        others = [other for other in NAMES if other != name]
        _call("PUT", f"{nodes.url(name)}/v1/chaos", json.dumps({"drop_from": others, "drop_to": others}).encode())
    _wait(lambda: all(nodes.status(name)["state"] == "non_primary" for name in NAMES), "every node is alone")
    for count in options.connections or CONNECTIONS:
        ours = nodes.measure("put", count, options.seconds)
        print(_row(Case("PUT, red (every node alone)", "put", None, count), ours, None), flush=True)
    for name in NAMES:
        _call("DELETE", f"{nodes.url(name)}/v1/chaos")
    started = time.monotonic()
    _wait(
        lambda: all(nodes.status(name)["primary"] and not nodes.status(name)["red"] for name in NAMES),
        "all is merged",
    )
    merged = nodes.status("a")["green"]["revision"]
    took = time.monotonic() - started
    print(f"\nHealed: {took:.1f} s later all {merged:,} changes were green in one primary component.")


def _verdict(results: dict[tuple[str, int], tuple[Result, Result | None]]) -> int:
    missed = 0
    print()
    for aim in AIMS:
        ours, theirs = results.get((aim.op, aim.connections), (None, None))
        if ours is None or theirs is None:
            continue
        if aim.of_p50:
            ratio = ours.p50_ms / theirs.p50_ms
            is_reached, sign = ratio <= aim.ratio, "≤"
        else:
            ratio = ours.requests_per_second / theirs.requests_per_second
            is_reached, sign = ratio >= aim.ratio, "≥"
        missed += not is_reached
        what = "p50" if aim.of_p50 else "requests/s"
        verdict = "reached" if is_reached else "MISSED"
        compared = f"{ratio:.2f} times etcd's; aim {sign} {aim.ratio}"
        print(f"- {aim.op} at {aim.connections}, {what}: {compared}: {verdict}")
    txns = [ours.requests_per_second * 100 for (op, _), (ours, _) in results.items() if op == "txn"]
    if txns:
        is_reached = max(txns) >= TXN_OPERATIONS_AIM
        missed += not is_reached
        verdict = "reached" if is_reached else "MISSED"
        print(f"- transactions: {max(txns):,.0f} operations/s; aim ≥ {TXN_OPERATIONS_AIM:,}: {verdict}")
    return 1 if missed else 0


def _row(case: Case, ours: Result, theirs: Result | None) -> str:
    cells = [case.name, str(case.connections), *_cells(ours)]
    if theirs is None:
        cells += ["", "", "", ""]
    else:
        cells += [*_cells(theirs), f"{ours.requests_per_second / theirs.requests_per_second:.2f}"]
    errors = f" ({ours.errors} errors)" if ours.errors else ""
    return f"| {' | '.join(cells)} |{errors}"


def _cells(result: Result) -> list[str]:
    return [f"{result.requests_per_second:,.0f}", f"{result.p50_ms:.2f}", f"{result.p99_ms:.2f}"]


# wrk


def _measure(op: str, connections: int, ports: Sequence[int], seconds: int) -> Result:
    threads = min(connections, len(ports))
    command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "--latency"]
    environment = {**os.environ, "OP": op, "PORTS": ",".join(map(str, ports))}
    run = subprocess.run(
        [*command, "-s", str(SCRIPT), f"http://127.0.0.1:{ports[0]}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return parse_wrk(run.stdout)


def parse_wrk(output: str) -> Result:
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    p50, p99 = (re.search(rf"{share}%\s+([\d.]+)(us|ms|s)", output) for share in (50, 99))
    if rate is None or p50 is None or p99 is None:
        raise ValueError(f"wrk said: {output}")
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    socket_errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    errors = int(bad[1]) if bad else 0
    errors += sum(map(int, socket_errors.groups())) if socket_errors else 0
    return Result(float(rate[1]), _ms(p50), _ms(p99), errors)


def _ms(match: re.Match[str]) -> float:
    return float(match[1]) * {"us": 0.001, "ms": 1.0, "s": 1_000.0}[match[2]]


# Ours


class NodesUnderLoad:
    """Three nodes of the corelkv in a folder (`tree`), which need not be this one. Several clusters of one machine
    differ in their `place`."""

    def __init__(self, directory: Path, place: int = 0, tree: Path = TREE, serve: Sequence[str] = ()) -> None:
        self._directory = directory
        self._place = place
        self._tree = tree
        self._serve = serve
        self._processes: list[subprocess.Popen[bytes]] = []
        self.ports = [HTTP_PORT + 10 * place + index for index in range(len(NAMES))]

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            for name, port in zip(NAMES, self.ports, strict=True):
                command = [sys.executable, "-m", "kvstore", "serve", "--node", name, "--roster", ",".join(NAMES)]
                command += ["--data", str(self.data(name)), "--http", f"127.0.0.1:{port}", "--bootstrap"]
                command += ["--broadcast", f"127.255.255.255:{UDP_PORT + self._place}"]
                command += ["--cluster", f"bench-{os.getpid()}-{self._place}"]
                command += ["--chaos", "--log-level", "warning", "--no-journal", *self._serve]
                self._processes.append(subprocess.Popen(command, cwd=self._tree))
            _wait(lambda: all(self.status(name)["primary"] for name in NAMES), "our nodes are up")
            yield
        finally:
            _end(self._processes)

    def cpu_seconds(self) -> float:
        """CPU time that the nodes have used since they were started, in the kernel too."""
        ticks = 0
        for process in self._processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # utime and stime
        return ticks / os.sysconf("SC_CLK_TCK")

    def process_status(self, name: str) -> Path:
        """Returns the file in which the kernel describes the node's process."""
        return Path(f"/proc/{self._processes[NAMES.index(name)].pid}/status")

    def data(self, name: str) -> Path:
        return self._directory / name

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[NAMES.index(name)]}"

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(_call("GET", f"{self.url(name)}/v1/status"))
        return status

    def has_merged(self, name: str) -> bool:
        status = self.status(name)
        return bool(status["primary"] and not status["red"])

    def fill(self) -> None:
        """Writes the keys that reads ask for, and warms up."""
        value = "x" * 100
        for first in range(0, 10_000, 1_000):
            puts = [{"put": {"key": f"key{number}", "value": value}} for number in range(first, first + 1_000)]
            _call("POST", f"{self.url('a')}/v1/txn", json.dumps({"then": puts}).encode())
        self.measure("put", 63, 2)

    def measure(self, op: str, connections: int, seconds: int) -> Result:
        return _measure(op, connections, self.ports, seconds)


def _call(method: str, url: str, body: bytes | None = None) -> bytes:
    with urlopen(Request(url, body, method=method), timeout=10.0) as response:
        answer: bytes = response.read()
    return answer


def rss_mib(status: Path) -> float:
    """Returns how much memory a process has."""
    [line] = [line for line in status.read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1_024.0


# etcd


@contextmanager
def etcd_nodes(directory: Path) -> Iterator[None]:
    peers = ",".join(f"n{place}=http://127.0.0.1:{ETCD_PORT + 10 + place}" for place in range(3))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for place in range(3):
            client, peer = f"http://127.0.0.1:{ETCD_PORT + place}", f"http://127.0.0.1:{ETCD_PORT + 10 + place}"
            command = ["etcd", "--name", f"n{place}", "--data-dir", str(directory / f"etcd-{place}")]
            command += ["--logger", "zap", "--log-level", "error", "--initial-cluster", peers]
            command += ["--listen-client-urls", client, "--advertise-client-urls", client]
            command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            command += ["--initial-cluster-state", "new", "--quota-backend-bytes", str(8 * 1024**3)]
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        _wait(_etcd_is_healthy, "etcd is up")
        yield
    finally:
        _end(processes)


def etcd_ports() -> list[int]:
    return [ETCD_PORT + place for place in range(3)]


def _etcd_is_healthy() -> bool:
    return all(b'"true"' in _call("GET", f"http://127.0.0.1:{port}/health") for port in etcd_ports())


# Both clusters


def _wait(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + _READY_SECONDS
    while True:
        try:
            if condition():
                return
        except OSError:
            pass  # not yet
        if time.monotonic() > end:
            raise SystemExit(f"gave up waiting until {what}")
        time.sleep(0.1)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.store", description=__doc__)
    parser.add_argument("--seconds", type=int, default=6, help="of each case (default 6)")
    parser.add_argument("--connections", type=int, action="append", help="only so many (repeatable)")
    parser.add_argument("--only", action="append", help="only this op: put, get, linearizable, txn, large, red")
    parser.add_argument("--alone", action="store_true", help="without etcd")
    return parser


if __name__ == "__main__":
    sys.exit(main())
