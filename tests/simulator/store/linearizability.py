"""Tells whether a history of operations can be put in one order that respects real time and explains all results:
the search of Wing and Gong, which does not look at a configuration twice (Lowe).

An operation that was never answered may take effect at any time after it was invoked, or never. Operations on
different objects are independent, so a history is checked object by object."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

NEVER = float("inf")
CONFIGURATIONS_MAX = 20_000

State = TypeVar("State", bound=Hashable)


class TooHard(Exception):
    """No order was found among the configurations that were tried, and more were left."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[State]):
    """One operation of a history; `returned` is `NEVER` if there was no answer."""

    name: str
    invoked: float
    returned: float
    step: Callable[[State], State | None]
    """Returns the state after it, or None if what it returned cannot be explained in the given state."""
    hint: tuple[float, ...] = ()
    """Where to look first: operations with lower hints are tried before those with higher ones."""

    @property
    def is_complete(self) -> bool:
        return self.returned < NEVER


class _Frame(Generic[State]):
    """One configuration on the path, and what is still to be tried from it."""

    __slots__ = ("candidates", "done", "state")

    def __init__(self, done: int, state: State, candidates: list[int]) -> None:
        self.done = done
        self.state = state
        self.candidates = candidates


def linearize(
    operations: Sequence[Operation[State]], initial: State, configurations_max: int = CONFIGURATIONS_MAX
) -> list[str] | None:
    """Returns the names in an order that explains everything, or None if there is none. Raises `TooHard`."""
    ordered = sorted(operations, key=lambda one: (one.hint, one.invoked))
    required = sum(1 << place for place, one in enumerate(ordered) if one.is_complete)
    path: list[int] = []
    seen: set[tuple[int, State]] = set()
    frames = [_Frame(0, initial, _candidates(ordered, 0))]
    while frames:
        frame = frames[-1]
        if frame.done & required == required:
            return [ordered[place].name for place in path]
        advanced = _advance(ordered, frame, seen)
        if advanced is None:
            frames.pop()
            if path:
                path.pop()
            continue
        if len(seen) > configurations_max:
            raise TooHard(f"no order among {configurations_max} configurations of {len(ordered)} operations")
        place, state = advanced
        done = frame.done | 1 << place
        path.append(place)
        frames.append(_Frame(done, state, _candidates(ordered, done)))
    return None


def _advance(
    ordered: Sequence[Operation[State]], frame: _Frame[State], seen: set[tuple[int, State]]
) -> tuple[int, State] | None:
    """Returns the next operation that may come and leads to a configuration not seen before, and its state."""
    while frame.candidates:
        place = frame.candidates.pop()
        state = ordered[place].step(frame.state)
        if state is not None:
            configuration = (frame.done | 1 << place, state)
            if configuration not in seen:
                seen.add(configuration)
                return place, state
    return None


def _candidates(ordered: Sequence[Operation[State]], done: int) -> list[int]:
    """Returns the operations that may come next: what returned before an invocation comes before it. The last is
    tried first."""
    left = [place for place in range(len(ordered)) if not done >> place & 1]
    first_return = min((ordered[place].returned for place in left), default=NEVER)
    return [place for place in reversed(left) if ordered[place].invoked <= first_return]
