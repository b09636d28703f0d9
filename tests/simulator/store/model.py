"""What writes do, implemented again as simply as possible: the model that the checkers compare the store with."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from corel.messages import MessageId
from kvstore.store.operations import (
    NUMBER_MAX,
    VALUE_BYTES_MAX,
    Append,
    Condition,
    Delete,
    Exists,
    Get,
    Increment,
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
    WrittenBy,
)
from kvstore.store.state import TEXT, Item, Outcome, Verdict, Why
from kvstore.store.write_codec import decode_batch, decode_write
from tests.simulator.checkers.log import History


class Cell(NamedTuple):
    """The value of a key; `stamp` is the id of the write that last changed it."""

    value: bytes
    content_type: str
    stamp: str


Holds: TypeAlias = Callable[[Condition, Cell | None], bool]


class Result(NamedTuple):
    """What a write does at a place in the order."""

    verdict: Verdict
    why: Why
    key: str
    branch: bool
    cells: dict[str, Cell]
    """The whole state after it."""
    is_changed: bool
    values: tuple[bytes | None, ...]
    """The value of each operation's key after it."""


def perform(cells: Mapping[str, Cell], write: Write, stamp: str, holds: Holds) -> Result:
    failed = [one for one in write.conditions if not holds(one, cells.get(one.key))]
    if failed and write.otherwise is None:
        return _rejected(cells, Why.CONDITION_FAILED, failed[0].key)
    after = dict(cells)
    values: list[bytes | None] = []
    for operation in (write.otherwise or ()) if failed else write.then:
        why = _perform_one(after, operation, stamp)
        if why is not Why.NONE:
            return _rejected(cells, why, operation.key)
        cell = after.get(operation.key)
        values.append(None if cell is None else cell.value)
    return Result(Verdict.APPLIED, Why.NONE, "", not failed, after, after != cells, tuple(values))


def _rejected(cells: Mapping[str, Cell], why: Why, key: str) -> Result:
    return Result(Verdict.REJECTED, why, key, False, dict(cells), False, ())


def _perform_one(cells: dict[str, Cell], operation: Operation, stamp: str) -> Why:
    key = operation.key
    before = cells.get(key)
    content_type = before.content_type if before is not None else TEXT
    if isinstance(operation, Put):
        cells[key] = Cell(operation.value, operation.content_type, stamp)
    elif isinstance(operation, Delete):
        cells.pop(key, None)
    elif isinstance(operation, Append):
        value = (before.value if before is not None else b"") + operation.value
        if len(value) > VALUE_BYTES_MAX:
            return Why.VALUE_TOO_LARGE
        cells[key] = Cell(value, content_type, stamp)
    elif isinstance(operation, Increment):
        text = before.value if before is not None else b"0"
        if re.fullmatch(rb"-?[0-9]{1,19}", text) is None:
            return Why.NOT_A_NUMBER
        number = int(text) + operation.by
        if abs(number) > NUMBER_MAX:
            return Why.OUT_OF_RANGE
        cells[key] = Cell(b"%d" % number, content_type, stamp)
    else:
        assert isinstance(operation, Get)
    return Why.NONE


class Placed(NamedTuple):
    """A write at its final place."""

    write_id: str
    position: int
    place: int
    """Its place in its message."""
    data: bytes
    write: Write
    outcome: Outcome


