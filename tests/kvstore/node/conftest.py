"""Fixtures that several tests of the node use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_disks import mounted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The directory of a file system that is soon full."""
    with mounted(tmp_path / "small", megabytes=2) as directory:
        yield directory
