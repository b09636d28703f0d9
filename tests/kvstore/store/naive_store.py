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
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
)
from kvstore.store.state import Item, Outcome, Verdict, Why

_LARGEST = 9_223_372_036_854_775_807
_LONGEST = 1_048_576
_NEW_TEXT = "text/plain; charset=utf-8"


class _Refused(Exception):
    pass


class NaiveStore:
    """The state after all messages so far. Idempotency keys are remembered for `memory_length` messages. A write
    with a key that is not remembered does nothing in a message that comes after its `last_place`."""

    def __init__(self, memory_length: int) -> None:
        self.items: dict[str, Item] = {}
        self.revision = 0
        self.position = 0
        self._memory_length = memory_length
        self._used: dict[str, tuple[Write, int, str, Outcome]] = {}

    def message(self, name: str, writes: list[Write], last_place: float) -> list[Outcome]:
        """Applies the next message of the log, and returns the outcome of each of its writes."""
        is_late = self.position > last_place
        outcomes = [self._write(f"{name}.{index}", write, is_late) for index, write in enumerate(writes)]
        self.position += 1
        return outcomes

    def _write(self, name: str, write: Write, is_late: bool) -> Outcome:
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
        for operation in (write.otherwise or ()) if wrong else write.then:
            try:
                self._do(copy, operation, name)
            except _Refused as refused:
                return self._refusal(refused.args[0], operation.key)
        if copy == self.items:
            return Outcome(Verdict.APPLIED, None, branch=not wrong)
        self.items = copy
        self.revision += 1
        return Outcome(Verdict.APPLIED, self.revision, branch=not wrong)

    def _refusal(self, why: Why, key: str) -> Outcome:
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
