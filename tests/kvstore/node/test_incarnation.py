"""The incarnation on disk: it only ever rises, and damage is an error that says what to do."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from kvstore.node.synced_numbers import SyncedNumberError, next_incarnation


def test_every_start_has_its_own_number_also_within_a_millisecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    data = tmp_path / "deep" / "data"
    first = next_incarnation(data)
    assert [next_incarnation(data) for _ in range(2)] == [first + 1, first + 2]


def test_copies_of_one_directory_that_are_started_are_different_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    next_incarnation(original)
    shutil.copytree(original, copy)
    times = iter([time.time() + 5.0, time.time() + 6.0])
    monkeypatch.setattr(time, "time", lambda: next(times))
    assert next_incarnation(original) < next_incarnation(copy)


def test_a_process_that_starts_again_by_itself_does_not_become_the_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elder, newer = tmp_path / "elder", tmp_path / "newer"
    times = iter([time.time() + seconds for seconds in (1.0, 2.0, 3.0)])
    monkeypatch.setattr(time, "time", lambda: next(times))
    first = next_incarnation(elder)
    twin = next_incarnation(newer)
    assert next_incarnation(elder, is_new_process=False) == first + 1 < twin


def test_a_clock_that_was_set_back_does_not_bring_an_old_number_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = next_incarnation(tmp_path)
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    assert next_incarnation(tmp_path) == first + 1


def test_a_replaced_disk_does_not_bring_an_old_number_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a cluster that is bootstrapped anew: what is left over of the old one has other ids."""
    old = [next_incarnation(tmp_path / "old") for _ in range(3)][-1]
    later = time.time() + 10.0
    monkeypatch.setattr(time, "time", lambda: later)
    assert next_incarnation(tmp_path / "new") > old


def test_a_crash_while_writing_does_not_lose_the_last_number(tmp_path: Path) -> None:
    first = next_incarnation(tmp_path)
    (tmp_path / "incarnation.new").write_bytes(b"")  # the crash left an unfinished file behind
    assert next_incarnation(tmp_path) > first


@pytest.mark.parametrize("damage", [b"", b"7", b"-1\n", b"seven\n", b"0\n", b"99999999999999999999\n"])
def test_a_damaged_file_is_refused_with_the_way_out(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "incarnation").write_bytes(damage)
    with pytest.raises(SyncedNumberError, match="write a higher number"):
        next_incarnation(tmp_path)
    assert (tmp_path / "incarnation").read_bytes() == damage
