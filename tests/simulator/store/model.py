"""What writes do, implemented again as simply as possible: the model that the checkers compare the store with."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from corel.messages import MessageId
from kvstore.store.history import Change, ConflictPlace, FoundConflict
from kvstore.store.operations import (
    NUMBER_MAX,
    VALUE_BYTES_MAX,
    Append,
    Condition,
    Delete,
    Exists,
    Get,
    Increment,
    Merge,
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
    WrittenBy,
)
from kvstore.store.state import TEXT, Conflict, ConflictKind, Item, LastChange, Outcome, Verdict, Why
from kvstore.store.write_codec import Batch, decode_batch, decode_write
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
    changed: tuple[str, ...]
    """The keys that it changed, in the order in which it changed them first."""
    values: tuple[bytes | None, ...]
    """The value of each operation's key after it."""


def perform(cells: Mapping[str, Cell], write: Write, stamp: str, holds: Holds) -> Result:
    failed = [one for one in write.conditions if not holds(one, cells.get(one.key))]
    if failed and write.otherwise is None:
        return _rejected(cells, Why.CONDITION_FAILED, failed[0].key)
    after = dict(cells)
    touched: dict[str, None] = {}
    values: list[bytes | None] = []
    for operation in (write.otherwise or ()) if failed else write.then:
        before = after.get(operation.key)
        why = _perform_one(after, operation, stamp)
        if why is not Why.NONE:
            return _rejected(cells, why, operation.key)
        cell = after.get(operation.key)
        if cell != before:
            touched[operation.key] = None
        values.append(None if cell is None else cell.value)
    changed = tuple([key for key in touched if after.get(key) != cells.get(key)])
    return Result(Verdict.APPLIED, Why.NONE, "", not failed, after, changed, tuple(values))


def _rejected(cells: Mapping[str, Cell], why: Why, key: str) -> Result:
    return Result(Verdict.REJECTED, why, key, False, dict(cells), (), ())


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


