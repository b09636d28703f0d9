"""The state of a disk that is being built: messages after the snapshot are applied to it as they arrive."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from corel import Lines
from kvstore.node.snapshot_format import DamagedSnapshot
from kvstore.node.snapshot_source import green_batch
from kvstore.node.snapshot_target import SnapshotTarget, settle
from kvstore.store import Delete, Put, StoreConfig, Write
from kvstore.store.history import Compacted
from tests.kvstore.node.snapshots import (
    CLUSTER,
    MAP_BYTES,
    WorkingDisk,
    content,
    filled,
    opened,
    put_rest,
    target_in,
)

CONFIG = StoreConfig()


def write_more(disk: WorkingDisk, count: int = 40) -> None:
    for number in range(count):
        disk.green(Write((Put(f"more {number}", b"x" * number),), idempotency_key=f"more {number}"))
    disk.green(Write((Delete("key 00005"),)))


def follow(target: SnapshotTarget, disk: WorkingDisk, bytes_max: int = 2_000) -> None:
    while target.position.line < disk.lines.green:
        target.put_batch(green_batch(disk.log, target.position.line, bytes_max).to_bytes())
        target.apply(CONFIG)


def test_a_state_to_which_messages_were_applied_is_that_of_the_source(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "a")) as disk, closing(target_in(tmp_path / "b")) as target:
        with closing(disk.source()) as source:
            target.begin(source.header_bytes)
            put_rest(target, source)
            target.apply(CONFIG)
        write_more(disk)
        follow(target, disk)
        target.finish_learning(Lines(), [])
        target.close()
        assert settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES)
        disk.checkpoint()
        with opened(tmp_path / "b") as (log, tree):
            assert tree.line == disk.lines.green
            assert content(log) == content(disk.log)


def test_the_past_begins_at_the_snapshot_and_has_what_was_applied_since(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "a")) as disk, closing(target_in(tmp_path / "b")) as target:
        with closing(disk.source()) as source:
            target.begin(source.header_bytes)
            put_rest(target, source)
            revision = source.header.revision
        write_more(disk)
        follow(target, disk)
        target.finish_learning(Lines(), [])
        target.close()
        settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES)
        with opened(tmp_path / "b") as (_, tree):
            assert tree.past.oldest() == revision
            assert len(tree.past.changes(revision + 1, 1_000, 10**9)) == 43
            with pytest.raises(Compacted):
                tree.past.changes(revision, 1, 10**9)


def test_applying_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "a")) as disk:
        with closing(target_in(tmp_path / "b")) as target, closing(disk.source()) as source:
            target.begin(source.header_bytes, "its name")
            put_rest(target, source)
            target.apply(CONFIG)
        write_more(disk)
        with closing(target_in(tmp_path / "b")) as target:
            progress = target.resume()
            assert progress is not None
            assert (progress.name, progress.is_whole) == ("its name", True)
            follow(target, disk)
            assert target.finish_learning(Lines(), []).green == disk.lines.green


def test_lines_of_earlier_messages_are_not_enough_to_take_a_log_over(tmp_path: Path) -> None:
    """The messages since may have become green in a later primary component than these lines know."""
    with closing(filled(tmp_path / "a")) as disk, closing(target_in(tmp_path / "b")) as target:
        with closing(disk.source()) as source:
            target.begin(source.header_bytes)
            put_rest(target, source)
        write_more(disk)
        target.put_batch(green_batch(disk.log, target.position.line, 500).to_bytes())
        assert not target.progress.is_current
        with pytest.raises(DamagedSnapshot, match="the lines that go with the last messages are missing"):
            target.finish_learning(Lines(), [])


def test_a_copy_that_cannot_be_read_is_removed(tmp_path: Path) -> None:
    incoming = tmp_path / "b" / "incoming"
    incoming.mkdir(parents=True)
    (incoming / "data.mdb").write_bytes(b"not LMDB's" * 1_000)
    target = target_in(tmp_path / "b")
    assert target.resume() is None
    assert not incoming.exists()
