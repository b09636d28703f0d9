"""`corelkv verify`: reads everything in a data directory. A damaged page may end the process that reads it, so it
is a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NoReturn

from corel.disk_errors import DiskError, damaged
from corel.verification import verify
from kvstore.cli.output import Exit
from kvstore.cli.progress import Advance, progress

_TOLD = Struct("!QQ")
"""How many records have been read, and how many there are."""


def verify_directory(directory: Path) -> int:
    """Prints whether the directory is whole, and returns the exit status."""
    if not (directory / "data.mdb").exists():
        print(f"corelkv: {directory} has no data.mdb: give the --data directory of a node.", file=sys.stderr)
        return Exit.USAGE
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _verify_and_exit(directory, writing)
    os.close(writing)
    with open(reading, "rb") as told:
        _show_progress(told)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        print(f"corelkv: {damaged(directory, f'reading it ended with {name}')}", file=sys.stderr)
        return Exit.FAILED
    return os.waitstatus_to_exitcode(status)


def _show_progress(told: BinaryIO) -> None:
    """Draws here what the child has read, until it ends: it may die while the terminal shows a bar."""
    with contextlib.ExitStack() as stack:
        advance: Advance | None = None
        while record := told.read(_TOLD.size):
            done, total = _TOLD.unpack(record)
            advance = advance or stack.enter_context(progress("records", total))
            advance(done)


def _verify_and_exit(directory: Path, writing: int) -> NoReturn:
    """Ends the child whatever happens: it must not go on with what its parent was about to do."""
    status: int = Exit.FAILED
    try:
        status = _verify_here(directory, writing)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _verify_here(directory: Path, writing: int) -> int:
    try:
        count = verify(directory, lambda done, total: _tell(writing, done, total))
    except DiskError as error:
        print(f"corelkv: {error}", file=sys.stderr, flush=True)
        return Exit.FAILED
    print(f"{directory} is whole: {count:,} records", flush=True)
    return Exit.OK


def _tell(writing: int, done: int, total: int) -> None:
    os.write(writing, _TOLD.pack(done, total))
