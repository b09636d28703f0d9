"""The simulated disk: a crash affects only what was not synced, and affects it in every way."""

from __future__ import annotations

from random import Random

from tests.simulator.disk import Disk

OLD, NEW = b"old and safe", b"new and long enough to tear"


def content_after_crash(seed: int) -> bytes | None:
    disk = Disk(Random(seed))
    disk.write("file", OLD)
    disk.sync()
    disk.write("file", NEW)
    disk.crash()
    return disk.read("file")


def test_a_process_reads_its_own_writes_before_they_are_synced() -> None:
    disk = Disk(Random(1))
    assert disk.read("file") is None
    disk.write("file", OLD)
    assert disk.read("file") == OLD
    disk.sync()
    disk.write("file", NEW)
    assert disk.read("file") == NEW


def test_a_synced_write_survives_every_crash() -> None:
    for seed in range(100):
        disk = Disk(Random(seed))
        disk.write("file", OLD)
        disk.write("file", NEW)
        disk.sync()
        disk.crash()
        disk.crash()
        assert disk.read("file") == NEW


def test_an_unsynced_write_is_lost_kept_or_torn() -> None:
    contents = [content_after_crash(seed) for seed in range(200)]
    torn = [content for content in contents if content not in (OLD, NEW)]
    assert all(content is not None and NEW.startswith(content) for content in torn)
    for share in (contents.count(OLD), contents.count(NEW), len(torn)):
        assert 40 <= share <= 95  # a third of 200 each, with ample margin


def test_a_file_that_was_never_synced_may_not_exist_after_a_crash() -> None:
    def exists(seed: int) -> bool:
        disk = Disk(Random(seed))
        disk.write("file", NEW)
        disk.crash()
        return disk.read("file") is not None

    assert {exists(seed) for seed in range(20)} == {True, False}


def test_every_file_has_its_own_fate() -> None:
    disk = Disk(Random(7))
    for number in range(60):
        disk.write(f"file {number}", NEW)
    disk.crash()
    contents = [disk.read(f"file {number}") for number in range(60)]
    assert None in contents
    assert NEW in contents
    assert any(content not in (None, NEW) for content in contents)


def test_the_same_seed_tears_in_the_same_place() -> None:
    assert [content_after_crash(seed) for seed in range(20)] == [content_after_crash(seed) for seed in range(20)]


def test_what_a_crash_left_is_what_the_next_crash_leaves() -> None:
    disk = Disk(Random(3))
    disk.write("file", NEW)
    disk.crash()
    left = disk.read("file")
    for _ in range(20):
        disk.crash()
    assert disk.read("file") == left
