"""A cluster that a run starts for itself on this machine, with `corelkv cluster`, and the processes of its
nodes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from loadtest.nodes import NodeError, Nodes

HOST = "127.0.0.1"
_READY_SECONDS = 60.0
_STOP_SECONDS = 15.0
_UDP_PORTS = (20_000, 30_000)

_SETTINGS = """\
# The audit reads all of the log and asks for the fate of every write, so nothing is truncated.
[log]
messages_kept = 1_000_000_000
bytes_kept = 1_000_000_000_000
"""


class OwnCluster:
    """`corelkv cluster` in a directory. It is stopped at the end of the context, whatever happens."""

    def __init__(self, count: int, directory: Path, output: Path, http_port: int = 0, udp_port: int = 0) -> None:
        self._count = count
        self._directory = directory
        self._output = output
        self._http_port = http_port or free_ports(count)
        self._udp_port = udp_port or _UDP_PORTS[0] + self._http_port % (_UDP_PORTS[1] - _UDP_PORTS[0])
        self.urls = [f"http://{HOST}:{self._http_port + index}" for index in range(count)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OwnCluster:
        command = (
            *(sys.executable, "-m", "kvstore", "cluster", "--chaos", "--nodes", str(self._count)),
            *("--http-port", str(self._http_port), "--port", str(self._udp_port), "--data", str(self._directory)),
        )
        settings = self._output.with_name("nodes.toml")
        settings.write_text(_SETTINGS)
        with open(self._output, "wb") as output:
            self._process = start_process(command, output, {"CORELKV_CONFIG": str(settings), **os.environ})
        try:
            self._await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()

    @property
    def supervisor(self) -> int:
        """The process that restarts nodes, and whose children they are."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Stops all nodes; kills those that do not stop."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in node_pids(process.pid).values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()

    def _await_ready(self) -> None:
        nodes = Nodes(self.urls)
        end = time.monotonic() + _READY_SECONDS
        with contextlib.closing(nodes):
            while True:
                if self._process is not None and self._process.poll() is not None:
                    raise NodeError(f"the cluster ended while it was started; {self._output} says why")
                found = [nodes.status(url) for url in self.urls]
                if all(
                    one is not None and len(one["view"]["members"]) == self._count and one["primary"]
                    for one in found
                ):
                    return
                if time.monotonic() > end:
                    raise NodeError(
                        f"the cluster was not ready in {_READY_SECONDS:.0f} s; {self._output} may say why"
                    )
                time.sleep(0.2)


def start_process(
    command: Sequence[str], output: IO[bytes], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a process that a Ctrl-C in the terminal does not reach, and that is stopped if this one is killed."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        process_group=0,
        preexec_fn=_die_with_parent,
    )


_PR_SET_PDEATHSIG = 1
_prctl: Any = getattr(ctypes.CDLL(None), "prctl", None)


def _die_with_parent() -> None:
    """Runs in the new process (Linux only)."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def free_ports(count: int) -> int:
    """Returns the first of that many TCP ports in a row on which nothing listens."""
    for first in range(18_100, 23_900, count):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.create_server((HOST, port)))
            return first
    raise NodeError(f"there are no {count} free ports in a row from 18100 on: choose some with --http-port")


def node_pids(supervisor: int) -> dict[str, int]:
    """Returns the processes of the nodes that a supervisor has started, by name."""
    found = {}
    for pid in _children(supervisor):
        with contextlib.suppress(OSError, ValueError):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found[arguments[arguments.index(b"--node") + 1].decode()] = pid
    return found


def _children(pid: int) -> Iterator[int]:
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            yield from map(int, listing.read_text().split())
