"""Flips a bit at a time in copies of a log, opens and reads each in a process of its own, and prints what
happened: `python -m tests.corel.rot_worker DIRECTORY SEED COUNT`."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from corel.disk_errors import DiskError
from corel.verification import verify
from tests.corel.disk_images import PAGE_BYTES, Content, read, written


def outcome(directory: Path, expected: Content) -> str:
    try:
        found = read(directory)
    except DiskError as error:
        is_explained = "data.mdb is damaged" in str(error) and "Move the directory away" in str(error)
        return "explained" if is_explained else f"not explained: {error}"
    except Exception as error:
        return f"not explained: {type(error).__name__}: {error}"
    if found == expected:
        return "right"
    if found.bodies != expected.bodies or not found.items.items() <= expected.items.items():
        return "wrong"
    return "items missing"


def verdict(directory: Path) -> str:
    try:
        verify(directory)
    except DiskError:
        return "found"
    return "not found"


def main(directory: Path, seed: int, count: int) -> None:
    random = Random(f"rot {seed}")
    *_, expected = written(directory / "whole", 40, random)
    whole = (directory / "whole" / "data.mdb").read_bytes()
    copy = directory / "copy"
    copy.mkdir()
    counts: Counter[str] = Counter()
    for number in range(count):
        data = bytearray(whole)
        at = random.randrange(len(data))
        if number % 2:  # structures are at the beginning of a page
            at = at // PAGE_BYTES * PAGE_BYTES + random.randrange(64)
        data[at] ^= 1 << random.randrange(8)
        results = []
        for judge in (lambda: outcome(copy, expected), lambda: verdict(copy)):
            (copy / "data.mdb").write_bytes(data)
            (copy / "lock.mdb").unlink(missing_ok=True)
            results.append(in_a_process(judge, directory / "result"))
        counts[f"{results[0]}; {results[1]}"] += 1
    for what, times in counts.most_common():
        print(f"{times}\t{what}")


def in_a_process(judge: Callable[[], str], result: Path) -> str:
    """Returns what `judge` returns in a process of its own, or the signal that killed it."""
    result.write_text("")
    child = os.fork()
    if child == 0:
        result.write_text(judge())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else result.read_text()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
