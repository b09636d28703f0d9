"""What the streams of a node's status share."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api import status_stream
from api.status_stream import StatusFeed, Stream
from kvstore.node import Milestones


class CountingFeed(StatusFeed):
    """A feed of a status that a test sets, and how often it was looked at."""

    def __init__(self) -> None:
        node = SimpleNamespace(milestones=Milestones(), has_ended_feeds=False)
        figures = SimpleNamespace(count=1, after=lambda number: "[]")
        super().__init__(cast(Any, node), {}, cast(Any, figures))
        self.line = 0
        self.looks = 0

    def _content(self) -> dict[str, object]:
        self.looks += 1
        return {"line": self.line}


@pytest.fixture(autouse=True)
def _haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_stream, "TICK_SECONDS", 0.01)


async def statuses_of(stream: Stream, count: int) -> list[bytes]:
    found: list[bytes] = []
    async for chunk in stream.chunks():
        found += [part for part in chunk.split(b"\n\n") if part.startswith(b"event: status")]
        if len(found) >= count:
            break
    return found


def test_a_status_is_made_once_for_all_streams() -> None:
    async def scenario() -> None:
        feed = CountingFeed()
        with feed.open() as one, feed.open() as other:
            first = await asyncio.gather(statuses_of(one, 1), statuses_of(other, 1))
            feed.line = 7
            second = await asyncio.gather(statuses_of(one, 1), statuses_of(other, 1))
            assert feed.statuses == 2
        assert first[0] == first[1]
        assert second[0] == second[1]
        assert second[0][0].endswith(b'"line":7}')

    asyncio.run(scenario())


def test_nobody_looks_at_the_status_while_nobody_listens() -> None:
    async def scenario() -> None:
        feed = CountingFeed()
        assert feed.looks == 0
        with feed.open() as stream:
            await statuses_of(stream, 1)
        looks = feed.looks
        await asyncio.sleep(0.05)
        assert feed.looks == looks
        with feed.open() as stream:
            assert await statuses_of(stream, 1)
        assert feed.looks > looks

    asyncio.run(scenario())


def test_a_stream_that_was_slow_gets_the_newest_status_only() -> None:
    async def scenario() -> None:
        feed = CountingFeed()
        with feed.open() as stream, feed.open() as fast:
            await statuses_of(stream, 1)
            for line in range(1, 6):
                feed.line = line
                await statuses_of(fast, 1)
            [status] = await statuses_of(stream, 1)
        assert status.endswith(b'"line":5}')

    asyncio.run(scenario())