class Knowledge(NamedTuple):
    """What a node had when it sent a message, as the simulator saw it."""

    line: int
    """How much of the one order."""
    messages: frozenset[MessageId]
    """The messages that were not green."""
    base: int | None = None
    """How much of the order there was when its primary component began; None outside a primary component."""


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

    def __init__(
        self,
        history: History,
        window: int = 1_000_000,
        knowledge: Mapping[MessageId, Knowledge] | None = None,
    ) -> None:
        self.history = history
        self.window = window
        """For how many messages an idempotency key or a deletion is remembered."""
        self.knowledge = knowledge
        """What the sender of each message knew; None if all of them knew everything."""
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
        self.feed: list[Change] = []
        """What each revision changed."""
        self.conflicts: list[FoundConflict] = []
        self._cells: dict[str, Cell] = {}
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

    def scan(self, revision: int) -> list[tuple[str, Item]]:
        """Returns all keys in order, with what they hold at this revision."""
        items = [(key, self.item(key, revision)) for key in sorted(self._changes)]
        return [(key, item) for key, item in items if item is not None]

    def versions(self, key: str) -> list[tuple[int, str, Item | None]]:
        """Returns every change of a key, newest first: the revision, the write, and what the key held then."""
        revisions, items = self._changes.get(key, ([], []))
        pairs = zip(reversed(revisions), reversed(items), strict=True)
        return [(revision, self.changers[revision], item) for revision, item in pairs]

    def advance(self) -> None:
        """Applies the rest of what is known of the order."""
        for position in range(self.line, len(self.history.order)):
            message_id = self.history.order[position]
            batch = decode_batch(self.history.bodies[message_id])
            self.fates[message_id] = tuple(
                self._apply(f"{message_id}.{place}", position, place, data, batch)
                for place, data in enumerate(batch.writes)
            )
            self.revisions.append(len(self.changers) - 1)

    def _apply(self, write_id: str, position: int, place: int, data: bytes, batch: Batch) -> Outcome:
        write = decode_write(data)
        key = write.idempotency_key
        outcome = known = None if key is None else self._repeated(key, position, data, batch.expires)
        if outcome is None:
            before = len(self.changers)
            outcome, conflicts = self._perform(write, write_id, position)
            revision = before if len(self.changers) > before else None
            for number, conflict in enumerate(conflicts):
                where = ConflictPlace(len(self.changers) - 1, position, place, number)
                self.conflicts.append(FoundConflict(where, write_id, batch.accepted_ms, revision, conflict))
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
        known = [placed for placed in self.decided.get(key, ()) if placed.position >= position - self.window]
        if not known:
            is_late = expires < position
            return Outcome(Verdict.EXPIRED, None) if is_late else None
        first = known[-1]
        if first.data != data:
            return Outcome(Verdict.REJECTED, 0, Why.IDEMPOTENCY_KEY_REUSED)
        was = first.outcome
        return was._replace(verdict=Verdict.DUPLICATE, first_id=first.write_id, first_verdict=was.verdict)

    def _perform(self, write: Write, write_id: str, position: int) -> tuple[Outcome, list[Conflict]]:
        result = perform(self._cells, write, write_id, self._holds)
        if result.verdict is Verdict.REJECTED:
            item = self.item(result.key, len(self.changers))
            revision = 0 if item is None else item.revision
            conflicts = self._unknown(ConflictKind.REJECTED, [result.key], position)
            return Outcome(Verdict.REJECTED, revision, result.why, result.key, False), conflicts
        yields = self._unknown(ConflictKind.YIELDED, result.changed, position)
        if yields and write.merge is Merge.KEEP_GREEN:
            _, key, (other, revision) = yields[0]
            return Outcome(Verdict.YIELDED, revision, Why.NONE, key, False, other), yields
        conflicts = []
        operations = write.then
        if not result.branch:
            operations = write.otherwise or ()
            failed = next(one for one in write.conditions if not self._holds(one, self._cells.get(one.key)))
            conflicts += self._unknown(ConflictKind.OTHERWISE, [failed.key], position)
        replaced = {one.key for one in operations if isinstance(one, (Put, Delete))}
        overwritten = [key for key in result.changed if key in replaced]
        conflicts += self._unknown(ConflictKind.OVERWROTE, overwritten, position)
        return Outcome(Verdict.APPLIED, self._change(result, write_id), branch=result.branch), conflicts

    def _change(self, result: Result, write_id: str) -> int | None:
        """Makes the changes of a write, and returns their revision."""
        if not result.changed:
            return None
        revision = len(self.changers)
        self.changers.append(write_id)
        changes: list[tuple[str, Item | None]] = []
        for key in result.changed:
            cell = result.cells.get(key)
            item = None if cell is None else Item(cell.value, cell.content_type, revision, write_id)
            revisions, items = self._changes.setdefault(key, ([], []))
            revisions.append(revision)
            items.append(item)
            changes.append((key, item))
        self._cells = result.cells
        self.feed.append(Change(revision, write_id, tuple(changes)))
        return revision

    def _unknown(self, kind: ConflictKind, keys: Iterable[str], position: int) -> list[Conflict]:
        """Returns the last changes of these keys that the sender of the message at this position did not know."""
        message_id = self.history.order[position]
        if self.knowledge is None or not self._has_merged(message_id, position):
            return []
        knowledge = self.knowledge[message_id]
        found = []
        for key in keys:
            revisions, items = self._changes.get(key, ([], []))
            if not revisions:
                continue
            other = self.by_id[self.changers[revisions[-1]]]
            other_message = self.history.order[other.position]
            is_forgotten = items[-1] is None and other.position + self.window < position
            is_known = other.position < knowledge.line or other_message in knowledge.messages
            if not is_forgotten and not is_known and other_message.stream != message_id.stream:
                found.append(Conflict(kind, key, LastChange(other.write_id, revisions[-1])))
        return found

    def _has_merged(self, message_id: MessageId, position: int) -> bool:
        """Whether a message was sent outside a primary component, or has its place after a message that was sent
        elsewhere since its component began."""
        assert self.knowledge is not None
        views, base = self.history.views, self.knowledge[message_id].base
        between = () if base is None else self.history.order[base:position]
        return base is None or any(views[one] != views[message_id] for one in between)

    def _holds(self, condition: Condition, cell: Cell | None) -> bool:
        return holds(condition, cell, self.changers)


class Forecast(Replay):
    """The order up to a line, and what would happen if other messages came next. Those have no revisions that a
    condition could name."""

    def __init__(self, replay: Replay, line: int, following: Iterable[MessageId]) -> None:
        log = replay.history
        order = [*log.order[:line], *following]
        super().__init__(History(order, bodies=log.bodies, views=log.views), replay.window, replay.knowledge)
        self._last = replay.revisions[line]
        self.advance()

    def _holds(self, condition: Condition, cell: Cell | None) -> bool:
        return holds(condition, cell, self.changers[: self._last + 1])


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
