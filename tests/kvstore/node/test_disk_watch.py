"""Warnings before a disk is full."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from corel.lmdb_log import DiskUsage, LmdbLog
from kvstore.node.disk_watch import WARN_SECONDS, DiskWatch, warnings_of

ROOMY = DiskUsage(used_bytes=10, map_bytes=1_000, file_system_bytes=1_000, free_bytes=900)


def test_there_is_no_warning_below_80_percent() -> None:
    assert warnings_of(ROOMY) == {}
    assert warnings_of(ROOMY._replace(used_bytes=799, free_bytes=201)) == {}


def test_a_warning_says_what_is_full_how_full_and_what_to_do() -> None:
    [sentence] = warnings_of(ROOMY._replace(used_bytes=800)).values()
    assert "80 % of log.map_bytes (800 of 1,000 bytes). Raise it on every node" in sentence
    [sentence] = warnings_of(ROOMY._replace(free_bytes=150)).values()
    assert "85 % full (150 bytes are free). Make room" in sentence


def test_a_file_system_that_does_not_say_how_large_it_is_causes_no_warning() -> None:
    assert warnings_of(ROOMY._replace(file_system_bytes=0, free_bytes=0)) == {}


def test_each_warning_is_logged_once_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = LmdbLog(tmp_path, "test", "a")
    watch, usage = DiskWatch(log), ROOMY
    monkeypatch.setattr(log, "usage", lambda: usage)
    with caplog.at_level(logging.WARNING, "corelkv"):
        watch.check(0.0)
        assert caplog.messages == []
        usage = ROOMY._replace(used_bytes=900)
        watch.check(10.0)
        watch.check(20.0)
        assert ["map_bytes" in message for message in caplog.messages] == [True]
        usage = ROOMY._replace(used_bytes=901, free_bytes=1)
        watch.check(30.0)
        assert ["map_bytes" in message for message in caplog.messages] == [True, False]
        watch.check(10.0 + WARN_SECONDS)
        assert len(caplog.messages) == 3
    log.close()


def test_the_usage_is_that_of_the_file_and_its_file_system(tmp_path: Path) -> None:
    log = LmdbLog(tmp_path, "test", "a", map_bytes=4 * 1024**2)
    usage = log.usage()
    assert usage.used_bytes == (tmp_path / "data.mdb").stat().st_size
    assert usage.map_bytes == 4 * 1024**2
    assert 0 < usage.free_bytes <= usage.file_system_bytes
    log.close()


def test_readers_that_died_are_forgotten_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, forgotten = LmdbLog(tmp_path, "test", "a"), []
    monkeypatch.setattr(log, "forget_dead_readers", lambda: forgotten.append(True))
    DiskWatch(log).check(0.0)
    assert forgotten == [True]
    log.close()
