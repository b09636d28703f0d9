"""The nodes of a LAN, a process each: starting and killing them, commanding them, reading what they record, and
waiting for what must follow."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from tests.network.lan import Lan, poll_until

NAMES = "abcde"
"""Five hosts, of one letter each."""
PORT = 7_400
PROJECT = Path(__file__).parents[2]
ERROR_LINES_SHOWN = 40

Record = TypeVar("Record")


class ScenarioFailed(AssertionError):
    """What was expected did not happen; the message says what each node did."""


class Member(Generic[Record]):
    """A node's process, or its next one after it was killed, and what it has recorded so far."""

    module: ClassVar[str]
    """The module in `tests.network` that the process runs."""

    def __init__(self, lan: Lan, name: str, directory: Path, from_line: Callable[[str], Record]) -> None:
        self.name = name
        self.data = directory / name
        self.records: list[Record] = []
        self.process: subprocess.Popen[str]
        self._lan = lan
        self._out, self._err, self._record = (
            directory / f"{name}.{suffix}" for suffix in ("out", "err", "record")
        )
        self._record.touch()
        self._bytes_read = 0
        self._from_line = from_line

    def start(self, *arguments: str) -> None:
        command = [sys.executable, "-W", "error", "-m", f"tests.network.{self.module}", "--node", self.name]
        command += ["--record", str(self._record), *arguments]
        with open(self._out, "w") as out, open(self._err, "a") as err:
            self.process = self._lan.spawn(
                self.name, command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=out, stderr=err, text=True
            )

    def has_failed(self) -> bool:
        """Whether the process has ended with an error; a scenario may kill it."""
        return self.process.poll() not in (None, 0, -signal.SIGKILL)

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: whatever waits for what follows will see that, and say why
            print(command, file=self.process.stdin, flush=True)

    def close(self) -> None:
        """Closes the process's stdin, which ends it."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def said(self) -> list[str]:
        """The lines that the present process has written to stdout."""
        return self._out.read_text().splitlines()

    def read(self) -> None:
        """Takes in what has been recorded since it was last called."""
        with open(self._record, "rb") as record:
            record.seek(self._bytes_read)
            lines, newline, _ = record.read().rpartition(b"\n")
        self._bytes_read += len(lines) + len(newline)
        for line in lines.decode().splitlines():
            self.note(self._from_line(line))

    def note(self, record: Record) -> None:
        """Takes in one record; subclasses keep what they need of it."""
        self.records.append(record)

    def history(self, since_ns: int) -> Iterable[str]:
        """What the node did, a line each, for the message of a failure; times are in seconds from then."""
        return self.said()

    def describe(self, since_ns: int) -> str:
        """The state of the process, what the node did, and the end of its stderr."""
        status = self.process.poll()
        state = "running" if status is None else f"exit status {status}"
        errors = self._err.read_text().splitlines()[-ERROR_LINES_SHOWN:]
        return "\n".join([f"--- {self.name}, {state}", *self.history(since_ns), *errors])


AnyMember = TypeVar("AnyMember", bound=Member[Any])


class Cluster(Generic[AnyMember]):
    """All nodes of a LAN. What is done to them is timed until the expectation that follows it."""

    timeout_ms: ClassVar[int]
    """How long to wait for anything on a machine that is busy with other tests."""

    def __init__(self, lan: Lan, directory: Path, members: Mapping[str, AnyMember]) -> None:
        self._lan = lan
        self._directory = directory
        self._members = members
        self._begin("start")

    def heal(self) -> None:
        self._begin("heal")
        self._lan.heal()

    def _begin(self, cause: str) -> None:
        self._cause = cause
        self._since_ns = time.monotonic_ns()

    def _tell_all(self, command: str) -> None:
        for member in self._members.values():
            member.tell(command)

    def _end_all(self) -> None:
        """Ends all processes, and reads the rest of what they recorded."""
        for member in self._members.values():
            member.close()
        self._wait(lambda: all(member.process.poll() == 0 for member in self._members.values()), "all end")
        self._read()

    def _wait_all_said(self, line: str, what: str) -> None:
        self._wait(lambda: all(line in member.said() for member in self._members.values()), what)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until the condition holds; fails if it does not in time, or if a process fails before."""

        def is_over() -> bool:
            return condition() or any(member.has_failed() for member in self._members.values())

        if not poll_until(is_over, self.timeout_ms) or not condition():
            self._read()
            raise self._failure(f"after '{self._cause}' it did not happen that {what}")

    def _wait_reading(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition on what the nodes have recorded."""

        def holds() -> bool:
            self._read()
            return condition()

        self._wait(holds, what)

    def _read(self) -> None:
        for member in self._members.values():
            member.read()

    def _failure(self, message: str) -> ScenarioFailed:
        descriptions = [member.describe(self._since_ns) for member in self._members.values()]
        return ScenarioFailed("\n".join([message, f"all files are in {self._directory}", *descriptions]))
