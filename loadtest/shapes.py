"""How many users there are at each moment of a run. A shape is asked about once a second, with what was
observed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

STEPS = 5
KNEE_GROWTH = 1.25
"""How many times as many users each step of `Knee` has as the one before."""
KNEE_GAIN_LEAST = 1.05
"""How many times as many requests/s a step must bring for the next step to be tried."""


class Observed(NamedTuple):
    """What the last seconds were like."""

    requests_per_second: float
    p99_ms: float


class Level(NamedTuple):
    users: int
    spawn_rate: float
    """Users that are started or stopped per second on the way there."""


class Shape(Protocol):
    def at(self, elapsed: float, observed: Observed) -> Level | None:
        """Returns what to have now, or `None` when the run is over."""


@dataclass
class Soak:
    """Grows to all users within a twentieth of the run, at most half a minute, and stays there."""

    users: int
    duration: float = math.inf

    def at(self, elapsed: float, observed: Observed) -> Level | None:
        return None if elapsed >= self.duration else Level(self.users, self.users / min(30.0, self.duration / 20))


@dataclass
class Step:
    """Five steps of equal length, each with a fifth of the users more."""

    users: int
    duration: float = 300.0

    def at(self, elapsed: float, observed: Observed) -> Level | None:
        if elapsed >= self.duration:
            return None
        step = min(STEPS, int(elapsed / self.duration * STEPS) + 1)
        return Level(math.ceil(self.users * step / STEPS), max(1.0, self.users / 4))


@dataclass
class Spike:
    """A tenth of the users, and all of them in the third fifth of the run."""

    users: int
    duration: float = 300.0

    def at(self, elapsed: float, observed: Observed) -> Level | None:
        if elapsed >= self.duration:
            return None
        is_spike = 2 <= int(elapsed / self.duration * 5) < 3
        return Level(self.users if is_spike else max(1, self.users // 10), max(1.0, self.users / 2))


@dataclass
class Knee:
    """Finds where more users bring no more: each step has a quarter more users, until a step brings less than 5
    % more requests/s or a p99 above `p99_ms_max`. The run ends then, and `knee` is the last step that was
    good."""

    users: int
    """Where it stops at the latest."""
    duration: float = 300.0
    p99_ms_max: float = 500.0
    hold_seconds: float = 15.0
    """How long a step lasts; its last two thirds are judged."""
    steps: list[tuple[int, Observed]] = field(default_factory=list)
    """The steps that were judged, with what they were like."""
    knee: int | None = None
    _now: int = 0
    _since: float = 0.0
    _seen: list[Observed] = field(default_factory=list)

    def at(self, elapsed: float, observed: Observed) -> Level | None:
        if not self._now:
            self._begin(max(1, self.users // 20), elapsed)
        if elapsed - self._since > self.hold_seconds / 3:
            self._seen.append(observed)
        if elapsed >= self.duration:
            return None
        if elapsed - self._since >= self.hold_seconds and not self._go_on(elapsed):
            return None
        return Level(self._now, max(1.0, self._now / 2))

    def _begin(self, users: int, elapsed: float) -> None:
        self._now, self._since, self._seen = users, elapsed, []

    def _go_on(self, elapsed: float) -> bool:
        """Judges the step that ends now, and begins the next one. Returns false if it was the last."""
        rates = [one.requests_per_second for one in self._seen]
        mean = Observed(sum(rates) / len(rates), sorted(one.p99_ms for one in self._seen)[len(rates) // 2])
        before = self.steps[-1][1].requests_per_second if self.steps else 0.0
        self.steps.append((self._now, mean))
        if mean.p99_ms > self.p99_ms_max or mean.requests_per_second < before * KNEE_GAIN_LEAST:
            return False
        self.knee = self._now
        if self._now >= self.users:
            return False
        self._begin(min(self.users, max(self._now + 1, math.ceil(self._now * KNEE_GROWTH))), elapsed)
        return True


SHAPES = ("soak", "step", "spike", "knee")


def shape_of(name: str, users: int, duration: float | None, p99_ms_max: float) -> Shape:
    """Returns the shape of that name. Without a duration only a soak goes on for ever."""
    if name == "soak":
        return Soak(users, duration or math.inf)
    if name == "step":
        return Step(users, duration or 300.0)
    if name == "spike":
        return Spike(users, duration or 300.0)
    if name == "knee":
        return Knee(users, duration or 300.0, p99_ms_max)
    raise ValueError(f"there is no shape {name!r}: choose one of {', '.join(SHAPES)}")
