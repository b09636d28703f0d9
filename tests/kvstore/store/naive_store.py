"""A deliberately naive model of the state machine, to compare the real one with.

It follows sections 5 and 6 of the design: a write runs on a copy of everything, which is kept or discarded."""

from __future__ import annotations

import re

from kvstore.store.operations import (
    Append,
    Condition,
    Delete,
    Exists,
    Get,
    Merge,
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
)
from kvstore.store.state import Conflict, ConflictKind, Item, LastChange, Outcome, Verdict, Why

_LARGEST = 9_223_372_036_854_775_807
_LONGEST = 1_048_576
_NEW_TEXT = "text/plain; charset=utf-8"


class _Refused(Exception):
    pass


class NaiveStore:
    """The state after all messages so far. Idempotency keys and deletions are remembered for `memory_length`
    messages. A write with a key that is not remembered does nothing in a message that comes after its
    `last_place`."""

    def __init__(self, memory_length: int) -> None:
        self.items: dict[str, Item] = {}
        self.revision = 0
        self.position = 0
        self._memory_length = memory_length
        self._used: dict[str, tuple[Write, int, str, Outcome]] = {}
        self._touched: dict[str, tuple[str, int, int]] = {}
        """For each key there ever was, the write that changed it last, its revision and its position."""
        self._knew: frozenset[str] | None = None
        self.conflicts: list[list[Conflict]] = []
        """Of each write of the last message."""

    def message(
        self, name: str, writes: list[Write], last_place: float, knew: frozenset[str] | None = None
    ) -> list[Outcome]:
        """Applies the next message of the log, and returns the outcome of each of its writes. `knew` are the names
        of all messages that its sender had, if it sent it outside a primary component."""
        is_late = self.position > last_place
        self._knew = None if knew is None else knew | {name}
        self.conflicts = []
        outcomes = [self._write(f"{name}.{index}", write, is_late) for index, write in enumerate(writes)]
        self.position += 1
        return outcomes

    def _write(self, name: str, write: Write, is_late: bool) -> Outcome:
        self.conflicts.append([])
        if write.idempotency_key in self._used:
            first, position, first_id, what = self._used[write.idempotency_key]
            if self.position <= position + self._memory_length:
                if first != write:
                    return Outcome(Verdict.REJECTED, 0, Why.IDEMPOTENCY_KEY_REUSED)
                return what._replace(verdict=Verdict.DUPLICATE, first_id=first_id, first_verdict=what.verdict)
        if is_late and write.idempotency_key is not None:
            return Outcome(Verdict.EXPIRED, None)
        outcome = self._first_time(name, write)
        if write.idempotency_key is not None:
            self._used[write.idempotency_key] = (write, self.position, name, outcome)
        return outcome

    def _first_time(self, name: str, write: Write) -> Outcome:
        wrong = [one for one in write.conditions if not self._is_true(one)]
        if wrong and write.otherwise is None:
            return self._refusal(Why.CONDITION_FAILED, wrong[0].key)
        copy = dict(self.items)
        touched: list[str] = []
        operations = (write.otherwise or ()) if wrong else write.then
        for operation in operations:
            before = copy.get(operation.key)
            try:
                self._do(copy, operation, name)
            except _Refused as refused:
                return self._refusal(refused.args[0], operation.key)
            if copy.get(operation.key) is not before and operation.key not in touched:
                touched.append(operation.key)
        changed = [key for key in touched if copy.get(key) is not self.items.get(key)]
        surprises = [key for key in changed if self._is_news(key)]
        if write.merge is Merge.KEEP_GREEN and surprises:
            for key in surprises:
                self._note(ConflictKind.YIELDED, key)
            other, revision, _ = self._touched[surprises[0]]
            return Outcome(Verdict.YIELDED, revision, Why.NONE, surprises[0], False, other)
        if wrong:
            self._note(ConflictKind.OTHERWISE, wrong[0].key)
        for key in surprises:
            if any(isinstance(one, (Put, Delete)) and one.key == key for one in operations):
                self._note(ConflictKind.OVERWROTE, key)
        if not changed:
            return Outcome(Verdict.APPLIED, None, branch=not wrong)
        self.items = copy
        self.revision += 1
        self._touched.update(dict.fromkeys(changed, (name, self.revision, self.position)))
        return Outcome(Verdict.APPLIED, self.revision, branch=not wrong)

    def _is_news(self, key: str) -> bool:
        """Whether the sender of the message did not have the last change of the key."""
        if self._knew is None or key not in self._touched:
            return False
        name, _, position = self._touched[key]
        is_remembered = key in self.items or self.position <= position + self._memory_length
        return is_remembered and name.rpartition(".")[0] not in self._knew

    def _note(self, kind: ConflictKind, key: str) -> None:
        if self._is_news(key):
            name, revision, _ = self._touched[key]
            self.conflicts[-1].append(Conflict(kind, key, LastChange(name, revision)))

    def _refusal(self, why: Why, key: str) -> Outcome:
        self._note(ConflictKind.REJECTED, key)
        revision = self.items[key].revision if key in self.items else 0
        return Outcome(Verdict.REJECTED, revision, why, key, False)

    def _is_true(self, condition: Condition) -> bool:
        item = self.items.get(condition.key)
        if isinstance(condition, Exists):
            return (condition.key in self.items) is condition.is_there
        if isinstance(condition, RevisionIs):
            return (item.revision if item else 0) == condition.revision
        if isinstance(condition, ValueIs):
            return item is not None and item.value == condition.value
        return item is not None and item.write_id == condition.write_id

    def _do(self, items: dict[str, Item], operation: Operation, name: str) -> None:
        old = items.get(operation.key)
        kind = old.content_type if old else _NEW_TEXT
        if isinstance(operation, Get):
            return
        if isinstance(operation, Delete):
            items.pop(operation.key, None)
            return
        if isinstance(operation, Put):
            value, kind = operation.value, operation.content_type
        elif isinstance(operation, Append):
            if old and not operation.value:
                return
            value = (old.value if old else b"") + operation.value
            if len(value) > _LONGEST:
                raise _Refused(Why.VALUE_TOO_LARGE)
        else:
            text = old.value if old else b"0"
            if not re.fullmatch(rb"-?[0-9]{1,19}", text) or abs(int(text)) > _LARGEST:
                raise _Refused(Why.NOT_A_NUMBER)
            if old and not operation.by:
                return
            number = int(text) + operation.by
            if not -_LARGEST <= number <= _LARGEST:
                raise _Refused(Why.OUT_OF_RANGE)
            value = b"%d" % number
        items[operation.key] = Item(value, kind, self.revision + 1, name)
