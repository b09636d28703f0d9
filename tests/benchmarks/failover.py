"""How long writes stop when a node fails: three nodes on this machine, of which one is killed, stopped or cut off.

    python -m tests.benchmarks.failover --repetitions 10
    python -m tests.benchmarks.failover --quiet-seconds 180 --hogs 8

Clients of the two other nodes write all the time. The time of one failure is from the failure to the first green
write that followed the longest gap: writes which the failed node had acknowledged before may still become green.
With `--quiet-seconds` nothing fails, and every suspicion that the journals tell of is a false one; `--hogs`
processes keep the cores busy meanwhile. Prints Markdown for `docs/performance.md`."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

NAMES = "abc"
VICTIM = "c"
HTTP_PORT = 18_631
UDP_PORT = 7_461
FAILURES = ("kill -9", "SIGSTOP", "cut")
WATCHED_SECONDS = 1.5
"""How long after a failure a gap is looked for."""
_READY_SECONDS = 60.0
_CALM_SECONDS = 2.5
"""Between two failures: a node that fails soon after it has joined has to back off, which is not measured here."""


class Nodes:
    """Three processes, one of which may be ended and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, is_new: bool = False) -> None:
        command = [sys.executable, "-m", "kvstore", "serve", "--node", name, "--roster", ",".join(NAMES)]
        command += ["--data", str(self.directory / name), "--http", f"127.0.0.1:{_port(name)}", "--chaos"]
        command += ["--broadcast", f"127.255.255.255:{UDP_PORT}", "--cluster", f"failover-{os.getpid()}"]
        command += ["--log-level", "error", *(["--bootstrap"] if is_new else [])]
        self.processes[name] = subprocess.Popen(command)

    def fail(self, failure: str) -> None:
        if failure == "cut":
            others = [name for name in NAMES if name != VICTIM]
            cut = json.dumps({"drop_from": others, "drop_to": others}).encode()
            _call("PUT", f"{_url(VICTIM)}/v1/chaos", cut)
        else:
            self.processes[VICTIM].send_signal(signal.SIGKILL if failure == "kill -9" else signal.SIGSTOP)

    def repair(self, failure: str) -> None:
        if failure == "cut":
            _call("DELETE", f"{_url(VICTIM)}/v1/chaos")
        elif failure == "SIGSTOP":
            self.processes[VICTIM].send_signal(signal.SIGCONT)
        else:
            self.processes[VICTIM].wait()
            self.start(VICTIM)
        self.wait_whole()

    def wait_whole(self) -> None:
        """Waits until all nodes are in one primary component."""
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if all(_is_whole(name) for name in NAMES):
                    return
            time.sleep(0.05)
        raise SystemExit("gave up waiting until all nodes are in one primary component")

    def suspicions(self) -> list[dict[str, Any]]:
        """What the journals of all nodes say of machines that were suspected."""
        lines = [
            line for file in sorted(self.directory.glob("*/journal/*")) for line in file.read_text().splitlines()
        ]
        return [entry for entry in map(json.loads, lines) if entry.get("event") == "suspected"]

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Clients:
    """A thread for each node but the victim, which writes, one write after the other, and notes when each was
    green."""

    def __init__(self) -> None:
        self.green_at: list[float] = []
        self._is_over = False
        self._threads = [
            threading.Thread(target=self._write, args=(n,), daemon=True) for n in NAMES if n != VICTIM
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join(10.0)

    def _write(self, name: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", _port(name), timeout=10.0)
        while not self._is_over:
            try:
                connection.request("PUT", f"/v1/kv/{name}?ack=green", b"x" * 100)
                response = connection.getresponse()
                response.read()
                is_green = response.status == 200
            except OSError:
                connection.close()
                is_green = False
            if is_green:
                self.green_at.append(time.monotonic())
            time.sleep(0.002)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="failover-") as directory, _running(Path(directory)) as nodes:
        if options.quiet_seconds:
            return _count_false_suspicions(nodes, options.quiet_seconds, options.hogs)
        print("| failure | times | median s | longest s | all |\n|---|---|---|---|---|")
        for failure in options.only or FAILURES:
            took = [_failover(nodes, failure) for _ in range(options.repetitions)]
            every = " ".join(f"{seconds:.3f}" for seconds in sorted(took))
            print(f"| {failure} | {len(took)} | {median(took):.3f} | {max(took):.3f} | {every} |", flush=True)
    return 0


@contextlib.contextmanager
def _running(directory: Path) -> Iterator[Nodes]:
    nodes = Nodes(directory)
    try:
        for name in NAMES:
            nodes.start(name, is_new=True)
        nodes.wait_whole()
        yield nodes
    finally:
        nodes.end()


def _failover(nodes: Nodes, failure: str) -> float:
    """Returns how many seconds passed from a failure to the end of the gap in green writes that it caused."""
    time.sleep(_CALM_SECONDS)
    clients = Clients()
    time.sleep(0.5)
    nodes.fail(failure)
    failed_at = time.monotonic()
    time.sleep(WATCHED_SECONDS)
    clients.close()
    nodes.repair(failure)
    times = sorted(at for at in clients.green_at if at > failed_at - 0.2)
    gaps = [(later - at, later) for at, later in pairwise(times) if later > failed_at]
    if not gaps:
        raise SystemExit(f"no write was green within {WATCHED_SECONDS} s of {failure}")
    return max(gaps)[1] - failed_at


def _count_false_suspicions(nodes: Nodes, seconds: float, hogs: int) -> int:
    time.sleep(_CALM_SECONDS)
    before = len(nodes.suspicions())
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(hogs)]
    clients = Clients()
    try:
        time.sleep(seconds)
    finally:
        for process in burning:
            process.kill()
            process.wait()
        clients.close()
    load = os.getloadavg()[0]
    time.sleep(_CALM_SECONDS)  # the journals are written by threads
    false = nodes.suspicions()[before:]
    writes = len(clients.green_at)
    print(
        f"{len(false)} false suspicions in {seconds:.0f} s with {hogs} hogs (load {load:.1f}), {writes:,} writes"
    )
    for entry in false:
        print(json.dumps(entry))
    return 1 if false else 0


def _port(name: str) -> int:
    return HTTP_PORT + NAMES.index(name)


def _url(name: str) -> str:
    return f"http://127.0.0.1:{_port(name)}"


def _is_whole(name: str) -> bool:
    status = json.loads(_call("GET", f"{_url(name)}/v1/status"))
    return bool(status["primary"]) and len(status["view"]["members"]) == len(NAMES)


def _call(method: str, url: str, body: bytes | None = None) -> bytes:
    with urlopen(Request(url, body, method=method), timeout=5.0) as response:
        answer: bytes = response.read()
    return answer


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.failover", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=10, help="of each failure (default 10)")
    parser.add_argument("--only", action="append", choices=FAILURES, help="only this failure (repeatable)")
    parser.add_argument("--quiet-seconds", type=float, default=0.0, help="count false suspicions for so long")
    parser.add_argument("--hogs", type=int, default=0, help="processes that only use the CPU meanwhile")
    return parser


if __name__ == "__main__":
    sys.exit(main())
