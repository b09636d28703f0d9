"""Snapshots that are being read are bounded in number and in time, and are read beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corel import NotAhead
from corel.disk_errors import DiskError, UnusableLog
from corel.lmdb_log import LmdbLog
from kvstore.node import open_snapshots
from kvstore.node.fate_ages import ALL
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.open_snapshots import LEFT_MAX, OpenSnapshots, SnapshotConfig, TooManySnapshots
from kvstore.node.snapshot_format import Batch, Chunk
from kvstore.node.snapshot_source import SnapshotSource
from kvstore.store import Put, Write
from tests.kvstore.node.snapshots import WorkingDisk, filled

SECONDS_MAX = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(
    directory: Path,
    scenario: Callable[[OpenSnapshots, WorkingDisk, Clock], Awaitable[None]],
    config: SnapshotConfig | None = None,
) -> None:
    """Runs a scenario with the snapshots of a disk, by a clock that stands still."""

    async def with_snapshots() -> None:
        disk, clock = filled(directory), Clock()
        snapshots = OpenSnapshots(disk.log, config or SnapshotConfig(), clock)
        try:
            await asyncio.wait_for(scenario(snapshots, disk, clock), SECONDS_MAX)
        finally:
            snapshots.close_all()
            disk.close()

    asyncio.run(with_snapshots())


class Held:
    """A part that a thread has begun to read, and does not go on with."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def chunk(self, source: SnapshotSource, table: str, after: bytes, bytes_max: int) -> Chunk:
        self.has_begun.set()
        assert self.may_go_on.wait(SECONDS_MAX)
        return READ(source, table, after, bytes_max)

    async def begun(self) -> None:
        while not self.has_begun.is_set():
            await asyncio.sleep(0.001)


READ = SnapshotSource.chunk


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    found = Held()
    monkeypatch.setattr(SnapshotSource, "chunk", lambda *arguments: found.chunk(*arguments))
    try:
        yield found
    finally:
        found.may_go_on.set()


def test_one_that_nobody_reads_is_closed_and_one_that_is_read_is_not(tmp_path: Path) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        (read, _), (idle, _) = await snapshots.open(), await snapshots.open()
        with pytest.raises(TooManySnapshots):
            await snapshots.open()
        clock.now = 59.0
        assert await snapshots.chunk(read, "items", b"") is not None
        clock.now = 60.0
        assert await snapshots.chunk(idle, "items", b"") is None
        assert (len(snapshots), await snapshots.tail(read, 33) is None) == (1, False)
        await snapshots.open()
        snapshots.close_all()
        assert len(snapshots) == 0

    run(tmp_path, scenario, SnapshotConfig(open_max=2, idle_s=60))


def test_it_is_closed_when_its_time_is_over_although_nobody_asks(tmp_path: Path) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        await snapshots.open()
        assert due_in(snapshots) == pytest.approx(60.0, abs=1.0)
        clock.now = 60.0
        snapshots._on_timer()
        assert (len(snapshots), snapshots._timer) == (0, None)

    run(tmp_path, scenario, SnapshotConfig(idle_s=60))


def due_in(snapshots: OpenSnapshots) -> float:
    """In how many seconds it looks again what has expired."""
    assert snapshots._timer is not None
    return snapshots._timer.when() - asyncio.get_running_loop().time()


def test_the_timer_looks_when_the_next_one_can_expire(tmp_path: Path) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        name, _ = await snapshots.open()
        clock.now = 1.0
        await snapshots.chunk(name, "items", b"")
        clock.now = 60.0
        snapshots._on_timer()
        assert len(snapshots) == 1
        assert due_in(snapshots) == pytest.approx(1.0, abs=0.5)

    run(tmp_path, scenario, SnapshotConfig(idle_s=60))


def test_one_that_is_read_for_ever_is_closed_when_its_lifetime_is_over(tmp_path: Path) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        name, _ = await snapshots.open()
        for clock.now in (50.0, 99.0):
            assert await snapshots.chunk(name, "items", b"") is not None
        assert due_in(snapshots) == pytest.approx(1.0, abs=0.5)
        clock.now = 100.0
        assert await snapshots.chunk(name, "items", b"") is None
        assert len(snapshots) == 0

    run(tmp_path, scenario, SnapshotConfig(idle_s=60, lifetime_s=100))


# Beside the event loop


def test_the_event_loop_goes_on_while_a_part_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        name, _ = await snapshots.open()
        with held(monkeypatch) as part:
            reading = asyncio.create_task(snapshots.chunk(name, "items", b""))
            await part.begun()
            assert not reading.done()
            part.may_go_on.set()
            assert await reading is not None

    run(tmp_path, scenario)


