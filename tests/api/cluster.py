"""Real nodes for tests of the API: processes on loopback, each with its own disk, partitioned by `/v1/chaos`.

Clusters may share a broadcast port; their names keep them apart.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from tests.ports import HOST, broadcast_port, free_port

BROADCAST = "127.255.255.255"
TIMEOUT_SECONDS = 30.0
"""The timeout of everything that even a loaded machine should do much sooner."""

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Runs in the new process: not even a killed test run leaves nodes running."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def eventually(condition: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    """Waits until the condition holds. Fails with what `what` returns if it does not in time."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"it never came to that: {what()}"
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Answer:
    """A node's response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The code of an error response, which must have a whole sentence too."""
        assert self.headers["content-type"] == "application/json"
        content = self.json
        assert " " in content["message"]
        assert content["message"].endswith(".")
        return str(content["error"])

    @property
    def tag(self) -> str:
        return self.headers["etag"]


def answer_of(response: http.client.HTTPResponse) -> Answer:
    names = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, names, response.read())


class Node:
    """One process, or none while it is down. `prelude` is Python that runs before the node does."""

    def __init__(self, name: str, flags: Sequence[str], directory: Path, prelude: str = "") -> None:
        self.name = name
        self.port = free_port()
        self.data = directory / name
        self.process: subprocess.Popen[bytes] | None = None
        self._prelude = prelude
        self._flags = ("--node", name, "--http", f"{HOST}:{self.port}", "--data", str(self.data), *flags)
        self._output = directory / f"{name}.output"

    # The process

    def start(self, *flags: str) -> None:
        """Starts the process, and does not wait until the node is ready."""
        module = ("-m", "kvstore")
        if self._prelude:
            module = ("-c", f"{self._prelude}\nimport sys\nfrom kvstore.cli import main\nsys.exit(main())")
        command = (sys.executable, *module, "serve", *self._flags, *flags)
        with open(self._output, "ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=_die_with_parent
            )

    def await_ready(self, need: str = "?need=primary") -> None:
        def is_ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.output
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.get_path(f"/readyz{need}").status == 200
            return False

        eventually(is_ready, lambda: self.output)

    def wait(self) -> int:
        """Waits until the process ends by itself, and returns its exit status."""
        assert self.process is not None
        status = self.process.wait(TIMEOUT_SECONDS)
        self.process = None
        return status

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def cpu_seconds(self) -> float:
        """Returns how much CPU time the process has taken."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """Kills the process with SIGKILL, if it is running."""
        if self.process is not None:
            self.process.kill()
            self.wait()

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def cluster(self) -> str:
        return self._flags[self._flags.index("--cluster") + 1]

    # Requests

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = TIMEOUT_SECONDS,
    ) -> Answer:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=seconds)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            return answer_of(connection.getresponse())

    def get_path(self, path: str) -> Answer:
        return self.call("GET", path)

    def status(self) -> Any:
        return self.get_path("/v1/status").json

    def put(self, key: str, value: bytes | str, query: str = "", **headers: str) -> Answer:
        """Header names are given with underscores, here and below."""
        body = value.encode() if isinstance(value, str) else value
        return self.call("PUT", path_of(key, query), body, _headers(headers))

    def get(self, key: str, query: str = "", **headers: str) -> Answer:
        return self.call("GET", path_of(key, query), headers=_headers(headers))

    def head(self, key: str, query: str = "", **headers: str) -> Answer:
        return self.call("HEAD", path_of(key, query), headers=_headers(headers))

    def delete(self, key: str, query: str = "", **headers: str) -> Answer:
        return self.call("DELETE", path_of(key, query), headers=_headers(headers))

    def patch(self, key: str, change: object, query: str = "", **headers: str) -> Answer:
        return self.call("PATCH", path_of(key, query), json.dumps(change).encode(), _headers(headers))

    def txn(self, content: object, query: str = "", **headers: str) -> Answer:
        return self.call("POST", f"/v1/txn{query}", json.dumps(content).encode(), _headers(headers))

    def fate(self, write_id: str, query: str = "") -> Answer:
        return self.get_path(f"/v1/writes/{write_id}{query}")

    def spoil(self, **chaos: object) -> Answer:
        return self.call("PUT", "/v1/chaos", json.dumps(chaos).encode())

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), TIMEOUT_SECONDS)

    def raw(self, *parts: bytes) -> bytes:
        """Sends bytes as they are, and returns everything that the node sends until it closes the connection."""
        with self.connect() as client:
            for part in parts:
                client.sendall(part)
            return received(client)


def received(client: socket.socket) -> bytes:
    """Returns everything that arrives until the other side closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def path_of(key: str, query: str = "") -> str:
    return f"/v1/kv/{quote(key, safe='/')}{query}"


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


class Cluster:
    """The nodes of one roster. Use it as a context manager, which kills all processes at its end."""

    def __init__(
        self,
        names: str,
        directory: Path,
        flags: Sequence[str] = (),
        prelude: str = "",
        roster: str = "",
        cluster: str = "",
    ) -> None:
        self.name = cluster or f"test-{token_hex(6)}"
        self.flags = (
            *("--roster", ",".join(roster or names), "--cluster", self.name),
            *("--broadcast", f"{BROADCAST}:{broadcast_port()}", "--chaos", "--no-journal", *flags),
        )
        self.nodes = {name: Node(name, self.flags, directory, prelude) for name in names}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *problem: object) -> None:
        for node in self.nodes.values():
            node.kill()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def start(self) -> Cluster:
        """Starts all nodes for the first time, and waits until they are in one primary component."""
        for node in self:
            node.start("--bootstrap")
        for node in self:
            node.await_ready("")
        self.await_views("".join(self.nodes))
        return self

    def revive(self) -> None:
        """Makes all processes run again, whatever a failed test has left."""
        for node in self:
            if node.process is None:
                node.start()
                node.await_ready("")
            else:
                node.signal(signal.SIGCONT)

    # The network

    def partition(self, sides: str) -> None:
        """Cuts the network as in "ab|c", and waits until every node has its new view."""
        parts = sides.split("|")
        for part in parts:
            others = [name for name in self.nodes if name not in part]
            for name in part:
                assert self[name].spoil(drop_from=others, drop_to=others).status == 200
        self.await_views(*parts)

    def heal(self) -> None:
        for node in self:
            if node.process is not None:
                assert node.call("DELETE", "/v1/chaos").status == 200
        self.await_views("".join(node.name for node in self if node.process is not None))

    def await_views(self, *parts: str) -> None:
        """Waits until the nodes of each part are in a view of their own, which is primary if it has a majority and
        non-primary if not."""

        def is_settled(name: str, part: str) -> bool:
            status = self[name].status()
            state = "primary" if 2 * len(part) > len(status["roster"]) else "non_primary"
            return sorted(status["view"]["members"]) == sorted(part) and status["state"] == state

        def are_settled() -> bool:
            return all(is_settled(name, part) for part in parts for name in part)

        eventually(are_settled, lambda: [self[name].status() for part in parts for name in part])

    def await_agreement(self) -> None:
        """Waits until no node has a red or yellow message, and all have the same green revision."""

        def agree() -> bool:
            found = [node.status() for node in self]
            is_closed = all(one["red"] == 0 and one["yellow"]["line"] == one["green"]["line"] for one in found)
            return is_closed and len({one["green"]["revision"] for one in found}) == 1

        eventually(agree, lambda: [node.status() for node in self])
