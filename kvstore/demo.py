"""What a node does while there is no store: it shows its views, multicasts in every service, and shows what is
delivered.

`serve` is one node; `cluster` starts several as processes of their own on this machine and merges what they
print.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import uvloop

from kvstore.journal import JournalWriter
from kvstore.node import Node, NodeConfig, Upward
from membership.floor import ClockFloor
from transport.config import TransportConfig
from transport.incarnation import next_incarnation
from transport.messages import Machine, Message, Service, View
from transport.udp import Mode

_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """One node of a roster."""

    node: str
    roster: tuple[str, ...]
    mode: Mode
    data: Path
    cluster: str
    every_ms: float
    is_new_cluster: bool


class DemoError(Exception):
    """The demonstration cannot start. The message says what to do."""


def serve(options: ServeOptions) -> None:
    """Runs one node until SIGINT or SIGTERM."""
    logging.basicConfig(level=logging.INFO, format=f"{options.node}  %(levelname)s %(message)s")
    uvloop.run(_serve(options))


async def _serve(options: ServeOptions) -> None:
    incarnation = next_incarnation(options.data, options.is_new_cluster)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    journal = JournalWriter(options.data / "journal", options.node)
    config = NodeConfig(
        machine=Machine(options.node, incarnation),
        mode=options.mode,
        cluster=options.cluster,
        clock_floor=ClockFloor(options.data),
        transport=TransportConfig(journal_messages=True),
    )
    failures: list[Exception] = []

    def on_failed(error: Exception) -> None:
        failures.append(error)
        stop.set()

    upward = Upward(
        delivered=lambda messages: _show(options.node, messages),
        changing=lambda view: print(f"{options.node}  holds back: view {view.id} is ending", flush=True),
        view_changed=lambda view: _show_view(options, view),
        failed=on_failed,
    )
    node = Node(config, upward, journal)
    address = f"{node.udp.own_address[0]}:{node.udp.own_address[1]}"
    print(f"{options.node}  is up at {address} as {config.machine}, process {os.getpid()}", flush=True)
    talking = asyncio.create_task(_talk(node, options))
    await stop.wait()
    talking.cancel()
    node.close()
    if failures:
        raise DemoError(f"node {options.node} failed: {failures[0]}")


async def _talk(node: Node, options: ServeOptions) -> None:
    """One message in each service, then a pause, for ever."""
    number = 0
    while True:
        for service in Service:
            await asyncio.sleep(options.every_ms / 1_000.0)
            await node.send(service, f"{service.name.lower()} {number} from {options.node}".encode())
        number += 1


def _show_view(options: ServeOptions, view: View) -> None:
    names = {machine.name for machine in view.members}
    missing = ", ".join(name for name in options.roster if name not in names)
    members = " ".join(map(str, view.members))
    print(f"{options.node}  view {view.id}: {members}{f' (without {missing})' if missing else ''}", flush=True)


def _show(node: str, messages: tuple[Message, ...]) -> None:
    for message in messages:
        place = f"  at {message.clock}.{message.sender.name}" if message.service >= Service.AGREED else ""
        text = message.payload.decode(errors="replace")
        print(f"{node}  delivers {message.service.name.lower():6} {message.id:8} {text!r}{place}", flush=True)


def run_cluster(names: Sequence[str], port: int, data: Path | None, every_ms: float) -> int:
    """Starts a process per node, prints what they print, and ends them all on Ctrl-C."""
    with contextlib.ExitStack() as stack:
        if data is None:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelkv-")))
        roster = ",".join(names)
        print(f"corelkv: nodes {roster} on broadcast 127.255.255.255:{port}, journals in {data}/*/journal")
        print("They find each other and form a view. Each multicasts in all four services; agreed and safe")
        print("messages come in one order everywhere. Stop a node (kill -STOP, kill -9) to see the view change.")
        print("Ctrl-C stops them.", flush=True)
        cluster = f"demo-{token_hex(4)}"  # so that two demonstrations at once do not hear each other
        arguments = ["--roster", roster, "--broadcast", f"127.255.255.255:{port}", "--cluster", cluster]
        arguments += ["--every-ms", str(every_ms)]
        if not data.exists() or not any(data.iterdir()):
            arguments.append("--bootstrap")
        processes = [stack.enter_context(_start_node(name, data / name, arguments)) for name in names]
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
        try:
            return _wait_for_first(processes)
        except KeyboardInterrupt:
            print("\ncorelkv: stopped", flush=True)
            return 0


@contextlib.contextmanager
def _start_node(name: str, data: Path, arguments: list[str]):  # type: ignore[no-untyped-def]
    command = [sys.executable, "-m", "kvstore", "serve", "--node", name, "--data", str(data), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    reader = threading.Thread(target=_copy_lines, args=(process,), daemon=True)
    reader.start()
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        reader.join(_STOP_SECONDS)


def _copy_lines(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)


def _wait_for_first(processes: Sequence[subprocess.Popen[str]]) -> int:
    """Nodes run until they are stopped; one that ends by itself ends the demonstration."""
    while True:
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(0.2)
                print(f"corelkv: a node ended by itself with status {status}; stopping the others", flush=True)
                return 1
