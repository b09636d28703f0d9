"""A node's disk is built from a snapshot of another's, whole or not at all."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from corel import Lines, NotAhead, log_building
from corel.disk_errors import DiskError, Truncated
from corel.verification import verify
from kvstore.node.snapshot_format import Chunk, DamagedSnapshot, Header
from kvstore.node.snapshot_source import SnapshotSource, green_batch
from kvstore.node.snapshot_target import INCOMING, REVISIONS_SKIPPED, own_log, settle
from kvstore.store import Put, Write
from kvstore.store.history import Compacted
from tests.kvstore.node.snapshots import (
    CLUSTER,
    GENERATION,
    MAP_BYTES,
    WorkingDisk,
    chunks,
    content,
    filled,
    opened,
    put_rest,
    target_in,
)
from tests.kvstore.store.test_green_state import FIRST_PLACE


def built(source: SnapshotSource, directory: Path, own: Lines | None = None) -> Lines:
    """Builds the disk of b, which is empty but for its lines, and puts it into its place."""
    with closing(target_in(directory)) as target:
        target.begin(source.header_bytes)
        put_rest(target, source)
        lines = target.finish_learning(own or Lines(), [])
    assert settle(directory, CLUSTER, "b", MAP_BYTES)
    return lines


def test_a_built_disk_has_all_that_the_source_had(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    source = disk.source()
    lines = built(source, tmp_path / "b")
    assert verify(tmp_path / "b") > 100
    with opened(tmp_path / "b") as (log, tree):
        image = log.load()
        assert image.lines == lines
        assert (lines.green, lines.green_digest) == (disk.lines.green, disk.lines.green_digest)
        assert (lines.cut, lines.is_learned, lines.committed) == (31, True, 2)
        assert content(log) == content(disk.log)
        assert (tree.line, tree.revision) == (31, 31)
        assert tree.tombstone("key 00003") == disk.tree.tombstone("key 00003") is not None
        assert tree.remembered("once 7") == disk.tree.remembered("once 7") is not None
        assert [entry.id for entry in log.green(31, 10)] == [entry.id for entry in disk.log.green(31, 10)]
        assert log.green_digest(33) == disk.lines.green_digest
        assert (tree.past.oldest(), tree.past.conflicts(FIRST_PLACE, 9)) == (31, [])
    source.close()
    disk.close()


def test_a_snapshot_is_of_one_moment_whatever_is_written_meanwhile(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    source = disk.source()
    expected = content(disk.log)

    def write_on() -> None:
        for number in range(40):
            disk.green(*[Write((Put(f"key {(number + 7 * n) % 40:05}", b"x" * 300),)) for n in range(5)])

    writer = threading.Thread(target=write_on)
    writer.start()
    built(source, tmp_path / "b")
    writer.join()
    with opened(tmp_path / "b") as (log, _):
        assert content(log) == expected
    assert content(disk.log) != expected
    source.close()
    disk.close()


def test_what_became_green_since_the_snapshot_follows_it(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        for number in range(7):
            disk.green(Write((Put("new", b"%d" % number),)), is_checkpointed=False)
        target.begin(source.header_bytes)
        put_rest(target, source)
        while (batch := green_batch(disk.log, target.position.line, 100)).records:
            target.put_batch(batch.to_bytes())
        lines = target.finish_learning(Lines(), [])
    assert (lines.green, lines.green_digest, lines.streams) == (40, disk.lines.green_digest, disk.lines.streams)
    assert settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES)
    with opened(tmp_path / "b") as (log, tree):
        assert [entry.body for entry in log.green(31, 99)] == [entry.body for entry in disk.log.green(31, 99)]
        assert tree.line == 31
    disk.close()


def test_messages_of_a_later_primary_component_are_taken_over_only_with_all_that_it_began_with(
    tmp_path: Path,
) -> None:
    """Primary 9 was established since the snapshot, with a queue of 39 messages. With 36 of them, the disk would
    claim to have learned of an earlier one, whose members have another order in mind."""
    disk = filled(tmp_path / "a")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        disk.lines = replace(disk.lines, established=9, established_base=39)
        for number in range(7):
            disk.green(Write((Put("new", b"%d" % number),)), is_checkpointed=False)
        target.begin(source.header_bytes)
        put_rest(target, source)
        while target.position.line < 36:
            target.put_batch(green_batch(disk.log, target.position.line, 1).to_bytes())
        with pytest.raises(
            DamagedSnapshot, match="not whole: the lines that go with the last messages are missing"
        ):
            target.finish_learning(Lines(), [])
        target.put_batch(green_batch(disk.log, 36).to_bytes())
        lines = target.finish_learning(Lines(), [])
    assert (lines.green, lines.committed, lines.is_learned) == (40, 9, True)
    disk.close()


def test_messages_that_are_truncated_are_not_handed_out(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    disk.lines = replace(disk.lines, cut=10)
    disk.green(Write((Put("k", b"v"),)))
    with pytest.raises(Truncated, match="is kept from position 10 on"):
        green_batch(disk.log, 9)
    assert green_batch(disk.log, 34).records == []
    disk.close()


# Taking over


def test_red_messages_of_the_nodes_own_stay_and_what_is_green_is_there_once(tmp_path: Path) -> None:
    disk, own = filled(tmp_path / "a"), WorkingDisk(tmp_path / "b", "b")
    own.lines = replace(own.lines, committed=1, established=1)
    reds = own.logged(*[Write((Put("red", b"%d" % number),)) for number in range(3)])
    own.close()
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        put_rest(target, source)
        lines = target.finish_learning(*own_log(tmp_path / "b"))
    assert settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES)
    with opened(tmp_path / "b") as (log, _):
        queue = log.load().queue
        assert [entry.id for entry in queue.red] == [record.id for record in reds]
        assert [log.body(entry.arrival) for entry in queue.red] == [record.body for record in reds]
        assert (len(queue), lines.open_from, lines.next_arrival) == (36, 2, 5)
        assert (lines.is_voter, lines.committed, lines.generation) == (True, 2, GENERATION)
    assert verify(tmp_path / "b")
    disk.close()


def test_a_node_that_knows_as_much_takes_nothing_over(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        put_rest(target, source)
        with pytest.raises(NotAhead, match="same primary component"):
            target.finish_learning(replace(disk.lines), [])
    assert not settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES)
    disk.close()


def test_a_new_generation_begins_with_the_state_and_has_no_primary_component_yet(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        put_rest(target, source)
        lines = target.finish_new_cluster()
        assert settle_is_refused(tmp_path / "b")
    assert (lines.committed, lines.attempted, lines.established, lines.participants) == (0, 0, 0, ())
    assert (lines.is_voter, lines.green, lines.base, lines.cut) == (True, 33, 33, 31)
    assert lines.generation == source.id != GENERATION
    assert settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES)
    with opened(tmp_path / "b") as (log, _), closing(SnapshotSource(log, 5)) as again:
        assert again.header.lineage == (
            (GENERATION, 33, disk.lines.green_digest, 1_000, "restored from a backup of node a"),
        )
    disk.close()


def test_a_new_generation_gives_no_revision_that_the_old_one_may_have_given(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "a")) as disk, closing(target_in(tmp_path / "b")) as target:
        with closing(disk.source()) as source:
            target.begin(source.header_bytes)
            put_rest(target, source)
        target.finish_new_cluster()
        target.close()
        assert settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES)
        with opened(tmp_path / "b") as (_, tree):
            assert (tree.line, tree.revision) == (33, 33 + REVISIONS_SKIPPED)
            assert tree.item("later") == disk.state.item("later") is not None
            assert tree.past.oldest() == tree.revision
            with pytest.raises(Compacted):
                tree.past.changes(34, 1, 10**9)


def settle_is_refused(directory: Path) -> bool:
    """Whether a disk that is in use stays where it is."""
    with pytest.raises(DiskError, match="in use"):
        settle(directory, CLUSTER, "b", MAP_BYTES)
    return True


# Damage


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda parts: [flipped(parts[0])], "a chunk is damaged"),
        (lambda parts: [parts[0][:-1]], "a chunk is damaged, or cut short"),
        (lambda parts: [parts[0], parts[2]], "came where one of items after"),
        (lambda parts: [parts[1]], "came where one of items after b'' was due"),
        (lambda parts: [parts[0], parts[0]], "came where one of items after"),
        (lambda parts: [parts[-1]], "a chunk of state after b'' came"),
    ],
)
def test_a_chunk_that_is_damaged_or_not_due_is_refused(
    tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]], why: str
) -> None:
    disk = filled(tmp_path / "a")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        *fit, unfit = damage(list(chunks(source)))
        for chunk in fit:
            target.put_chunk(chunk)
        before = target.position
        with pytest.raises(DamagedSnapshot, match=why):
            target.put_chunk(unfit)
        assert target.position == before
        put_rest(target, source)  # it goes on with what is due
        target.finish_learning(Lines(), [])
    disk.close()


def test_chunks_of_another_snapshot_are_refused(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        disk.green(Write((Put("k", b"v"),)))
        with closing(disk.source()) as later, pytest.raises(DamagedSnapshot, match="another snapshot"):
            target.put_chunk(next(chunks(later)))
    disk.close()


def test_a_record_that_is_damaged_on_the_sources_disk_is_refused(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        chunk = source.chunk("items", b"", 200)
        [(key, value), *rest] = chunk.records
        rotten = chunk._replace(records=[(key, flipped(value)), *rest])
        with pytest.raises(DamagedSnapshot, match="items b'key 00000' has a wrong checksum"):
            target.put_chunk(rotten.to_bytes(source.id))
    disk.close()


def test_records_that_are_missing_at_the_end_of_a_table_are_noticed(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        first = Chunk.of(next(chunks(source)), source.id)
        with pytest.raises(DamagedSnapshot, match=r"items has 29 records, and \d came"):
            target.put_chunk(first._replace(is_last=True).to_bytes(source.id))
        with pytest.raises(DamagedSnapshot, match="records of items are missing"):
            target.finish_learning(Lines(), [])
    disk.close()


def test_messages_that_are_missing_swapped_or_others_are_noticed(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        for chunk in chunks(source):
            target.put_chunk(chunk)
        with pytest.raises(DamagedSnapshot, match="messages from 31 on are missing"):
            target.finish_learning(Lines(), [])
        batch = source.batch(31)
        swapped = batch._replace(records=batch.records[::-1])
        with pytest.raises(DamagedSnapshot, match="are not those that became green"):
            target.put_batch(swapped.to_bytes())
        with pytest.raises(DamagedSnapshot, match="32 on came where 31 was due"):
            target.put_batch(source.batch(32).to_bytes())
        with pytest.raises(DamagedSnapshot, match="a batch of messages is damaged"):
            target.put_batch(flipped(batch.to_bytes()))
    disk.close()


def test_a_header_of_another_format_or_a_damaged_one_is_refused() -> None:
    with pytest.raises(DamagedSnapshot, match="its header is damaged"):
        Header.of(b"short")


# Crashes


def test_a_target_that_is_killed_after_any_part_goes_on_there(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a", count=8)
    with closing(disk.source()) as source:
        parts = 0
        while True:
            with closing(target_in(tmp_path / "b")) as target:
                position = target.begin(source.header_bytes)
                if position.table is not None:
                    target.put_chunk(source.chunk(position.table, position.after, 100).to_bytes(source.id))
                elif position.line < source.header.lines.green:
                    target.put_batch(source.batch(position.line, 1).to_bytes())
                else:
                    break
            parts += 1
            assert not settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES), "it is not whole"
        with closing(target_in(tmp_path / "b")) as target:
            target.begin(source.header_bytes)
            target.finish_learning(Lines(), [])
    assert parts > 15
    assert settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES)
    with opened(tmp_path / "b") as (log, _):
        assert content(log) == content(disk.log)
    disk.close()


def test_with_another_snapshot_it_begins_anew(tmp_path: Path) -> None:
    disk = filled(tmp_path / "a")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        target.put_chunk(next(chunks(source)))
    disk.green(Write((Put("key 00000", b"newer"),)))
    with closing(disk.source()) as source:
        with closing(target_in(tmp_path / "b")) as target:
            assert target.begin(source.header_bytes) == ("items", b"", 34)
        built(source, tmp_path / "b")
    with opened(tmp_path / "b") as (log, _):
        assert content(log) == content(disk.log)
    disk.close()


class Crash(Exception):
    pass


STEPS = ("sync_directory 1", "unlink", "replace", "sync_directory 2", "sync_directory 3", "remove_log")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_before", [True, False])
def test_a_crash_at_any_step_of_the_switch_leaves_the_old_disk_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, is_before: bool
) -> None:
    disk, own = filled(tmp_path / "a", count=5), WorkingDisk(tmp_path / "b", "b")
    own.lines = replace(own.lines, committed=1)
    own.green(Write((Put("old", b"1"),)))
    own.close()
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        put_rest(target, source)
        target.finish_learning(*own_log(tmp_path / "copy"))
    with monkeypatch.context() as patched:
        crash_at(patched, step, is_before)
        with pytest.raises(Crash):
            settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES)
    is_old = STEPS.index(step) + (not is_before) <= STEPS.index("replace")
    shutil.copytree(tmp_path / "b", tmp_path / "seen")
    with opened(tmp_path / "seen") as (_, tree):
        assert (tree.item("old") is not None) == is_old
        assert (tree.item("key 00001") is None) == is_old
    assert settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES) == is_old
    assert not (tmp_path / "b" / INCOMING).exists()
    with opened(tmp_path / "b") as (log, _):
        assert content(log) == content(disk.log)
    disk.close()


def crash_at(patched: pytest.MonkeyPatch, step: str, is_before: bool) -> None:
    """Has the switch end just before or just after a step of it."""
    name, _, number = step.partition(" ")
    owner: object = {"unlink": Path, "replace": os}.get(name, log_building)
    real, calls = getattr(owner, name), iter(range(1, 9))

    def crashing(*arguments: object, **options: object) -> None:
        is_due = next(calls) == int(number or 1)
        if not (is_due and is_before):
            real(*arguments, **options)
        if is_due:
            raise Crash

    patched.setattr(owner, name, crashing)


def test_a_copy_does_not_take_the_place_of_a_disk_with_which_the_node_has_gone_on(tmp_path: Path) -> None:
    """What it has written since, and promised, would be forgotten."""
    disk, own = filled(tmp_path / "a", count=5), WorkingDisk(tmp_path / "b", "b")
    own.lines = replace(own.lines, committed=1)
    own.green(Write((Put("old", b"1"),)))
    lines = own.lines
    with closing(disk.source()) as source, closing(target_in(tmp_path / "b")) as target:
        target.begin(source.header_bytes)
        put_rest(target, source)
        target.finish_learning(lines, ())
    own.lines = replace(own.lines, attempted=7)
    own.green(Write((Put("new", b"2"),)))
    own.close()
    assert not settle(tmp_path / "b", CLUSTER, "b", MAP_BYTES)
    assert not (tmp_path / "b" / INCOMING).exists()
    with opened(tmp_path / "b") as (_, tree):
        assert tree.item("new") is not None
    disk.close()
