"""Reading much of a state without holding the event loop: a slice at a time, and one slice in each of its turns,
however many requests read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from time import perf_counter
from typing import TypeAlias

from kvstore.store import Item, Snapshot, Span

SLICE_SECONDS = 0.001
"""How long a slice takes, and at most one key longer. By a clock and not by a number of keys, because what they
cost differs: one may have a value of a mebibyte, or lie in a past that takes many records to read."""

Visit: TypeAlias = Callable[[str, Item], bool]
"""Takes a key and what it holds. Returns whether more keys are needed."""


class SlicedScan:
    """A scan of a snapshot that can pause after every slice."""

    def __init__(self, snapshot: Snapshot, span: Span, is_reverse: bool) -> None:
        self._snapshot = snapshot
        self._span = span
        self._is_reverse = is_reverse

    def read_slice(self, visit: Visit) -> bool:
        """Visits the next keys in order, and returns whether there may be more. Raises `Compacted`."""
        end = perf_counter() + SLICE_SECONDS
        with closing(self._snapshot.walk(self._span, self._is_reverse)) as walk:
            for key, item in walk:
                if item is not None and not visit(key, item):
                    return False
                if perf_counter() >= end:
                    break
            else:
                return False
        name = key.encode()
        self._span = self._span.before(name) if self._is_reverse else self._span.after(name)
        return True


class Turns:
    """Gives one request at a time, first come, first served, a turn of the event loop for a slice."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def read_slice(self, scan: SlicedScan, visit: Visit) -> bool:
        async with self._lock:
            is_more = scan.read_slice(visit)
            await asyncio.sleep(0)
        return is_more

    async def rest(self) -> None:
        """Lets everything else have its turn between two parts of other work."""
        async with self._lock:
            await asyncio.sleep(0)
