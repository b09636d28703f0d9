"""How often, and how soon, a request is repeated."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The bounds of all attempts of one call."""

    attempts_max: int = 32
    """How many requests a call may send. More attempts survive longer failures; fewer load a struggling cluster
    less."""
    total_seconds: float = 30.0
    """No attempt begins later than this after the call began. An attempt that is under way is waited for."""
    wait_seconds: float = 0.1
    """The largest wait after every known node has been tried once. It doubles with each round."""
    wait_seconds_max: float = 2.0
    """The largest wait between two rounds. Retry-After, where a node sends it, may be longer."""
    avoid_seconds: float = 5.0
    """For how long a node that could not be reached is asked after all others."""

    def __post_init__(self) -> None:
        if self.attempts_max < 1:
            raise ValueError("attempts_max is at least 1: a call sends one request")
        if min(self.total_seconds, self.wait_seconds, self.wait_seconds_max, self.avoid_seconds) < 0:
            raise ValueError("no time of a retry policy is negative")

    def wait(self, round_: int, rng: Random) -> float:
        """Returns how long to wait before round `round_` (the first repetition is 1). It is drawn between half of
        the bound and the bound, so that clients that failed together do not come back together."""
        bound = min(self.wait_seconds * 2.0 ** min(round_ - 1, 30), self.wait_seconds_max)
        return bound * (0.5 + 0.5 * rng.random())


NO_RETRIES = RetryPolicy(attempts_max=1)
"""One request, to one node."""
