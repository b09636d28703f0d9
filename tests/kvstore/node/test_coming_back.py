"""The way back to a disk that failed, without clock, threads and event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from corel.disk_errors import DamagedLog, DiskFull, damaged
from kvstore.node.coming_back import ComingBack

DAMAGE = damaged(Path("data"), "as a test says")


class Surroundings:
    """A disk that refuses so many trial writes, and then lets the node begin, or shows that it is damaged."""

    def __init__(self, refusals: int, is_damaged: bool = False) -> None:
        self.begun = 0
        self.reasons: list[str] = []
        self._refusals = refusals
        self._is_damaged = is_damaged

    def now(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None: ...

    async def writer_ended(self) -> None: ...

    def reopen_log(self) -> None: ...

    async def try_write(self) -> None:
        self._refusals -= 1
        if self._refusals >= 0:
            raise DiskFull("no room")

    def begin(self) -> None:
        if self._is_damaged:
            raise DAMAGE
        self.begun += 1

    def cannot_come_back(self, reason: str) -> None:
        self.reasons.append(reason)


def test_a_node_comes_back_when_a_trial_write_succeeds() -> None:
    coming_back, surroundings = ComingBack(), Surroundings(refusals=3)
    pause = coming_back.failed(DiskFull("no room"), 0.0)
    assert pause is not None
    asyncio.run(coming_back.come_back(surroundings, pause))
    assert (surroundings.begun, surroundings.reasons, coming_back.trouble) == (1, ["no room"] * 3, None)


def test_a_node_does_not_come_back_to_a_damaged_log() -> None:
    coming_back = ComingBack()
    assert coming_back.failed(DAMAGE, 0.0) is None
    assert coming_back.trouble is DAMAGE


def test_a_node_that_finds_its_log_damaged_on_its_way_back_gives_up() -> None:
    coming_back, surroundings = ComingBack(), Surroundings(refusals=1, is_damaged=True)
    coming_back.failed(DiskFull("no room"), 0.0)
    with pytest.raises(DamagedLog):
        asyncio.run(coming_back.come_back(surroundings, 1.0))
    assert isinstance(coming_back.trouble, DamagedLog)
