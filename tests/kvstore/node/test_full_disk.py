"""A node whose map or file system is full stays away until it has room, however often its disk fails."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corel.config import CorelConfig
from corel.disk_errors import DiskError, DiskFull
from kvstore.node.restarting import RestartingDriver
from kvstore.node.synced_numbers import ClockFloor
from kvstore.store.replies import Done
from tests.kvstore.node.nodes import Nodes

SMALL_MAP = CorelConfig(map_bytes=4 * 1024**2)
FAR_REACHING = CorelConfig(recovery_bytes_max=1024**3)
"""A node that lacks as much as this test writes comes back within the others' view."""


class Seen:
    """The incarnations of c, and the views of a, during some seconds of writes through a."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.incarnations: set[int] = set()
        self.views: set[object] = set()
        self.done = 0

    async def watch(self, seconds: float, body_bytes: int) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    self.done += isinstance(await self._nodes.put("a", bytes(body_bytes)), Done)
            self.incarnations.add(self._nodes.nodes["c"].driver.stack.me.incarnation)
            self.views.add(self._nodes.nodes["a"].driver.stack.view.id)
            await asyncio.sleep(0.02)


async def fill(nodes: Nodes, full: RestartingDriver, body_bytes: int) -> None:
    async with asyncio.timeout(30.0):
        while full.trouble is None:
            await nodes.put("a", bytes(body_bytes))


def started(nodes: Nodes, data: Path | None = None, log: CorelConfig | None = None) -> RestartingDriver:
    """Starts a, b, and c with a small disk, and returns c."""
    nodes.start("a")
    nodes.start("b")
    return nodes.start("c", data=data, log=log)


@pytest.mark.parametrize("body_bytes", [20_000, 300_000])
def test_a_node_whose_map_is_full_stays_away_and_comes_back_with_a_larger_one(
    broadcast_port: int, tmp_path: Path, body_bytes: int
) -> None:
    async def scenario() -> None:
        nodes = Nodes("abc", broadcast_port, tmp_path, FAR_REACHING)
        c = started(nodes, log=SMALL_MAP)
        await nodes.primary("abc")
        await nodes.done("a", b"first")
        await fill(nodes, c, body_bytes)
        await nodes.primary("ab")
        seen = Seen(nodes)
        await seen.watch(6.0, body_bytes)
        assert len(seen.incarnations) == 1
        assert len(seen.views) == 1, "the others are not disturbed"
        assert seen.done > 20
        assert isinstance(c.trouble, DiskFull)
        assert nodes.value("c") is not None, "it answers reads"
        last = await nodes.done("a", b"last")
        await c.close()
        nodes.start("c", bootstrap=False)
        await nodes.primary("abc")
        await nodes.eventually(lambda: nodes.value("c") == b"last")
        assert last.rpartition(".")[0] in {str(one) for one in nodes.green("a")}
        await nodes.eventually(lambda: nodes.green("c") == nodes.green("a"))
        await nodes.close()

    asyncio.run(scenario())


def test_a_node_whose_file_system_is_full_stays_away_until_there_is_room(
    broadcast_port: int, tmp_path: Path, small_disk: Path
) -> None:
    async def scenario() -> None:
        filler = small_disk / "filler"
        filler.write_bytes(bytes(1_000_000))
        nodes = Nodes("abc", broadcast_port, tmp_path)
        c = started(nodes, data=small_disk / "c")
        await nodes.primary("abc")
        await fill(nodes, c, 300_000)
        await nodes.primary("ab")
        os.truncate(filler, 850_000)  # room for small writes, and not for one like that which failed
        seen = Seen(nodes)
        await seen.watch(6.0, 200)
        assert len(seen.incarnations) == 1
        assert len(seen.views) == 1
        filler.unlink()
        await nodes.primary("abc")
        await nodes.done("a", b"last")
        await nodes.eventually(lambda: nodes.value("c") == b"last")
        await nodes.close()

    asyncio.run(scenario())


def test_a_disk_that_fails_after_every_trial_is_tried_less_and_less_often(
    broadcast_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The back-off is the node's, not that of one of its incarnations."""

    async def scenario() -> None:
        nodes = await Nodes.in_primary("abc", broadcast_port, tmp_path)
        c = nodes.nodes["c"]

        def failing(*arguments: Any) -> None:
            raise DiskFull("no room")

        monkeypatch.setattr(c.log, "write", failing)
        seen = Seen(nodes)
        await seen.watch(10.0, 200)
        assert len(seen.incarnations) in (3, 4), "it came back after 1, 2 and 4 seconds"
        assert len(seen.views) <= 10
        assert seen.done > 50
        await nodes.close()

    asyncio.run(scenario())


def failing_once(raise_above: Callable[[ClockFloor, int], None]) -> Callable[[ClockFloor, int], None]:
    failures: list[OSError] = [OSError(errno.ENOSPC, "No space left on device")]

    def failing(floor: ClockFloor, clock: int) -> None:
        if failures:
            raise failures.pop()
        raise_above(floor, clock)

    return failing


def test_a_file_system_without_room_for_a_small_file_is_a_full_disk_and_no_reason_to_stop(
    broadcast_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        nodes = Nodes("a", broadcast_port, tmp_path)
        failed: list[Exception] = []
        node = nodes.start("a")
        node._on_failed = failed.append
        await nodes.primary("a")
        await nodes.done("a", b"first")
        monkeypatch.setattr(ClockFloor, "raise_above", failing_once(ClockFloor.raise_above))
        await nodes.eventually(lambda: node.trouble is not None)
        assert isinstance(node.trouble, DiskError)
        assert "clock floor cannot be written" in str(node.trouble)
        await nodes.eventually(lambda: node.trouble is None)
        await nodes.primary("a")
        await nodes.done("a", b"again")
        assert failed == []
        await nodes.close()

    asyncio.run(scenario())
