"""The way back of a simulated node whose disk failed: the product's (`ComingBack`), in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from corel.disk_errors import DamagedLog
from kvstore.node.coming_back import ComingBack
from tests.simulator.corel.memory_log import MemoryLog
from tests.simulator.world import Action, World


class Pause:
    """What a step of the product's code awaits: so many seconds of simulated time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self._seconds


class Absence:
    """One absence. It is the surroundings that the product's code asks for, with the simulation's clock."""

    def __init__(
        self,
        world: World,
        log: Callable[[], MemoryLog],
        is_writing: Callable[[], bool],
        is_postponed: Callable[[Action], bool],
        begin: Callable[[], None],
        stay_away: Callable[[DamagedLog], None],
    ) -> None:
        self._world = world
        self._log = log
        self._is_writing = is_writing
        self._is_postponed = is_postponed
        self._stay_away = stay_away
        self._steps: Any = None
        self.begin = begin
        self.is_over = False
        self.reasons: list[str] = []
        """Why attempts to come back have failed."""

    def start(self, coming_back: ComingBack, pause: float) -> None:
        self._steps = coming_back.come_back(self, pause)
        self._go_on()

    def cancel(self) -> None:
        self.is_over = True
        self._steps.close()

    def _go_on(self) -> None:
        if self.is_over or self._is_postponed(self._go_on):
            return
        try:
            seconds = self._steps.send(None)
        except StopIteration:
            self.is_over = True
        except DamagedLog as error:
            self.is_over = True
            self._stay_away(error)
        else:
            self._world.after(1_000.0 * seconds, self._go_on)

    # What the product's code asks for

    def now(self) -> float:
        return self._world.now / 1_000.0

    async def sleep(self, seconds: float) -> None:
        await Pause(seconds)

    async def writer_ended(self) -> None:
        while self._is_writing():
            await Pause(0.02)

    def reopen_log(self) -> None:
        self._log().space.reopen_if_unusable()

    async def try_write(self) -> None:
        await Pause(0.001)
        self._log().space.try_write()

    def cannot_come_back(self, reason: str) -> None:
        self.reasons.append(reason)
