"""Mounted file systems are the tests' own means, and must not outlive them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.small_disks import mounted, unmount_left_over

KILLED = """
import os, pathlib, sys
from tests.small_disks import mounted
with mounted(pathlib.Path(sys.argv[1]), megabytes=1):
    os._exit(1)
"""


def test_what_a_killed_run_left_mounted_is_unmounted(tmp_path: Path) -> None:
    left = tmp_path / "left"
    subprocess.run([sys.executable, "-c", KILLED, str(left)], check=False)
    assert left.is_mount()
    assert str(left) in unmount_left_over()
    assert not left.is_mount()


def test_what_is_in_use_stays_mounted(tmp_path: Path) -> None:
    with mounted(tmp_path / "used", megabytes=1) as directory:
        assert str(directory) not in unmount_left_over()
        assert directory.is_mount()
    assert not directory.is_mount()
