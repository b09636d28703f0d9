"""A command in a terminal of its own: what it draws, and what it leaves behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Self

from tests.api.cluster import TIMEOUT_SECONDS

_HOME = b"\x1b[H"
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs `corelkv` in a pseudo-terminal, with stdout elsewhere if that is given. Use it as a context manager, to
    kill the process at its end."""

    def __init__(
        self,
        arguments: Sequence[str],
        columns: int = 80,
        rows: int = 24,
        environment: Mapping[str, str] | None = None,
        stdout: IO[bytes] | None = None,
    ) -> None:
        self.output = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        inherited = {
            name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kvstore", *arguments],
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            env={**inherited, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(environment or {})},
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    @property
    def screen(self) -> str:
        """The last picture that was drawn completely, without colours."""
        pictures = self.output.split(_HOME)
        return plain(pictures[-2] if len(pictures) > 2 else b"")

    def read(self, seconds: float = 0.2) -> bool:
        """Takes in what is written within that time. Returns False when the process has closed the terminal."""
        if select.select([self._master], [], [], seconds)[0]:
            try:
                self.output += os.read(self._master, 65_536)
            except OSError:  # EIO: nobody has the other side open any more
                return False
        return True

    def until(self, *words: str) -> str:
        """Waits for a picture that has all these words, and returns it."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while not all(word in self.screen for word in words):
            is_going_on = self.read() and time.monotonic() < end
            assert is_going_on, f"{words} never came:\n{plain(self.output[-8_000:])}"
        return self.screen

    def end(self, number: int | None = signal.SIGINT) -> int:
        """Sends the signal, reads to the end, and returns the exit status."""
        if number is not None:
            self._process.send_signal(number)
        end = time.monotonic() + TIMEOUT_SECONDS
        while self.read():
            assert time.monotonic() < end, f"it does not end:\n{plain(self.output[-8_000:])}"
        return self._process.wait(TIMEOUT_SECONDS)


def plain(output: bytes) -> str:
    return _ESCAPE.sub(b"", output).decode(errors="replace").replace("\r", "")
