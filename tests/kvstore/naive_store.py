"""Deliberately naive models, to compare the real things with.

`NaiveStore` is the state machine as sections 5 and 6 of the design tell it: a write runs on a copy of everything,
and the copy is kept or thrown away. `NaiveTree` is the state on disk as a few dicts."""

from __future__ import annotations

import re
from copy import deepcopy

from corel.messages import MessageId
from kvstore.green_state import Checkpoint, Fate
from kvstore.operations import Append, Condition, Delete, Exists, Get, Operation, Put, RevisionIs, ValueIs, Write
from kvstore.state import Item, Outcome, Remembered, Verdict, Why

_LARGEST = 9_223_372_036_854_775_807
_LONGEST = 1_048_576
_NEW_TEXT = "text/plain; charset=utf-8"


class _Refused(Exception):
    pass


class NaiveStore:
    def __init__(self, memory_length: int) -> None:
        self.items: dict[str, Item] = {}
        self.revision = 0
        self.position = 0
        self._memory_length = memory_length
        self._used: dict[str, tuple[Write, int, str, Outcome]] = {}

    def message(self, name: str, writes: list[Write]) -> list[Outcome]:
        """The next of the log."""
        outcomes = [self._write(f"{name}.{index}", write) for index, write in enumerate(writes)]
        self.position += 1
        return outcomes

    def _write(self, name: str, write: Write) -> Outcome:
        if write.idempotency_key in self._used:
            first, position, first_id, what = self._used[write.idempotency_key]
            if self.position <= position + self._memory_length:
                if first != write:
                    return Outcome(Verdict.REJECTED, 0, Why.IDEMPOTENCY_KEY_REUSED)
                return what._replace(verdict=Verdict.DUPLICATE, first_id=first_id, first_verdict=what.verdict)
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


class NaiveTree:
    """What the checkpoints written so far come to."""

    def __init__(self) -> None:
        self.line = self.revision = 0
        self.items: dict[str, Item] = {}
        self.fates: dict[MessageId, Fate] = {}
        self.memories: dict[str, Remembered] = {}

    def write(self, checkpoint: Checkpoint) -> None:
        for key, item in checkpoint.items.items():
            self.items.pop(key, None)
            if item is not None:
                self.items[key] = item
        self.fates |= checkpoint.fates
        self.memories |= checkpoint.memories
        self.line, self.revision = checkpoint.line, checkpoint.revision

    def reopened(self) -> NaiveTree:
        return deepcopy(self)

    def close(self) -> None:
        pass

    def item(self, key: str) -> Item | None:
        return self.items.get(key)

    def fate(self, message_id: MessageId) -> Fate | None:
        return self.fates.get(message_id)

    def remembered(self, idempotency_key: str) -> Remembered | None:
        return self.memories.get(idempotency_key)
