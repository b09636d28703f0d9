"""A lock and an election for threads: the steps of `locking`, and a thread that renews the lease."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kvstore.client.errors import CorelError, LockLost
from kvstore.client.locking import Holder, Holding, Leading, LockSteps
from kvstore.client.steps import Steps

Run = Callable[[Steps[Any]], Any]


class Lock(Holding):
    """A lock on a key. `locking` says what it guarantees; in short, give `token` to whatever the lock protects,
    and let that refuse a token lower than one it has seen.

        with client.lock("locks/report") as lock:
            publish(report, token=lock.token)
    """

    def __init__(self, steps: LockSteps, run: Run) -> None:
        super().__init__(steps)
        self._run = run
        self._mutex = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, timeout: float | None = None, renew: bool = True) -> int:
        """Waits for the lock, and returns its token. With `renew`, a thread renews the lease until it is released.
        Raises `LockTimeout`."""
        self._stop.set()  # whoever renewed an earlier lease that was lost
        with self._mutex:
            token: int = self._run(self._steps.acquire(timeout))
        if renew:
            self._stop = threading.Event()
            name = f"lock {self._steps.key}"
            self._thread = threading.Thread(target=self._keep, args=(self._stop,), name=name, daemon=True)
            self._thread.start()
        return token

    def renew(self) -> None:
        """Begins the lease anew. Raises `LockLost` if somebody else has the lock."""
        with self._mutex:
            self._run(self._steps.renew())

    def release(self) -> None:
        """Lets the next one have the lock at once, instead of when the lease ends."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._mutex:
            self._run(self._steps.release())

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _keep(self, stop: threading.Event) -> None:
        """Renews the lease. What fails is tried again with the next renewal; if none succeeds, the lease ends."""
        while not stop.wait(self._steps.renewal_seconds):
            try:
                self.renew()
            except LockLost:
                return
            except CorelError:
                continue


class Election(Leading):
    """The election of a leader: `campaign` returns when this candidate leads, `resign` lets another one."""

    def __init__(self, steps: LockSteps, run: Run) -> None:
        self._steps = steps
        self._run = run
        self._lock = Lock(steps, run)
        super().__init__(self._lock)

    def campaign(self, timeout: float | None = None) -> int:
        """Waits until this candidate leads, and returns the token of its term."""
        return self._lock.acquire(timeout)

    def resign(self) -> None:
        self._lock.release()

    def leader(self) -> Holder | None:
        """Returns who leads, as the store says; the leader itself may have failed since."""
        found: Holder | None = self._run(self._steps.look())
        return found

    def __enter__(self) -> Self:
        self.campaign()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resign()
