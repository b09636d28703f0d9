"""`corelkv verify`: reads everything in a data directory. A damaged page may end the process that reads it, so it
is a process of its own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from corel.disk_errors import DiskError, damaged
from corel.verification import verify
from kvstore.cli.output import Exit


def verify_directory(directory: Path) -> int:
    """Prints whether the directory is whole, and returns the exit status."""
    if not (directory / "data.mdb").exists():
        print(f"corelkv: {directory} has no data.mdb: give the --data directory of a node.", file=sys.stderr)
        return Exit.USAGE
    child = os.fork()
    if child == 0:
        os._exit(_verify_here(directory))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        print(f"corelkv: {damaged(directory, f'reading it ended with {name}')}", file=sys.stderr)
        return Exit.FAILED
    return os.waitstatus_to_exitcode(status)


def _verify_here(directory: Path) -> int:
    try:
        count = verify(directory)
    except DiskError as error:
        print(f"corelkv: {error}", file=sys.stderr, flush=True)
        return Exit.FAILED
    print(f"{directory} is whole: {count:,} records", flush=True)
    return Exit.OK
