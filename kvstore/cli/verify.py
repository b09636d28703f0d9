"""`corelkv verify`: reads everything in a data directory. A damaged page may end the process that reads it, so it
is a process of its own. It tells this one how far it is and what it found, in lines of JSON; only this one prints,
because it may be drawing a bar."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import IO, Any, NoReturn

from corel.disk_errors import DiskError, damaged
from corel.verification import verify
from kvstore.cli.output import Exit, fail
from kvstore.cli.progress import Advance, progress


def verify_directory(directory: Path) -> int:
    """Prints whether the directory is whole, and returns the exit status."""
    if not (directory / "data.mdb").exists():
        return fail(f"{directory} has no data.mdb: give the --data directory of a node.", Exit.USAGE)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _verify_and_exit(directory, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as told:
        found = _follow(told)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return fail(damaged(directory, f"reading it ended with {name}"), Exit.FAILED)
    if "records" not in found:
        return fail(found.get("error", "reading it failed: see above"), Exit.FAILED)
    print(f"{directory} is whole: {found['records']:,} records")
    return Exit.OK


def _follow(told: IO[str]) -> dict[str, Any]:
    """Shows how far the child is until it ends, and returns what it found; nothing if it did not get that far."""
    found: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        advance: Advance | None = None
        for line in told:
            found = json.loads(line)
            if "total" in found:
                advance = advance or stack.enter_context(progress("records", found["total"]))
                advance(found["done"])
    return found


def _verify_and_exit(directory: Path, writing: int) -> NoReturn:
    """Ends the child whatever happens: it must not go on with what its parent was about to do."""
    try:
        with open(writing, "w", encoding="utf-8", buffering=1) as told:
            _verify(directory, told)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _verify(directory: Path, told: IO[str]) -> None:
    def tell(**content: object) -> None:
        told.write(json.dumps(content) + "\n")

    try:
        tell(records=verify(directory, lambda done, total: tell(done=done, total=total)))
    except DiskError as error:
        tell(error=str(error))
