"""Simulated time: a queue of events, executed in order of time and, within an instant, of scheduling."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

Action: TypeAlias = Callable[[], None]


class World:
    """The clock that all of a simulation shares, in milliseconds, and the events to come."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._order = count()

    def at(self, time: float, action: Action) -> None:
        heapq.heappush(self._events, (max(time, self.now), next(self._order), action))

    def after(self, delay: float, action: Action) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), action))

    def run_until(self, time: float, stop: Callable[[], bool] | None = None) -> bool:
        """Executes events up to `time`; returns early, with True, as soon as `stop()` holds."""
        events = self._events
        while events and events[0][0] <= time:
            self.now, _, action = heapq.heappop(events)
            action()
            if stop is not None and stop():
                return True
        self.now = time
        return False
