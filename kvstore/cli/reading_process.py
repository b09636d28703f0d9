"""Reading a data directory in a process of its own, because a damaged page may end the process that reads it.

It tells this one how far it is and what it found, in lines of JSON. Only this one prints, because it may be
drawing a bar."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

from corel.disk_errors import DiskError, damaged
from kvstore.cli.output import UsageError
from kvstore.cli.progress import Advance, progress


class ReadingFailed(Exception):
    """The directory could not be read, or what was read could not be used. The message says what to do."""


class Tell(Protocol):
    """Tells the process that prints something: `done` and `total` are how far it is, all else is what it found."""

    def __call__(self, **content: object) -> None: ...


def read_apart(directory: Path, unit: str, work: Callable[[Tell], None]) -> dict[str, Any]:
    """Runs `work` in a process of its own, with a bar that counts units, and returns what it told last. Raises
    `ReadingFailed` if it raised that or `DiskError`, or did not get to its end."""
    try:
        is_there = (directory / "data.mdb").exists()
    except OSError as error:
        raise ReadingFailed(
            f"{directory} cannot be read: {error.strerror}. Do this as the user who runs the node."
        ) from error
    if not is_there:
        what = "has no data.mdb" if directory.exists() else "does not exist"
        raise UsageError(f"{directory} {what}: give the --data directory of a node.")
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work_and_exit(work, writing)
    os.close(writing)
    try:
        with open(reading, encoding="utf-8") as told:
            found = _follow(told, unit)
    finally:
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise ReadingFailed(_killed(directory, signal.Signals(os.WTERMSIG(status))))
    if "error" in found or os.waitstatus_to_exitcode(status) != 0:
        raise ReadingFailed(found.get("error", "reading it failed: see above"))
    return found


_OF_DAMAGE = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)


def _killed(directory: Path, by: signal.Signals) -> object:
    if by in _OF_DAMAGE:
        return damaged(directory, f"reading it ended with {by.name}")
    return f"reading {directory} was ended by {by.name}. Do it again."


def _follow(told: IO[str], unit: str) -> dict[str, Any]:
    """Shows how far the child is until it ends, and returns what it told last."""
    found: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        advance: Advance | None = None
        for line in told:
            found = json.loads(line)
            if "total" in found:
                advance = advance or stack.enter_context(progress(unit, found["total"]))
                advance(found["done"])
    return found


def _work_and_exit(work: Callable[[Tell], None], writing: int) -> NoReturn:
    """Ends the child whatever happens: it must not go on with what its parent was about to do."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends both; the parent says so
        with open(writing, "w", encoding="utf-8", buffering=1) as told:
            _work(work, told)
        status = 0
    except BrokenPipeError:  # the parent has been killed
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _work(work: Callable[[Tell], None], told: IO[str]) -> None:
    def tell(**content: object) -> None:
        told.write(json.dumps(content) + "\n")

    try:
        work(tell)
    except (DiskError, ReadingFailed) as error:
        tell(error=str(error))
