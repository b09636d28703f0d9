"""The clock floor on disk: no view of a restarted node is numbered below one it has had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.node.synced_numbers import CLOCK_BLOCK_FIRST, CLOCK_BLOCK_MAX, ClockFloor, SyncedNumberError
from transport import TransportConfig


def test_a_new_node_begins_at_one(tmp_path: Path) -> None:
    assert ClockFloor(tmp_path).clock == 1


def test_a_restarted_node_begins_above_every_view_it_has_had(tmp_path: Path) -> None:
    floor = ClockFloor(tmp_path)
    for clock in (5, 6, CLOCK_BLOCK_FIRST, 2 * CLOCK_BLOCK_MAX, 2 * CLOCK_BLOCK_MAX + 1, 2**40):
        floor.raise_above(clock)
        assert ClockFloor(tmp_path).clock > clock


def test_a_block_is_reserved_ahead_so_that_few_views_cost_a_write(tmp_path: Path) -> None:
    floor = ClockFloor(tmp_path)
    floor.raise_above(1)
    (tmp_path / "clock").unlink()
    floor.raise_above(CLOCK_BLOCK_FIRST)
    assert not (tmp_path / "clock").exists()
    floor.raise_above(CLOCK_BLOCK_FIRST + 1)
    assert (tmp_path / "clock").exists()


def test_the_starts_of_a_crash_loop_stay_within_what_peers_accept() -> None:
    with disk_in_memory() as numbers:
        for _ in range(100_000):
            floor = ClockFloor(DIRECTORY)
            floor.raise_above(floor.clock)  # its first broadcast, and then it crashes
        assert numbers[DIRECTORY / "clock"] < TransportConfig().clock_jump_max / 10_000


@given(st.lists(st.integers(1, 3 * CLOCK_BLOCK_MAX), max_size=30))
def test_a_start_adds_little_more_than_twice_what_it_has_used(steps: list[int]) -> None:
    with disk_in_memory():
        floor = ClockFloor(DIRECTORY)
        clock = floor.clock
        for step in steps:
            clock += step
            floor.raise_above(clock)
            following = ClockFloor(DIRECTORY).clock
            used = clock - floor.clock
            assert clock < following <= floor.clock + 2 * used + CLOCK_BLOCK_FIRST
            assert following <= clock + CLOCK_BLOCK_MAX


def test_syncs_become_rare_under_load() -> None:
    syncs: list[int] = []
    with disk_in_memory() as numbers:
        floor, before = ClockFloor(DIRECTORY), None
        for clock in range(1, 100_000_000, 1_000):
            floor.raise_above(clock)
            if numbers[DIRECTORY / "clock"] != before:
                before = numbers[DIRECTORY / "clock"]
                syncs.append(clock)
    assert [sum(clock < bound for clock in syncs) for bound in (10**6, 16 * 10**6, 10**8)] == [10, 14, 19]


def test_what_the_disk_refused_is_not_reserved() -> None:
    with TemporaryDirectory() as directory:
        floor = ClockFloor(Path(directory))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.fsync", _refuse)
            with pytest.raises(OSError, match="No space left"):
                floor.raise_above(7)
        floor.raise_above(7)
        assert ClockFloor(Path(directory)).clock > 7


def _refuse(descriptor: int) -> None:
    raise OSError(ENOSPC, "No space left on device")


DIRECTORY = Path("nowhere")


@contextmanager
def disk_in_memory() -> Iterator[dict[Path, int]]:
    """A disk that is fast enough for thousands of starts."""
    numbers: dict[Path, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvstore.node.synced_numbers.read_number", numbers.get)
        patch.setattr("kvstore.node.synced_numbers.write_number", numbers.__setitem__)
        yield numbers


def test_a_damaged_record_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "clock").write_bytes(b"12")
    with pytest.raises(SyncedNumberError, match="remove the file"):
        ClockFloor(tmp_path)
