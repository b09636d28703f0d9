"""Waiting for a change of one key, without a server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from api.reads import until_changed
from kvstore.store import Feed


def node_with(feed: Feed) -> Any:
    """A node whose store has nothing but this feed."""
    return SimpleNamespace(
        feed_store=SimpleNamespace(feed=feed),
        find=lambda key: None,
        versions=lambda key, before, count: [],
        oldest_revision=lambda: 0,
    )


def test_a_change_in_the_turn_in_which_the_wait_is_cancelled_is_no_error() -> None:
    """The store calls the watcher, so an exception of it would stop the node."""

    async def scenario() -> None:
        feed = Feed()
        waiting = asyncio.create_task(until_changed(node_with(feed), "k", 7, 60_000.0))
        await asyncio.sleep(0)
        assert len(feed) == 1
        waiting.cancel()
        feed.changed(8, ["k"])
        await asyncio.gather(waiting, return_exceptions=True)
        assert len(feed) == 0

    asyncio.run(scenario())


def test_a_wait_ends_without_a_change() -> None:
    async def scenario() -> None:
        feed = Feed()
        assert not await until_changed(node_with(feed), "k", 7, 1.0)
        assert len(feed) == 0

    asyncio.run(scenario())
