"""`corelkv cluster`: plans the nodes of a cluster as processes of this machine, and runs them until Ctrl-C.

The cluster's name is kept in its data directory: a later start with the same directory continues the same cluster,
and two clusters on one machine ignore each other. `supervisor` watches the processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase
from typing import TextIO

from kvstore.cli.cluster_file import ClusterError, ClusterFile
from kvstore.cli.control import ControlServer
from kvstore.cli.supervisor import Console, NodePlan, Supervisor

HOST = "127.0.0.1"
BROADCAST = "127.255.255.255"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of `corelkv cluster`."""

    nodes: int | None = None
    http_port: int = 8001
    port: int = 7400
    data: Path | None = None
    chaos: bool = True
    restart: bool = True


def run_cluster(options: ClusterOptions, output: TextIO | None = None) -> int:
    """Starts the nodes and watches them until a signal; returns the exit status. Raises `ClusterError`."""
    with contextlib.ExitStack() as stack:
        is_temporary = options.data is None
        if options.data is None:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelkv-")))
        else:
            data = options.data
        file = ClusterFile.open(data, options.nodes)
        check_ports(options.http_port, file.nodes)
        control = None
        if options.chaos:  # in a directory of its own: a Unix socket's path is short, and the user's may not be
            control = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelkv-")), "control")
        plans = plan_nodes(options, file, data, control)
        console = Console(output, [plan.name for plan in plans])
        kept = "removed at the end; keep it with --data DIR" if is_temporary else "kept"
        nodes = "1 node; its" if file.nodes == 1 else f"{file.nodes} nodes; their"
        console.say(f"starting {nodes} files are in {data} ({kept})")
        return asyncio.run(_supervise(plans, file, data, options.restart, console, control))


async def _supervise(
    plans: Sequence[NodePlan],
    file: ClusterFile,
    data: Path,
    restart: bool,
    console: Console,
    control: Path | None,
) -> int:
    def on_ready(name: str) -> None:
        nonlocal file
        if name not in file.bootstrapped:
            file = replace(file, bootstrapped=file.bootstrapped | {name})
            try:
                file.save(data)
            except OSError as error:
                console.say(f"cannot write {data}/cluster.json: {error.strerror}")

    supervisor = Supervisor(plans, console, restart, on_ready)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.interrupt)
    async with contextlib.AsyncExitStack() as stack:
        if control is not None:
            await stack.enter_async_context(ControlServer(supervisor, control))
        return await supervisor.run()


def plan_nodes(
    options: ClusterOptions, file: ClusterFile, data: Path, control: Path | None = None
) -> list[NodePlan]:
    """Returns how to start each node, named a, b, c and so on. `control` is the supervisor's socket."""
    names = ascii_lowercase[: file.nodes]
    ports = {name: options.http_port + index for index, name in enumerate(names)}
    urls = {name: f"http://{HOST}:{port}" for name, port in ports.items()}
    common = (
        *("--roster", ",".join(names)),
        *("--cluster", file.cluster),
        *("--broadcast", f"{BROADCAST}:{options.port}"),
        *("--urls", ",".join(f"{name}={url}" for name, url in urls.items())),
        "--chaos" if options.chaos else "--no-chaos",
        *(() if control is None else ("--supervisor", str(control))),
    )
    plans = []
    for name in names:
        own = ("--node", name, "--http", f"{HOST}:{ports[name]}", "--data", str(data / name))
        command = (sys.executable, "-m", "kvstore", "serve", *own, *common)
        first = () if name in file.bootstrapped else ("--bootstrap",)
        plans.append(NodePlan(name, urls[name], command, first))
    return plans


def check_ports(first: int, count: int) -> None:
    """Raises `ClusterError` if a port cannot be used. This is checked before any node starts, because a node whose
    port is taken would die again and again."""
    if first + count - 1 > 65_535:
        raise ClusterError(f"{count} nodes need ports {first} to {first + count - 1}: choose a lower --http-port")
    for name, port in zip(ascii_lowercase, range(first, first + count), strict=False):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise ClusterError(
                    f"port {port}, for node {name}'s HTTP, cannot be used ({error.strerror}): is another cluster "
                    f"running? Choose {count} free ports in a row with --http-port"
                ) from None