class Replay:
    """The final order, applied write by write, as far as any node has it green."""

    def __init__(self, history: History, window: int = 1_000_000) -> None:
        self._history = history
        self._window = window
        """For how many messages an idempotency key is remembered."""
        self.writes: list[Placed] = []
        self.by_id: dict[str, Placed] = {}
        self.copies: dict[str, list[Placed]] = {}
        """The writes of each idempotency key, in order."""
        self.decided: dict[str, list[Placed]] = {}
        """Those of them that were not expired and not refused because of an earlier one."""
        self.fates: dict[MessageId, tuple[Outcome, ...]] = {}
        self.revisions = [0]
        """The revision at each line."""
        self.changers = [""]
        """The id of the write of each revision."""
        self._cells: dict[str, Cell] = {}
        self._stamps: dict[str, int] = {"": 0}
        """The revision of each write that changed something."""
        self._changes: dict[str, tuple[list[int], list[Item | None]]] = {}
        """For each key, the revisions at which it changed, and to what."""

    @property
    def line(self) -> int:
        return len(self.revisions) - 1

    @property
    def keys(self) -> list[str]:
        return list(self._changes)

    def item(self, key: str, revision: int) -> Item | None:
        """Returns what the key holds at this revision."""
        revisions, items = self._changes.get(key, ([], []))
        place = bisect_right(revisions, revision)
        return items[place - 1] if place else None

    def advance(self) -> None:
        """Applies the rest of what is known of the order."""
        for position in range(self.line, len(self._history.order)):
            message_id = self._history.order[position]
            body = self._history.bodies[message_id]
            self.fates[message_id] = tuple(
                self._apply(f"{message_id}.{place}", position, place, data, decode_batch(body).expires)
                for place, data in enumerate(decode_batch(body).writes)
            )
            self.revisions.append(len(self.changers) - 1)

    def _apply(self, write_id: str, position: int, place: int, data: bytes, expires: int) -> Outcome:
        write = decode_write(data)
        key = write.idempotency_key
        known = None if key is None else self._repeated(key, position, data, expires)
        outcome = known or self._perform(write, write_id)
        placed = Placed(write_id, position, place, data, write, outcome)
        if key is not None and known is None:
            self.decided.setdefault(key, []).append(placed)
        self.writes.append(placed)
        self.by_id[write_id] = placed
        if key is not None:
            self.copies.setdefault(key, []).append(placed)
        return outcome

    def _repeated(self, key: str, position: int, data: bytes, expires: int) -> Outcome | None:
        """Returns the outcome of a copy that is not decided itself."""
        known = [placed for placed in self.decided.get(key, ()) if placed.position >= position - self._window]
        if not known:
            is_late = expires < position
            return Outcome(Verdict.EXPIRED, None) if is_late else None
        first = known[-1]
        if first.data != data:
            return Outcome(Verdict.REJECTED, 0, Why.IDEMPOTENCY_KEY_REUSED)
        was = first.outcome
        return was._replace(verdict=Verdict.DUPLICATE, first_id=first.write_id, first_verdict=was.verdict)

    def _perform(self, write: Write, write_id: str) -> Outcome:
        result = perform(self._cells, write, write_id, self._holds)
        if result.verdict is Verdict.REJECTED:
            item = self.item(result.key, len(self.changers))
            return Outcome(Verdict.REJECTED, 0 if item is None else item.revision, result.why, result.key, False)
        if not result.is_changed:
            return Outcome(Verdict.APPLIED, None, branch=result.branch)
        revision = self._stamps[write_id] = len(self.changers)
        self.changers.append(write_id)
        for key in sorted({*result.cells, *self._cells}):
            cell = result.cells.get(key)
            if cell != self._cells.get(key):
                revisions, items = self._changes.setdefault(key, ([], []))
                revisions.append(revision)
                items.append(None if cell is None else Item(cell.value, cell.content_type, revision, write_id))
        self._cells = result.cells
        return Outcome(Verdict.APPLIED, revision, branch=result.branch)

    def _holds(self, condition: Condition, cell: Cell | None) -> bool:
        return holds(condition, cell, self.changers)


def holds(condition: Condition, cell: Cell | None, changers: list[str]) -> bool:
    """Whether a condition holds; `changers` are the ids of the writes of each revision."""
    if isinstance(condition, Exists):
        return (cell is not None) is condition.is_there
    if isinstance(condition, RevisionIs) and condition.revision == 0:
        return cell is None
    if cell is None:
        return False
    if isinstance(condition, RevisionIs):
        return condition.revision < len(changers) and cell.stamp == changers[condition.revision]
    if isinstance(condition, WrittenBy):
        return cell.stamp == condition.write_id
    assert isinstance(condition, ValueIs)
    return cell.value == condition.value