def test_one_that_is_closed_while_a_part_is_read_is_closed_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        name, source = await snapshots.open()
        with held(monkeypatch) as part:
            reading = asyncio.create_task(snapshots.chunk(name, "items", b""))
            await part.begun()
            assert snapshots.close(name)
            assert await snapshots.chunk(name, "items", b"") is None
            part.may_go_on.set()
            content = await reading
        assert content is not None
        assert len(Chunk.of(content, source.id).records) == 29
        with pytest.raises(DiskError):
            source.batch(33)

    run(tmp_path, scenario)


def test_before_the_log_is_closed_the_part_that_is_read_ends_and_no_other_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        name, _ = await snapshots.open()
        with held(monkeypatch) as part:
            reading = asyncio.create_task(snapshots.chunk(name, "items", b""))
            await part.begun()
            others = [
                asyncio.create_task(waiting)
                for waiting in (snapshots.chunk(name, "items", b""), snapshots.log(33), snapshots.open())
            ]
            await asyncio.sleep(0)  # they wait for their turn
            threading.Timer(0.05, part.may_go_on.set).start()
            snapshots.close_all()
            assert part.may_go_on.is_set(), "it has waited for the thread"
            content = await reading
            assert content is not None
            for other in others:
                with pytest.raises(UnusableLog, match="is being closed or opened again"):
                    await other
        assert len(snapshots) == 0
        assert Batch.of(await snapshots.log(33)).records == [], "the log has been opened again"

    run(tmp_path, scenario)


def test_a_part_that_takes_long_to_compute_ends_when_the_log_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        monkeypatch.setattr(open_snapshots, "REST_SECONDS", 0.05)
        disk.green(*[Write((Put("merged", b"%d" % number),)) for number in range(1_000)])
        reading = asyncio.create_task(snapshots.log(1_000))
        while not snapshots._reading.locked():
            await asyncio.sleep(0.001)
        snapshots.close_all()
        with pytest.raises(UnusableLog, match="is being closed or opened again"):
            await reading

    run(tmp_path, scenario, SnapshotConfig(chunk_bytes=1_024))


def test_a_request_that_ends_while_a_snapshot_is_opened_leaves_none_open(tmp_path: Path) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        opening = asyncio.create_task(snapshots.open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert (len(snapshots), snapshots.oldest_line()) == (0, None)

    run(tmp_path, scenario)


# What is held for readers


def test_the_messages_after_a_snapshot_are_held_until_its_reader_has_had_time_to_fetch_them(
    tmp_path: Path,
) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        assert snapshots.oldest_line() is None
        name, _ = await snapshots.open()
        disk.green(Write((Put("more", b"1"),)))
        later, _ = await snapshots.open()
        assert snapshots.oldest_line() == 33
        snapshots.close(name)
        clock.now = 59.0
        await snapshots.tail(later, 34)
        assert snapshots.oldest_line() == 33
        clock.now = 60.0
        assert snapshots.oldest_line() == 34
        snapshots.close_all()
        clock.now = 120.0
        assert snapshots.oldest_line() is None

    run(tmp_path, scenario, SnapshotConfig(idle_s=60))


def test_they_are_held_as_long_as_somebody_goes_on_to_fetch_them_but_not_for_ever(tmp_path: Path) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        name, _ = await snapshots.open()
        snapshots.close(name)
        for clock.now in (50.0, 99.0):
            await snapshots.log(33)
            assert snapshots.oldest_line() == 33
        clock.now = 100.0
        assert snapshots.oldest_line() is None

    run(tmp_path, scenario, SnapshotConfig(idle_s=60, lifetime_s=100))


def test_no_more_than_so_many_that_were_closed_are_remembered(tmp_path: Path) -> None:
    async def scenario(snapshots: OpenSnapshots, disk: WorkingDisk, clock: Clock) -> None:
        for _ in range(LEFT_MAX + 5):
            snapshots.close((await snapshots.open())[0])
        assert len(snapshots._left) == LEFT_MAX

    run(tmp_path, scenario)


# What is refused


def test_a_disk_that_knows_of_no_primary_component_is_not_handed_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = LmdbLog(tmp_path, "test", "a", is_new_cluster=True)
        LmdbTree(log, ALL)
        snapshots = OpenSnapshots(log, SnapshotConfig(), Clock())
        with pytest.raises(NotAhead, match=r"^it knows of no primary component that was established"):
            await snapshots.open()
        assert (len(snapshots), snapshots.oldest_line()) == (0, None)
        log.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("bounds", [{"open_max": 0}, {"idle_s": 0}, {"chunk_bytes": 10}, {"lifetime_s": 59}])
def test_bounds_that_would_let_nothing_through_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        SnapshotConfig(**bounds)
