"""Clusters of three processes on this machine of which one can be made to fail: ours, and etcd's with its default
timeouts."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from urllib.request import Request, urlopen

Write: TypeAlias = Callable[[http.client.HTTPConnection], bool]
"""Makes one write over a connection, and returns whether it succeeded."""

HTTP_PORT = 18_631
UDP_PORT = 7_461
ETCD_PORT = 23_831
_READY_SECONDS = 60.0
_CALL_SECONDS = 60.0


class FailingCluster(Protocol):
    name: str
    failures: Sequence[str]

    def start(self) -> None:
        """Starts all processes and waits until they accept writes."""

    def prepare(self, failure: str) -> list[tuple[int, Write]]:
        """Chooses the process that will fail; returns the ports of the others, and how to write there."""

    def fail(self, failure: str) -> None: ...

    def repair(self, failure: str) -> None:
        """Undoes the failure and waits until all processes are members again."""

    def close(self) -> None: ...


class Processes:
    """Processes by name, which may be stopped."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str]) -> None:
        self._running[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def signal(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)
        if number is signal.SIGKILL:
            self._running[name].wait()

    def close(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Corelkv:
    """Nodes a, b and c, of which c fails."""

    name = "corelkv"
    failures: Sequence[str] = ("kill -9", "SIGSTOP", "cut")
    names = "abc"
    victim = "c"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._processes = Processes()

    def start(self) -> None:
        for name in self.names:
            self._start(name, "--bootstrap")
        self._wait_whole()

    def _start(self, name: str, *options: str) -> None:
        command = [sys.executable, "-m", "kvstore", "serve", "--node", name, "--roster", ",".join(self.names)]
        command += ["--data", str(self.directory / name), "--http", f"127.0.0.1:{self._port(name)}", "--chaos"]
        command += ["--broadcast", f"127.255.255.255:{UDP_PORT}", "--cluster", f"failover-{os.getpid()}", *options]
        self._processes.start(name, command)

    def prepare(self, failure: str) -> list[tuple[int, Write]]:
        return [(self._port(name), self._write) for name in self.names if name != self.victim]

    def fail(self, failure: str) -> None:
        if failure == "cut":
            others = [name for name in self.names if name != self.victim]
            cut = json.dumps({"drop_from": others, "drop_to": others}).encode()
            call("PUT", self._port(self.victim), "/v1/chaos", cut)
        else:
            self._processes.signal(self.victim, _signal_of(failure))

    def repair(self, failure: str) -> None:
        if failure == "cut":
            call("DELETE", self._port(self.victim), "/v1/chaos")
        elif failure == "SIGSTOP":
            self._processes.signal(self.victim, signal.SIGCONT)
        else:
            self._start(self.victim)
        self._wait_whole()

    def close(self) -> None:
        self._processes.close()

    def journaled(self, event: str) -> set[str]:
        """Returns the lines about such an event in the journals of all nodes, as far as the files are kept."""
        lines: set[str] = set()
        for file in sorted(self.directory.glob("*/journal/*")):
            with contextlib.suppress(FileNotFoundError):
                lines.update(line for line in file.read_text().splitlines() if f'"event":"{event}"' in line)
        return lines

    def _wait_whole(self) -> None:
        wait_until(lambda: all(map(self._is_whole, self.names)), "all nodes are in one primary component")

    def _is_whole(self, name: str) -> bool:
        status = json.loads(call("GET", self._port(name), "/v1/status"))
        return bool(status["primary"]) and len(status["view"]["members"]) == len(self.names)

    def _port(self, name: str) -> int:
        return HTTP_PORT + self.names.index(name)

    @staticmethod
    def _write(connection: http.client.HTTPConnection) -> bool:
        connection.request("PUT", f"/v1/kv/{connection.port}?ack=green", b"x" * 100)
        response = connection.getresponse()
        response.read()
        return response.status == 200


class Etcd:
    """Members n0, n1 and n2. Who fails depends on who leads."""

    name = "etcd"
    failures: Sequence[str] = (
        "kill -9 of a follower",
        "kill -9 of the leader",
        "SIGSTOP of a follower",
        "SIGSTOP of the leader",
    )
    places = (0, 1, 2)

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._processes = Processes()
        self._victim = 0

    def start(self) -> None:
        for place in self.places:
            self._start(place, "new")
        self._wait_whole()

    def _start(self, place: int, state: str) -> None:
        client, peer = (f"http://127.0.0.1:{ETCD_PORT + offset + place}" for offset in (0, 10))
        peers = ",".join(f"n{other}=http://127.0.0.1:{ETCD_PORT + 10 + other}" for other in self.places)
        command = ["etcd", "--name", f"n{place}", "--data-dir", str(self.directory / f"etcd-{place}")]
        command += ["--initial-cluster", peers, "--initial-cluster-state", state]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        self._processes.start(str(place), command)

    def prepare(self, failure: str) -> list[tuple[int, Write]]:
        leads = [place for place in self.places if self._leads(place)]
        follows = [place for place in self.places if place not in leads]
        self._victim = (leads if failure.endswith("leader") else follows)[0]
        return [(ETCD_PORT + place, self._write) for place in self.places if place != self._victim]

    def fail(self, failure: str) -> None:
        self._processes.signal(str(self._victim), _signal_of(failure))

    def repair(self, failure: str) -> None:
        if failure.startswith("SIGSTOP"):
            self._processes.signal(str(self._victim), signal.SIGCONT)
        else:
            self._start(self._victim, "existing")
        self._wait_whole()

    def close(self) -> None:
        self._processes.close()

    def _wait_whole(self) -> None:
        wait_until(self._is_whole, "etcd has one leader that all members know")

    def _is_whole(self) -> bool:
        leaders = {self._status(place).get("leader", "0") for place in self.places}
        return len(leaders) == 1 and "0" not in leaders and all(map(self._is_healthy, self.places))

    def _is_healthy(self, place: int) -> bool:
        return b'"true"' in call("GET", ETCD_PORT + place, "/health")

    def _leads(self, place: int) -> bool:
        status = self._status(place)
        return bool(status["header"]["member_id"] == status["leader"])

    def _status(self, place: int) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(call("POST", ETCD_PORT + place, "/v3/maintenance/status", b"{}"))
        return status

    @staticmethod
    def _write(connection: http.client.HTTPConnection) -> bool:
        key, value = (base64.b64encode(part).decode() for part in (b"%d" % connection.port, b"x" * 100))
        connection.request("POST", "/v3/kv/put", json.dumps({"key": key, "value": value}).encode())
        response = connection.getresponse()
        response.read()
        return response.status == 200


def wait_until(condition: Callable[[], bool], what: str, seconds: float = _READY_SECONDS) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if condition():
                return
        time.sleep(0.05)
    raise SystemExit(f"gave up waiting until {what}")


def _signal_of(failure: str) -> signal.Signals:
    return signal.SIGSTOP if failure.startswith("SIGSTOP") else signal.SIGKILL


def call(method: str, port: int, path: str, body: bytes | None = None) -> bytes:
    with urlopen(
        Request(f"http://127.0.0.1:{port}{path}", body, method=method), timeout=_CALL_SECONDS
    ) as response:
        answer: bytes = response.read()
    return answer
