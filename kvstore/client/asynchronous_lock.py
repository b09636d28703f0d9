"""A lock and an election for an event loop: the steps of `locking`, and a task that renews the lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from kvstore.client.errors import CorelError, LockLost
from kvstore.client.locking import Holder, Holding, Leading, LockSteps
from kvstore.client.steps import Steps

Run = Callable[[Steps[Any]], Awaitable[Any]]


class AsyncLock(Holding):
    """A lock on a key. `locking` says what it guarantees; in short, give `token` to whatever the lock protects,
    and let that refuse a token lower than one it has seen.

        async with client.lock("locks/report") as lock:
            await publish(report, token=lock.token)
    """

    def __init__(self, steps: LockSteps, run: Run) -> None:
        super().__init__(steps)
        self._run = run
        self._mutex = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def acquire(self, timeout: float | None = None, renew: bool = True) -> int:
        """Waits for the lock, and returns its token. With `renew`, a task renews the lease until it is released.
        Raises `LockTimeout`."""
        await self._end_renewals()  # of an earlier lease that was lost
        async with self._mutex:
            token: int = await self._run(self._steps.acquire(timeout))
        if renew:
            self._task = asyncio.create_task(self._keep(), name=f"lock {self._steps.key}")
        return token

    async def renew(self) -> None:
        """Begins the lease anew. Raises `LockLost` if somebody else has the lock."""
        async with self._mutex:
            await self._run(self._steps.renew())

    async def release(self) -> None:
        """Lets the next one have the lock at once, instead of when the lease ends."""
        await self._end_renewals()
        async with self._mutex:
            await self._run(self._steps.release())

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    async def _end_renewals(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _keep(self) -> None:
        """Renews the lease. What fails is tried again with the next renewal; if none succeeds, the lease ends."""
        while True:
            await asyncio.sleep(self._steps.renewal_seconds)
            try:
                await self.renew()
            except LockLost:
                return
            except CorelError:
                continue


class AsyncElection(Leading):
    """The election of a leader: `campaign` returns when this candidate leads, `resign` lets another one."""

    def __init__(self, steps: LockSteps, run: Run) -> None:
        self._steps = steps
        self._run = run
        self._lock = AsyncLock(steps, run)
        super().__init__(self._lock)

    async def campaign(self, timeout: float | None = None) -> int:
        """Waits until this candidate leads, and returns the token of its term."""
        return await self._lock.acquire(timeout)

    async def resign(self) -> None:
        await self._lock.release()

    async def leader(self) -> Holder | None:
        """Returns who leads, as the store says; the leader itself may have failed since."""
        found: Holder | None = await self._run(self._steps.look())
        return found

    async def __aenter__(self) -> Self:
        await self.campaign()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.resign()
