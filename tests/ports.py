"""Ports for tests, each of which is drawn once at a time on this machine.

A process draws from a block of ports that it holds by a lock, so that neither the workers of one test run nor test
runs of several checkouts meet. The blocks lie below the ports that the kernel gives to clients. A node's broadcast
port is drawn from the same block: UDP has ports of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

HOST = "127.0.0.1"

_FIRST = 24_000
_BLOCK = 400
_BLOCKS = 20

_draws = count()


def free_port() -> int:
    """A TCP port on which nothing listens."""
    return free_ports(1)


def free_ports(number: int) -> int:
    """The first of that many TCP ports in a row on which nothing listens."""
    for _ in range(_BLOCK):
        first = _draw(number)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + number):
                stack.enter_context(socket.create_server((HOST, port)))
            return first
    raise RuntimeError(f"there are no {number} free ports in a row from {_block()} on")


def broadcast_port() -> int:
    """A UDP port for one cluster. Such ports are shared by their nodes, so whether it is free cannot be tried."""
    return _draw(1)


def _draw(number: int) -> int:
    """The first of the next so many ports in a row of this process's block; after its end it begins again."""
    while (first := next(_draws) % _BLOCK) + number > _BLOCK:
        pass
    for _ in range(number - 1):
        next(_draws)
    return _block() + first


@cache
def _block() -> int:
    """The first port of the block that this process holds until it ends."""
    directory = Path(tempfile.gettempdir(), "corelkv-test-ports")
    directory.mkdir(exist_ok=True)
    for number in range(_BLOCKS):
        descriptor = os.open(directory / str(number), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
        else:
            return _FIRST + number * _BLOCK
    raise RuntimeError(f"all {_BLOCKS} blocks of ports are taken by other test processes; see {directory}")
