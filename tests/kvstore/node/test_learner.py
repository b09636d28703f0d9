"""What a node that learns does at its source and on its own disk, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corel import Lines, NotAhead
from corel.disk_errors import DiskError, DiskFull
from kvstore.node import learner as learner_module
from kvstore.node.config import NodeConfig
from kvstore.node.learner import Learner
from kvstore.node.learning import SnapshotGone, SourceError
from kvstore.node.metrics import Metrics
from kvstore.node.snapshot_format import DamagedSnapshot
from kvstore.node.snapshot_source import SnapshotSource, green_batch
from kvstore.node.snapshot_target import INCOMING, SnapshotTarget
from kvstore.node.source_client import HandedOut
from kvstore.store import Put, Write
from membership.effects import LeftBehind
from membership.messages import Progress
from tests.drivers import loopback_config
from tests.kvstore.node.snapshots import CLUSTER, MAP_BYTES, WorkingDisk, filled
from transport import Machine

URLS = {"a": "http://a", "b": "http://b", "c": "http://c"}


class Source:
    """A node that hands out its disk. It takes the place of the client that asks it, too."""

    def __init__(self, disk: WorkingDisk) -> None:
        self.disk = disk
        self.open_snapshots: dict[str, SnapshotSource] = {}
        self.opened = 0
        self.part_bytes = 200
        self.errors: list[SourceError | None] = []
        """What the next parts are answered with; None lets one pass."""

    def open(self) -> HandedOut:
        self.opened += 1
        source = self.open_snapshots[f"{self.opened}"] = self.disk.source()
        return HandedOut(f"{self.opened}", source.header_bytes)

    def _find(self, snapshot: str) -> SnapshotSource:
        self._fail()
        if snapshot not in self.open_snapshots:
            raise SnapshotGone("it refuses (404)")
        return self.open_snapshots[snapshot]

    def _fail(self) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def chunk(self, snapshot: str, table: str, after: bytes) -> bytes:
        source = self._find(snapshot)
        return source.chunk(table, after, self.part_bytes).to_bytes(source.id)

    def tail(self, snapshot: str, first: int) -> bytes:
        return self._find(snapshot).batch(first, self.part_bytes).to_bytes()

    def log(self, first: int) -> bytes:
        self._fail()
        return green_batch(self.disk.log, first, self.part_bytes).to_bytes()

    def forget(self, snapshot: str) -> None:
        if snapshot in self.open_snapshots:
            self.open_snapshots.pop(snapshot).close()

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Owner:
    """A node that lacks everything."""

    is_in_primary = False

    def own_lines(self) -> Lines:
        return Lines()

    async def switch(self, copy: SnapshotTarget) -> None: ...

    def note(self, event: str, **fields: object) -> None: ...


class World:
    """Node b, which learns, and sources that are found at URLs."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self.source = Source(filled(directory / "a", count=8))
        self.at = dict.fromkeys(URLS.values(), self.source)
        monkeypatch.setattr(learner_module, "SourceClient", self.at.__getitem__)
        monkeypatch.setattr(learner_module, "ROOM_BYTES_MIN", 0)
        self.data = directory / "b"
        self.data.mkdir()

    def config(self, **settings: Any) -> NodeConfig:
        made = loopback_config("b", "abc", self.data, 7400, cluster=CLUSTER, urls=URLS, **settings)
        return replace(made, log=replace(made.log, map_bytes=MAP_BYTES))

    def run(self, scenario: Callable[[Learner], Awaitable[None]], config: NodeConfig | None = None) -> None:
        learner = Learner(config or self.config(), Owner(), Metrics())

        async def closed_in_the_end() -> None:
            try:
                await scenario(learner)
            finally:
                learner._copy.close()

        asyncio.run(closed_in_the_end())
        for snapshot in self.source.open_snapshots.values():
            snapshot.close()
        self.source.disk.close()

    @property
    def has_copy(self) -> bool:
        return (self.data / INCOMING).exists()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


async def fetch_tables(learner: Learner) -> None:
    while await learner.fetch_chunk():
        pass


async def fetch_all(learner: Learner) -> int:
    await fetch_tables(learner)
    while not (page := await learner.fetch_messages()).is_whole:
        pass
    return page.line


async def learn(learner: Learner) -> None:
    await learner.open("a")
    await fetch_all(learner)


def test_a_snapshot_is_closed_at_the_source_as_soon_as_all_of_it_is_copied(world: World) -> None:
    async def scenario(learner: Learner) -> None:
        await learner.open("a")
        await fetch_tables(learner)
        assert len(world.source.open_snapshots) == 1
        assert await fetch_all(learner) == 11
        assert not world.source.open_snapshots
        await learner.open("c")
        assert await fetch_all(learner) == 11
        assert world.source.opened == 1, "any node has what follows"

    world.run(scenario)


def test_a_snapshot_that_cannot_be_completed_is_closed_before_another_is_opened(world: World) -> None:
    async def scenario(learner: Learner) -> None:
        for gone in range(1, 5):
            await learner.open("a")
            world.source.errors = [None, SnapshotGone("it refuses (410)")]
            with pytest.raises(SnapshotGone):
                await fetch_tables(learner)
            assert (world.source.opened, len(world.source.open_snapshots)) == (gone, 0)

    world.run(scenario)


