"""What reads of keys and of lists have in common: the read levels, the past, and what they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum

from api.problems import Problem, trouble
from api.requests import number
from kvstore.node import Node
from kvstore.store import NUMBER_MAX, Interest, Trouble


class Read(StrEnum):
    GREEN = "green"
    RED = "red"
    LINEARIZABLE = "linearizable"


def past_revision(found: Mapping[str, str], level: Read) -> int | None:
    """Returns the `revision` that is asked for, if any: only the green state has a past."""
    if "revision" not in found:
        return None
    if level is not Read.GREEN:
        raise Problem(
            400,
            "contradictory_parameters",
            f"revision asks for what was green then, read={level} for what there is now. Leave out one of them.",
        )
    return number(found, "revision", 0, 0, NUMBER_MAX)


async def wait_for(node: Node, level: Read, least: int, wait_ms: float) -> None:
    """Waits until the node may answer a read of this level, and has reached the revision `least`."""
    if level is Read.LINEARIZABLE:
        failed = await node.until_linearizable(wait_ms)
        if failed is not None:
            raise trouble(failed)
    failed = await node.until_revision(least, wait_ms) if least else None
    if failed is Trouble.TIMEOUT:
        at = node.revision
        raise Problem(
            504,
            "revision_not_reached",
            f"This node is at revision {at}, and did not reach {least} within timeout_ms. Wait longer, or "
            "ask a node that is further ahead.",
            {"revision": at},
            {"Retry-After": "1"},
        )
    if failed is not None:
        raise trouble(failed)


async def until_changed(node: Node, key: str, after: int, wait_ms: float) -> bool:
    """Waits until a key has changed after this revision; returns whether it has in time."""
    interest = Interest(frozenset((key,)))
    try:
        async with asyncio.timeout(wait_ms / 1_000.0):
            while not _has_changed(node, key, after):
                store = node.feed_store
                if store is None:
                    raise trouble(Trouble.AWAY)
                changed = asyncio.Event()  # unlike a future, it may be set after the wait was cancelled
                waiting = store.feed.wait(interest, _setter(changed))
                try:
                    await changed.wait()
                finally:
                    store.feed.cancel(waiting)
    except TimeoutError:
        return False
    return True


def _setter(event: asyncio.Event) -> Callable[[int], None]:
    return lambda revision: event.set()


def _has_changed(node: Node, key: str, after: int) -> bool:
    item = node.find(key)
    if item is not None and item.revision is not None:
        return item.revision > after
    deleted = node.versions(key, NUMBER_MAX, 1)
    return deleted[0][0] > after if deleted else after < node.oldest_revision()
