"""The node as its clients see it: real disks and sockets, and what happens when they fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corel.quorum import Roster
from corel.store import DiskFull
from kvstore.machine import Ack, Done, Failed, Trouble
from kvstore.operations import Increment, Put, Write
from kvstore.participant import ParticipantConfig
from kvstore.service import Service, ServiceConfig
from kvstore.store_config import StoreConfig
from kvstore.tree import LmdbTree
from transport.chaos import Chaos
from transport.udp import BroadcastMode

PATIENCE_MS = 10_000.0
CHECKPOINT_MS = 500.0


def service_of(port: int, directory: Path, on_failed: Callable[[Exception], None] = lambda error: None) -> Service:
    """A cluster of one."""
    participant = ParticipantConfig(
        node="a",
        roster=Roster.of("a"),
        data=directory,
        mode=BroadcastMode(("127.255.255.255", port)),
        cluster=f"test-{port}",
        is_new_cluster=True,
        with_chaos=True,
    )
    return Service(ServiceConfig(participant, StoreConfig(checkpoint_ms=CHECKPOINT_MS)), on_failed)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0.01)


async def increment(service: Service) -> int | None:
    answer = await service.write(Write((Increment("n", 1),)), Ack.GREEN, PATIENCE_MS)
    assert isinstance(answer, Done)
    return answer.applied.outcome.revision


def test_coming_back_after_a_full_disk_applies_nothing_twice(
    broadcast_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old machine's checkpoint must not reach the disk while the new one reads it."""
    load = LmdbTree.load

    def slow_load(tree: LmdbTree) -> None:
        load(tree)
        time.sleep(0.2)

    async def scenario() -> None:
        service = service_of(broadcast_port, tmp_path)
        await until(lambda: service.is_primary)
        assert [await increment(service) for _ in range(3)] == [1, 2, 3]
        spoilt = Chaos(delay_ms=1.0)
        assert service.node.chaos is not None
        service.node.chaos.chaos = spoilt
        await asyncio.sleep(0.2)  # the green line is on disk, a checkpoint is not due
        store = service.participant.store
        write, probe, failures = store.write, store.probe, [DiskFull("no room")]

        def failing(*arguments: Any) -> None:
            if failures:
                raise failures.pop()
            time.sleep(0.1)
            write(*arguments)

        def slow_probe() -> None:
            time.sleep(CHECKPOINT_MS / 1_000.0)
            probe()

        monkeypatch.setattr(LmdbTree, "load", slow_load)
        monkeypatch.setattr(store, "write", failing)
        monkeypatch.setattr(store, "probe", slow_probe)  # the checkpoint is due when the node comes back
        lost = await service.write(Write((Put("k", b"v"),)), Ack.GREEN, PATIENCE_MS)
        assert isinstance(lost, Failed)
        assert lost.trouble in (Trouble.AWAY, Trouble.UNDECIDED)
        assert service.find("n") is not None, "reads go on"
        await until(lambda: service.is_primary)
        assert await increment(service) == 4
        item = service.find("n")
        assert item is not None
        assert item.value == b"4"
        assert service.node.chaos.chaos == spoilt
        await service.close()

    asyncio.run(scenario())


def test_an_exception_in_the_store_stops_the_node(broadcast_port: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        failures: list[Exception] = []
        service = service_of(broadcast_port, tmp_path, failures.append)
        await until(lambda: service.is_primary)

        def broken() -> None:
            raise ZeroDivisionError("broken")

        service.machine.dispatch = broken  # type: ignore[method-assign]
        answer = await service.write(Write((Put("k", b"v"),)), Ack.GREEN, PATIENCE_MS)
        assert answer == Failed(Trouble.AWAY)
        assert [type(error) for error in failures] == [ZeroDivisionError]
        assert not service.is_primary
        assert await service.write(Write((Put("k", b"v"),)), Ack.RED, PATIENCE_MS) == Failed(Trouble.AWAY)
        await service.close()

    asyncio.run(scenario())
