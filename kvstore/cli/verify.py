"""`corelkv verify`: reads everything in a data directory, and says whether it is damaged."""

from __future__ import annotations

from pathlib import Path

from corel.verification import verify
from kvstore.cli.output import Exit, fail
from kvstore.cli.reading_process import ReadingFailed, Tell, read_apart


def verify_directory(directory: Path) -> int:
    """Prints whether the directory is whole, and returns the exit status."""

    def work(tell: Tell) -> None:
        tell(records=verify(directory, lambda done, total: tell(done=done, total=total)))

    try:
        found = read_apart(directory, "records", work)
    except ReadingFailed as error:
        return fail(error, Exit.FAILED)
    print(f"{directory} is whole: {found['records']:,} records")
    return Exit.OK
