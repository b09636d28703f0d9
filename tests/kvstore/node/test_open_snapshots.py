"""Snapshots that are being read are bounded in number and in time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from corel import NotAhead
from corel.lmdb_log import LmdbLog
from kvstore.node.fate_ages import ALL
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.open_snapshots import OpenSnapshots, SnapshotConfig, TooManySnapshots
from tests.kvstore.node.snapshots import filled


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_that_nobody_reads_is_closed_and_one_that_is_read_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk, clock = filled(tmp_path), Clock()
        snapshots = OpenSnapshots(disk.log, SnapshotConfig(open_max=2, idle_s=60), clock)
        read, idle = snapshots.open()[0], snapshots.open()[0]
        with pytest.raises(TooManySnapshots):
            snapshots.open()
        clock.now = 59.0
        assert snapshots.find(read) is not None
        clock.now = 60.0
        assert snapshots.find(idle) is None
        assert (len(snapshots), snapshots.find(read) is None) == (1, False)
        snapshots.open()
        snapshots.close_all()
        assert len(snapshots) == 0
        disk.close()

    asyncio.run(scenario())


def test_it_is_closed_when_its_time_is_over_although_nobody_asks(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk, clock = filled(tmp_path), Clock()
        snapshots = OpenSnapshots(disk.log, SnapshotConfig(idle_s=60), clock)
        snapshots.open()
        timer = snapshots._timer
        assert timer is not None
        assert timer.when() - asyncio.get_running_loop().time() == pytest.approx(60.0, abs=1.0)
        clock.now = 60.0
        snapshots._on_timer()
        assert (len(snapshots), snapshots._timer) == (0, None)
        disk.close()

    asyncio.run(scenario())


def test_a_disk_that_knows_of_no_primary_component_is_not_handed_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = LmdbLog(tmp_path, "test", "a", is_new_cluster=True)
        LmdbTree(log, ALL)
        snapshots = OpenSnapshots(log, SnapshotConfig(), Clock())
        with pytest.raises(NotAhead, match="no primary component that was established"):
            snapshots.open()
        assert len(snapshots) == 0
        log.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("bounds", [{"open_max": 0}, {"idle_s": 0}, {"chunk_bytes": 10}])
def test_bounds_that_would_let_nothing_through_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        SnapshotConfig(**bounds)
