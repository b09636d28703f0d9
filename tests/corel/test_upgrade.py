"""A disk that an older version wrote is brought to this version's format, and loses nothing.

`disks/format-5.tar.gz` is the directory of node a of a cluster of three that the last version of format 5 ran:
forty PUTs of fifteen keys, each with an idempotency key, a DELETE of `key/3` and an increment of `counter`."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corel.disk_errors import DiskError
from corel.lmdb_log import LmdbLog
from corel.lmdb_reading import FORMAT
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST
from corel.read_only_log import ReadOnlyLog
from corel.verification import verify
from kvstore.node import fate_ages
from kvstore.node.fate_ages import age_fates
from kvstore.node.lmdb_tree import LmdbTree

ARCHIVE = Path(__file__).parent / "disks" / "format-5.tar.gz"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "a"


def opened(directory: Path, upgrade: Callable[[LmdbLog], None] = lambda log: None) -> LmdbLog:
    return LmdbLog(directory, "dev-1f2641ea", "a", map_bytes=64 * 1024**2, upgrade=upgrade)


def test_a_disk_of_format_5_is_upgraded_and_has_everything(directory: Path) -> None:
    with pytest.raises(DiskError, match=r"format 5; this version of corelkv reads 6\. Start its node once"):
        ReadOnlyLog(directory)
    log = opened(directory)
    lines = log.load().lines
    assert (lines.green, lines.committed, lines.is_voter, lines.participants) == (42, 1, True, ())
    assert [str(entry.id).rpartition(".")[2] for entry in log.green(0, 50)] == [str(n) for n in range(1, 43)]
    assert [log.green_digest(line) for line in (0, 17, 42)] == [
        chained(EMPTY_DIGEST, log.green(0, line)) for line in (0, 17, 42)
    ]
    assert log.green_digest(42) == lines.green_digest
    assert log.green_digest(lines.base) == lines.base_digest
    log.close()
    assert ReadOnlyLog(directory).identity.form == FORMAT
    assert verify(directory) > 100


def test_its_tree_is_read_as_before(directory: Path) -> None:
    log = opened(directory)
    tree = LmdbTree(log)
    assert (tree.line, tree.revision) == (42, 42)
    item, counter = tree.item("key/4"), tree.item("counter")
    assert item is not None
    assert item.value == b"value 34"
    assert counter is not None
    assert counter.value == b"5"
    assert tree.item("key/3") is None
    memory = tree.remembered("k34")
    assert memory is not None
    assert memory.revision == 34
    log.close()


def ages_of(log: LmdbLog) -> list[int]:
    """The positions of the messages whose fates have an age."""
    ages = log.table("fate_ages")
    with log.read(ages) as transaction, transaction.cursor() as cursor:
        return [int.from_bytes(key, "big") for key, _ in cursor]


def test_its_fates_get_an_age(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = opened(directory, age_fates)
    assert ages_of(log) == list(range(42))
    log.close()
    assert [record.getMessage().partition("a ")[2] for record in caplog.records] == [
        "is being upgraded: what became of 42 messages gets an age",
        "has been upgraded",
    ]
    assert verify(directory) > 140


@pytest.mark.parametrize("transactions", [0, 1, 3, 4])
def test_an_upgrade_that_was_interrupted_goes_on(
    directory: Path, monkeypatch: pytest.MonkeyPatch, transactions: int
) -> None:
    monkeypatch.setattr(fate_ages, "AGED_AT_ONCE", 10)
    update = LmdbLog.update
    done: list[Callable[[Any], None]] = []

    def crashing(log: LmdbLog, change: Callable[[Any], None]) -> None:
        if len(done) == transactions:
            raise KeyboardInterrupt
        done.append(change)
        update(log, change)

    with monkeypatch.context() as patch:
        patch.setattr(LmdbLog, "update", crashing)
        with pytest.raises(KeyboardInterrupt):
            opened(directory, age_fates)
    with pytest.raises(DiskError, match=r"has begun, and was interrupted; .* Start its node once"):
        ReadOnlyLog(directory)
    assert verify(directory) > 100
    log = opened(directory, age_fates)
    assert ages_of(log) == list(range(42))
    log.close()
    assert verify(directory) > 140


def test_an_upgrade_happens_once(directory: Path) -> None:
    opened(directory).close()
    before = (directory / "data.mdb").read_bytes()
    log = opened(directory)
    assert log.load().lines.green == 42
    log.close()
    assert len(before) == len((directory / "data.mdb").read_bytes())


def test_an_upgrade_that_is_interrupted_goes_on_where_it_was(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = shutil.copytree(directory, tmp_path / "whole")
    monkeypatch.setattr("corel.lmdb_upgrade._RECORDS_AT_ONCE", 5)
    for steps in (1, 2, 3):
        count = iter(range(steps))
        with monkeypatch.context() as patch:
            patch.setattr(LmdbLog, "update", _limited(LmdbLog.update, count))
            with pytest.raises(DiskError, match="interrupted"):
                opened(directory)
    log, other = opened(directory), opened(whole)
    assert log.load().lines == other.load().lines
    log.close()
    other.close()


def _limited(update: Any, count: Iterator[int]) -> Any:
    """Returns an `update` that works as often as there are numbers, and then fails."""

    def some(log: LmdbLog, change: Any) -> None:
        if next(count, None) is None:
            raise DiskError("interrupted")
        update(log, change)

    return some


def test_a_format_that_is_not_known_is_refused_with_a_sentence(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corel.lmdb_log.UPGRADABLE", ())
    monkeypatch.setattr("corel.lmdb_reading.UPGRADABLE", ())
    with pytest.raises(DiskError, match=r"in format 5; .* Use the version that wrote it"):
        opened(directory)
