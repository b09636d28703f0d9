"""A disk that was full: a trial succeeds only where the log can be written again, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lmdb
import pytest

from corel.disk_errors import DiskError, DiskFull
from corel.lmdb_log import LmdbLog
from corel.storage import LogWrite
from corel.trial_write import TRIAL_BYTES_MIN
from tests.corel.test_lmdb_log import A, lines, record
from tests.small_disks import mounted

MAP_BYTES = 4 * 1024**2


class Log:
    """A log, with what a test does to it."""

    def __init__(self, directory: Path, map_bytes: int) -> None:
        self.disk = LmdbLog(directory, "test", "a", map_bytes=map_bytes)
        self.next = self.disk.load().lines.next_arrival

    def append(self, size: int) -> None:
        write = LogWrite(
            (record(self.next, A, self.next + 1, body=os.urandom(size)),), (), None, lines(self.next + 1)
        )
        self.disk.write(write)
        self.next += 1

    def fill(self, size: int) -> None:
        """Appends messages of this size until there is no room for one more."""
        with contextlib.suppress(DiskFull):
            while True:
                self.append(size)

    def small_values(self) -> list[bytes]:
        """The names of the small values that are there."""
        with self.disk._environment.begin(db=self.disk._meta) as transaction, transaction.cursor() as cursor:
            return list(cursor.iternext(values=False))


@pytest.fixture(params=[8_000, 50_000, 300_000, 1_000_000])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """A log whose map is full, so that it takes no message of the size with which it was filled."""
    log = Log(tmp_path, MAP_BYTES)
    log.fill(request.param)
    yield log
    log.disk.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The directory of a file system of 4 MiB."""
    with mounted(tmp_path / "small", megabytes=4) as directory:
        yield directory


def test_a_trial_in_a_full_map_fails_however_often_and_changes_nothing(full: Log) -> None:
    before = full.disk.usage().used_bytes
    for _ in range(5):
        with pytest.raises(DiskFull, match=r"log.map_bytes"):
            full.disk.try_write()
    assert full.disk.usage().used_bytes == before
    assert b"trial" not in full.small_values()
    assert len(full.disk.load().queue.red) == full.next


def trials(log: Log, times: int) -> list[bool]:
    """Returns whether each of some trials succeeds."""
    found = []
    for _ in range(times):
        try:
            log.disk.try_write()
        except DiskFull:
            found.append(False)
        else:
            found.append(True)
    return found


def test_where_a_large_message_has_no_room_a_trial_has_none_either() -> None:
    with TemporaryDirectory() as directory:
        log = Log(Path(directory), MAP_BYTES)
        log.fill(850_000)
        assert MAP_BYTES - log.disk.usage().used_bytes > TRIAL_BYTES_MIN, "a trial of the least size would succeed"
        assert trials(log, 3) == [False] * 3
        log.disk.close()


def test_where_a_small_message_has_no_room_a_trial_has_none_either() -> None:
    with TemporaryDirectory() as directory:
        log = Log(Path(directory), MAP_BYTES)
        log.fill(20_000)
        assert trials(log, 3) == [False] * 3
        log.disk.close()


def test_a_trial_that_succeeds_leaves_no_value() -> None:
    with TemporaryDirectory() as directory:
        log = Log(Path(directory), MAP_BYTES)
        assert trials(log, 3) == [True] * 3
        assert b"trial" not in log.small_values()
        log.disk.close()


def test_a_larger_map_takes_the_trial_and_the_log_goes_on(full: Log, tmp_path: Path) -> None:
    full.disk.close()
    larger = full.disk = Log(tmp_path, 2 * MAP_BYTES).disk
    assert larger.usage().map_bytes == 2 * MAP_BYTES
    assert len(larger.load().queue.red) == full.next, "nothing is lost"
    larger.try_write()
    full.append(1_000_000)
    assert b"trial" not in full.small_values()


def test_a_map_that_is_smaller_than_what_is_in_it_is_refused_with_a_sentence(full: Log, tmp_path: Path) -> None:
    full.disk.close()
    with pytest.raises(
        DiskError, match=r"holds [\d,]+ bytes, and log.map_bytes is 1,048,576. Set it to more than"
    ):
        LmdbLog(tmp_path, "test", "a", map_bytes=1024**2)
    full.disk = Log(tmp_path, MAP_BYTES).disk
    assert len(full.disk.load().queue.red) == full.next


def test_a_trial_leaves_nothing_and_trials_do_not_add_up(tmp_path: Path) -> None:
    log = Log(tmp_path, MAP_BYTES)
    log.append(1_000)
    for _ in range(50):
        log.disk.try_write()
    used = log.disk.usage().used_bytes
    assert used < 4 * TRIAL_BYTES_MIN, "what two transactions free is reused by the one after them"
    assert b"trial" not in log.small_values()
    log.append(1_000_000)
    log.disk.close()


def test_a_trial_is_as_large_as_the_write_that_failed_with_everything_in_it(tmp_path: Path) -> None:
    log = Log(tmp_path, MAP_BYTES)
    table = log.disk.table("other")

    def checkpoint(transaction: Any) -> None:
        for number in range(400):
            transaction.put(b"%d" % number, bytes(10_000), db=table)

    while log.disk.usage().used_bytes < MAP_BYTES // 2:
        log.append(20_000)
    with pytest.raises(DiskFull):
        log.disk.update(checkpoint)
    with pytest.raises(DiskFull):
        log.disk.try_write()
    log.append(1_000_000)  # there is room for the log, but a checkpoint would make the node leave again
    log.disk.close()


def test_what_an_interrupted_trial_has_left_is_removed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path, MAP_BYTES)
    removals = 0

    def interrupted(environment: Any, table: Any) -> None:
        nonlocal removals
        removals += 1
        if removals == 2:
            raise lmdb.DiskError("killed")

    monkeypatch.setattr("corel.trial_write.remove_trial", interrupted)
    with pytest.raises(DiskError, match="killed"):
        log.disk.try_write()
    monkeypatch.undo()
    assert b"trial" in log.small_values()
    log.disk.close()
    log = Log(tmp_path, MAP_BYTES)
    assert b"trial" not in log.small_values()
    log.disk.close()


@pytest.mark.parametrize("size", [1_000, 300_000])
def test_on_a_full_file_system_a_trial_fails_until_there_is_room(small_disk: Path, size: int) -> None:
    (small_disk / "filler").write_bytes(bytes(1_500_000))
    log = Log(small_disk / "a", 64 * 1024**2)
    log.fill(size)
    for _ in range(5):
        with pytest.raises(DiskFull, match=r"Make room; the node takes writes again by itself"):
            log.disk.try_write()
    assert len(log.disk.load().queue.red) == log.next
    (small_disk / "filler").unlink()
    log.disk.try_write()
    log.append(size)
    assert b"trial" not in log.small_values()
    log.disk.close()
