"""What a node does while there is no key-value store: it submits messages to the log, and shows what becomes of
them.

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
from itertools import count
from pathlib import Path
from secrets import token_hex

import uvloop

from corel.corel import Stage
from corel.effects import Event, Greened, Logged
from corel.messages import Color, Entry
from corel.outbox import TooMuch
from corel.quorum import Roster
from kvstore.node import Node, Upward
from kvstore.participant import Away, Participant, ParticipantConfig
from transport.effects import Journal
from transport.messages import View
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
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    config = ParticipantConfig(
        node=options.node,
        roster=Roster.of(options.roster),
        data=options.data,
        mode=options.mode,
        cluster=options.cluster,
        is_new_cluster=options.is_new_cluster,
    )
    failures: list[Exception] = []

    def on_failed(error: Exception) -> None:
        failures.append(error)
        stop.set()

    show = _Show(options)
    upward = Upward(
        logged=show.logged,
        greened=show.greened,
        view_changed=show.view,
        failed=on_failed,
        journaled=show.journaled,
    )
    participant = Participant(config, upward, options.data / "journal", show.started)
    show.participant = participant
    talking = asyncio.create_task(_talk(participant, options))
    await stop.wait()
    talking.cancel()
    await participant.close()
    if failures:
        raise DemoError(f"node {options.node} failed: {failures[0]}")


async def _talk(participant: Participant, options: ServeOptions) -> None:
    """A message, then a pause, for ever."""
    for number in count():
        await asyncio.sleep(options.every_ms / 1_000.0)
        with contextlib.suppress(Away, TooMuch):
            participant.submit(f"message {number} from {options.node}".encode())


class _Show:
    """Prints what happens at a node, a line each."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self.participant: Participant | None = None

    def started(self, node: Node) -> None:
        address = f"{node.udp.own_address[0]}:{node.udp.own_address[1]}"
        self._print(f"is up at {address} as {node.transport.me}, process {os.getpid()}")

    def view(self, view: View) -> None:
        names = {machine.name for machine in view.members}
        missing = ", ".join(name for name in self._options.roster if name not in names)
        members = " ".join(map(str, view.members))
        self._print(f"view {view.id}: {members}{f' (without {missing})' if missing else ''}")

    def journaled(self, entry: Journal) -> None:
        if entry.event is Event.STATE:
            details = entry.details
            lines = f"green {details['green']}, yellow {details['yellow']}, all {details['all']}"
            self._print(f"is {str(details['stage']).replace('_', ' ')} ({lines})")

    def logged(self, logged: Logged) -> None:
        log = None if self.participant is None else self.participant.node.log
        if log is not None and log.stage is not Stage.PRIMARY:
            for entry in logged.entries:
                color = Color.YELLOW if entry.primary else Color.RED
                self._print(f"{color:12} {entry.id!s:10} {_text(entry)}")

    def greened(self, greened: Greened) -> None:
        for position, entry in enumerate(greened.entries, greened.position):
            self._print(f"green {position:6} {entry.id!s:10} {_text(entry)}")

    def _print(self, line: str) -> None:
        print(f"{self._options.node}  {line}", flush=True)


def _text(entry: Entry) -> str:
    return "" if entry.body is None else repr(entry.body.decode(errors="replace"))


def run_cluster(names: Sequence[str], port: int, data: Path | None, every_ms: float) -> int:
    """Starts a process per node, prints what they print, and ends them all on Ctrl-C."""
    with contextlib.ExitStack() as stack:
        if data is None:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelkv-")))
        roster = ",".join(names)
        print(f"corelkv: nodes {roster} on broadcast 127.255.255.255:{port}, journals in {data}/*/journal")
        print("They find each other and become a primary component. Each submits messages; green ones have their")
        print("final places, the same everywhere. Stop two nodes (kill -STOP) and the third goes on in red; wake")
        print("them (kill -CONT), and its messages become green. Ctrl-C stops them all.", flush=True)
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
