"""The node as its clients see it, on a real disk and real sockets, and what happens when they fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corel.disk_errors import DiskError, DiskFull
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.node import Node, _oldest_readable
from kvstore.store.config import StoreConfig
from kvstore.store.operations import Increment, Put, Write
from kvstore.store.replies import Ack, Done, Failed, Trouble
from tests.drivers import loopback_config
from transport.chaos import Chaos

TIMEOUT_MS = 10_000.0
CHECKPOINT_MS = 500.0


def start_node(port: int, directory: Path, on_failed: Callable[[Exception], None] = lambda error: None) -> Node:
    """Starts the only node of a cluster."""
    store = StoreConfig(checkpoint_ms=CHECKPOINT_MS)
    node = Node(loopback_config("a", "a", directory, port, chaos=True, store=store), on_failed)
    node.start()
    return node


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0.01)


async def increment(node: Node) -> int | None:
    answer = await node.write(Write((Increment("n", 1),)), Ack.GREEN, TIMEOUT_MS)
    assert isinstance(answer, Done)
    return answer.applied.outcome.revision


def test_coming_back_after_a_full_disk_applies_nothing_twice(
    broadcast_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old incarnation's checkpoint must not reach the disk while the new one reads it."""
    load = LmdbTree.load

    def slow_load(tree: LmdbTree) -> None:
        load(tree)
        time.sleep(0.2)

    async def scenario() -> None:
        node = start_node(broadcast_port, tmp_path)
        await until(lambda: node.status().is_primary)
        assert [await increment(node) for _ in range(3)] == [1, 2, 3]
        spoilt = Chaos(delay_ms=1.0)
        node.chaos = spoilt
        await asyncio.sleep(0.2)  # the green line is on disk, a checkpoint is not due
        log = node._restarting.log
        write, try_write, failures = log.write, log.try_write, [DiskFull("no room")]

        def failing(*arguments: Any) -> None:
            if failures:
                raise failures.pop()
            time.sleep(0.1)
            write(*arguments)

        def slow_try_write() -> None:
            time.sleep(CHECKPOINT_MS / 1_000.0)
            try_write()

        monkeypatch.setattr(LmdbTree, "load", slow_load)
        monkeypatch.setattr(log, "write", failing)
        monkeypatch.setattr(log, "try_write", slow_try_write)  # the checkpoint is due when the node comes back
        lost = await node.write(Write((Put("k", b"v"),)), Ack.GREEN, TIMEOUT_MS)
        assert isinstance(lost, Failed)
        assert lost.trouble in (Trouble.AWAY, Trouble.UNDECIDED)
        assert node.find("n") is not None, "reads go on"
        await until(lambda: node.status().is_primary)
        assert await increment(node) == 4
        item = node.find("n")
        assert item is not None
        assert item.value == b"4"
        assert node.chaos == spoilt
        await node.close()

    asyncio.run(scenario())


def test_an_exception_in_the_store_stops_the_node(broadcast_port: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        failures: list[Exception] = []
        node = start_node(broadcast_port, tmp_path, failures.append)
        await until(lambda: node.status().is_primary)

        def broken() -> None:
            raise ZeroDivisionError("broken")

        node._restarting.store.dispatch = broken  # type: ignore[method-assign]
        answer = await node.write(Write((Put("k", b"v"),)), Ack.GREEN, TIMEOUT_MS)
        assert answer == Failed(Trouble.AWAY)
        assert [type(error) for error in failures] == [ZeroDivisionError]
        assert not node.status().is_primary
        assert await node.write(Write((Put("k", b"v"),)), Ack.RED, TIMEOUT_MS) == Failed(Trouble.AWAY)
        await node.close()

    asyncio.run(scenario())


def test_a_status_can_be_told_while_the_log_has_to_be_opened_again() -> None:
    class Unreadable:
        revision = 7

        def oldest(self) -> int:
            raise DiskError("it has to be opened again")

    assert _oldest_readable(SimpleNamespace(green=Unreadable())) == 7  # type: ignore[arg-type]
