"""Green operations and linearizable reads are linearizable, key by key; keys that transactions touch together are
one object. A write that was not answered as green may have taken effect at any time since, or never."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from kvstore.store.operations import Write
from kvstore.store.replies import Done
from kvstore.store.state import Verdict, Why
from kvstore.store.store import Store
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import NEVER, Level, Read, Request, StoreChecker, StoreHistory
from tests.simulator.store.linearizability import Operation, TooHard, linearize
from tests.simulator.store.model import Cell, holds, perform

Cells: TypeAlias = frozenset[tuple[str, Cell]]

_UNPLACED = (NEVER,)


class Linearizable(StoreChecker):
    """`object_of` names the object that a key is part of."""

    def __init__(self, history: StoreHistory, object_of: Callable[[str], str]) -> None:
        super().__init__(history)
        self._object_of = object_of
        self.operations = 0

    def finished(self, stores: Mapping[str, Store]) -> None:
        objects: dict[str, list[Operation[Cells]]] = {}
        places = {
            placed.data: placed
            for placed in reversed(self.history.replay.writes)
            if placed.outcome.verdict is not Verdict.EXPIRED
        }
        for number, request in enumerate(self.history.requests):
            if request.invoked_at < NEVER and not _is_reused(request):
                placed = places.get(request.data)
                if placed is not None and placed.outcome.verdict is Verdict.YIELDED:
                    continue  # it has no effect, and neither have its copies
                stamp = placed.write_id if placed is not None else f"unplaced {number}"
                has_place = placed is not None and placed.outcome.why is not Why.IDEMPOTENCY_KEY_REUSED
                hint = (placed.position, placed.place) if placed is not None and has_place else _UNPLACED
                operation = self._of_request(request, stamp, hint)
                objects.setdefault(self._object_of(request.write.then[0].key), []).append(operation)
        for read in self.history.reads:
            if read.level is Level.LINEARIZABLE:
                objects.setdefault(self._object_of(read.key), []).append(_of_read(read))
        for name, operations in objects.items():
            self._check(name, operations)

    def _check(self, name: str, operations: list[Operation[Cells]]) -> None:
        self.operations += len(operations)
        try:
            order = linearize(operations, frozenset())
        except TooHard as hard:  # the order of the log is tried first, and it is one if all is well
            raise Violation(f"{name} is probably not linearizable: {hard}") from None
        if order is None:
            raise Violation(f"{name} is not linearizable: no order of its {len(operations)} operations is")

    def _of_request(self, request: Request, stamp: str, hint: tuple[float, ...]) -> Operation[Cells]:
        done = request.done
        answer, returned = done if done is not None else (None, NEVER)
        step = partial(_write, request.write, stamp, answer, self.history.replay.changers)
        return Operation(f"{request.write} {stamp}", request.invoked_at, returned, step, hint)


def _is_reused(request: Request) -> bool:
    """Whether the request has no effect, because its idempotency key was that of another write."""
    return request.done is not None and request.done[0].applied.outcome.why is Why.IDEMPOTENCY_KEY_REUSED


def _write(write: Write, stamp: str, answer: Done | None, changers: list[str], cells: Cells) -> Cells | None:
    result = perform(dict(cells), write, stamp, lambda condition, cell: holds(condition, cell, changers))
    if answer is not None:
        outcome = answer.applied.outcome
        if outcome.verdict is Verdict.DUPLICATE:
            if result.verdict is not outcome.first_verdict:
                return None
        else:
            values = tuple(None if item is None else item.value for item in answer.applied.results)
            answered = (outcome.verdict, outcome.branch, values)
            if (result.verdict, result.branch, result.values) != answered:
                return None
    return frozenset(result.cells.items())


def _of_read(read: Read) -> Operation[Cells]:
    item = read.item
    expected = None if item is None else Cell(item.value, item.content_type, item.write_id)

    def step(cells: Cells) -> Cells | None:
        return cells if dict(cells).get(read.key) == expected else None

    return Operation(f"read {read.key}: {item}", read.began_at, read.ended_at, step, (read.line, -1))
