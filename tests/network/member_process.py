"""What the nodes that the LAN tests run as processes of their own have in common.

They say lines on stdout, obey commands on stdin, and record what happens to them as a line of JSON per event. The
times of the records are of the system-wide monotonic clock, which is the same for all processes of a machine, so
merging the records of several processes by time puts every event after its causes.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Generic, TypeVar

import uvloop

Record = TypeVar("Record")


class Recorder(Generic[Record]):
    """Appends records to a file, each handed to the kernel at once: a killed process loses none that others could
    know of."""

    def __init__(self, path: Path, as_line: Callable[[Record], str], mode: str = "a", buffering: int = 1) -> None:
        self._file = open(path, mode, buffering)  # noqa: SIM115 (open as long as the process runs)
        self._as_line = as_line

    def write(self, record: Record) -> None:
        self._file.write(self._as_line(record))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def say(line: str) -> None:
    print(line, flush=True)


async def obey(**commands: Callable[..., None]) -> None:
    """Executes commands from stdin until it closes: a line is the name of a command and its arguments."""
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while words := (await lines.readline()).decode().split():
        name, *arguments = words
        if name not in commands:
            raise ValueError(f"no command {name!r}: expected {' or '.join(commands)}")
        commands[name](*arguments)
    transport.close()


def new_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """A parser of the flags that every node has."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.network.{module}", description=description)
    parser.add_argument("--node", required=True, help="this node's name")
    parser.add_argument("--record", required=True, type=Path, help="where to write what happens")
    return parser


def run_node(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], Coroutine[Any, Any, None]]
) -> None:
    """Runs one node with the flags of the command line, its log lines on stderr."""
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"{options.node}  %(levelname)s %(message)s")
    uvloop.run(run(options))
