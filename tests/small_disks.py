"""File systems that are soon full, for tests of what a node does then.

A run that is killed leaves its file systems mounted, and pytest, which removes the directories of earlier runs,
fails when it meets one. So a file system carries in its name the process that mounted it, and a run begins by
unmounting those whose process is gone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from os import getpid
from pathlib import Path

_NAME = "corelkv-test-"


@contextmanager
def mounted(directory: Path, megabytes: int) -> Iterator[Path]:
    """A new file system of that size at the directory, which is made."""
    directory.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m"]
    subprocess.run(["mount", *options, f"{_NAME}{getpid()}", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def unmount_left_over() -> list[str]:
    """Unmounts what runs that were killed left mounted, and returns the directories."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        name, directory, *_ = line.split()
        if name.startswith(_NAME) and not Path("/proc", name.removeprefix(_NAME)).exists():
            subprocess.run(["umount", "--lazy", directory], check=True)
            found.append(directory)
    return found
