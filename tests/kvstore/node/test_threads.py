"""Calls in threads that are awaited on the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kvstore.node.threads import in_thread

SECONDS_MAX = 10.0


def test_it_returns_or_raises_what_the_call_does() -> None:
    async def scenario() -> None:
        assert await in_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await in_thread(divmod, 7, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("fails", [False, True])
def test_however_often_it_is_cancelled_it_ends_after_the_call(fails: bool) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def call() -> None:
        has_begun.set()
        assert may_end.wait(SECONDS_MAX)
        if fails:
            raise OSError("it is not told to anybody")

    async def scenario() -> None:
        task = asyncio.create_task(in_thread(call))
        while not has_begun.is_set():
            await asyncio.sleep(0.001)
        for _ in range(3):
            task.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, SECONDS_MAX)

    asyncio.run(scenario())