@pytest.mark.parametrize("error", [DiskFull("the map is full"), DiskError("input/output error"), ValueError()])
@pytest.mark.parametrize("put", ["put_chunk", "put_batch", "apply"])
def test_what_this_node_cannot_take_is_given_up_at_the_source(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception, put: str
) -> None:
    def refuse(target: SnapshotTarget, *arguments: object) -> None:
        raise error

    async def scenario(learner: Learner) -> None:
        await learner.open("a")
        assert await learner.fetch_chunk()
        monkeypatch.setattr(SnapshotTarget, put, refuse)
        with pytest.raises(type(error)):
            await fetch_all(learner)
        assert (len(world.source.open_snapshots), world.has_copy) == (0, False)

    world.source.part_bytes = 1  # so that the first batch is not the last
    world.run(scenario)


@pytest.mark.parametrize("map_bytes", [60_000, 300_000])
def test_a_map_that_is_too_small_for_the_copy_holds_nothing_at_the_source(world: World, map_bytes: int) -> None:
    world.source.disk.green(*[Write((Put(f"large/{number}", bytes(10_000)),)) for number in range(50)])

    async def scenario(learner: Learner) -> None:
        learner._copy = SnapshotTarget(world.data, CLUSTER, "b", map_bytes)
        with pytest.raises(DiskFull, match=r"reached log\.map_bytes"):
            await learn(learner)
        assert (len(world.source.open_snapshots), world.has_copy) == (0, False)

    world.run(scenario)


def test_a_copy_that_is_not_a_state_is_dropped_and_its_source_may_close_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(target: SnapshotTarget, *arguments: object) -> None:
        raise DamagedSnapshot("its state is at line 8")

    async def scenario(learner: Learner) -> None:
        await learner.open("a")
        monkeypatch.setattr(SnapshotTarget, "apply", refuse)
        with pytest.raises(SnapshotGone, match="not a whole state: its state is at line 8"):
            await fetch_all(learner)
        assert (len(world.source.open_snapshots), world.has_copy) == (0, False)

    world.run(scenario)


def test_a_part_that_cannot_be_used_is_fetched_again_but_the_snapshot_is_given_up_if_it_is_always_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(learner: Learner) -> None:
        await learner.open("a")
        monkeypatch.setattr(world.source, "chunk", lambda *arguments: b"damaged")
        with pytest.raises(SourceError, match="cannot be used") as first:
            await learner.fetch_chunk()
        assert not isinstance(first.value, SnapshotGone)
        await learner.open("a")
        assert len(world.source.open_snapshots) == world.source.opened == 1
        with pytest.raises(SnapshotGone, match="cannot be used"):
            await learner.fetch_chunk()
        assert not world.source.open_snapshots

    world.run(scenario)


def test_a_staged_copy_that_this_disk_cannot_open_is_removed(world: World) -> None:
    async def scenario(learner: Learner) -> None:
        await learner.open("a")
        await learner.fetch_chunk()
        learner._copy.close()
        learner._copy = SnapshotTarget(world.data, "another", "b", MAP_BYTES)
        assert learner._find_staged() == ""
        assert not world.has_copy

    world.run(scenario)


# Which sources are of use


def test_a_url_that_leads_to_another_node_is_not_used(world: World) -> None:
    async def scenario(learner: Learner) -> None:
        with pytest.raises(NotAhead, match=r"http://c leads to node a, not to c\. Correct urls"):
            await learner.open("c")
        assert (len(world.source.open_snapshots), world.has_copy) == (0, False)

    world.run(scenario)


def left_behind(floor: int) -> LeftBehind:
    return LeftBehind(Machine("c", 1), Progress(2, 2, 99, 99, floor))


@pytest.mark.parametrize("floor", [11, 12])
def test_a_source_that_is_itself_behind_is_not_used(
    world: World, monkeypatch: pytest.MonkeyPatch, floor: int
) -> None:
    async def scenario(learner: Learner) -> None:
        monkeypatch.setattr(learner, "_task", asyncio.current_task())
        learner.left_behind(left_behind(floor))
        if floor == 11:
            await learner.open("a")
            assert await fetch_all(learner) == 11
            learner.left_behind(left_behind(12))
            with pytest.raises(NotAhead, match="itself behind"):
                await learner.fetch_messages()
        else:
            with pytest.raises(NotAhead, match="has 11 green messages, and is itself behind: c brings up only"):
                await learner.open("a")
            assert not world.source.open_snapshots

    world.run(scenario)


def test_nodes_are_asked_at_addresses_of_their_own_if_they_have_any(world: World) -> None:
    inside = Source(world.source.disk)
    world.at = {"http://inside": inside}

    async def scenario(learner: Learner) -> None:
        assert set(learner.sources()) == {"a", "c"}
        await learner.open("a")
        assert inside.opened == 1
        assert world.source.opened == 0

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(learner_module, "SourceClient", world.at.__getitem__)
        world.run(scenario, world.config(node_urls={"a": "http://inside"}))
