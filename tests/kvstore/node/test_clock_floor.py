"""The clock floor on disk: no view of a restarted node is numbered below one it has had."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvstore.node.synced_numbers import CLOCK_BLOCK, ClockFloor, SyncedNumberError


def test_a_new_node_begins_at_one(tmp_path: Path) -> None:
    assert ClockFloor(tmp_path).clock == 1


def test_a_restarted_node_begins_above_every_view_it_has_had(tmp_path: Path) -> None:
    floor = ClockFloor(tmp_path)
    for clock in (5, 6, CLOCK_BLOCK, 2 * CLOCK_BLOCK, 2 * CLOCK_BLOCK + 1):
        floor.raise_above(clock)
        assert ClockFloor(tmp_path).clock > clock


def test_a_block_is_reserved_ahead_so_that_few_views_cost_a_write(tmp_path: Path) -> None:
    floor = ClockFloor(tmp_path)
    floor.raise_above(1)
    (tmp_path / "clock").unlink()
    floor.raise_above(CLOCK_BLOCK)
    assert not (tmp_path / "clock").exists()
    floor.raise_above(CLOCK_BLOCK + 1)
    assert (tmp_path / "clock").exists()


def test_a_damaged_record_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "clock").write_bytes(b"12")
    with pytest.raises(SyncedNumberError, match="remove the file"):
        ClockFloor(tmp_path)
