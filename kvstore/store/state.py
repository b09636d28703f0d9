"""The state machine: what a write does to a state, as a pure function of both.

Every node applies the same writes in the same order to the same state, so whatever decides an outcome is here, and
nothing here looks at a clock, a node or a random number. `IDEMPOTENCY_POSITIONS` is part of that: nodes that
disagree on it disagree on outcomes.

A write with an idempotency key may be in the log many times, as copies that several nodes accepted. A copy is
*decided* where it is applied, or rejected for another reason than its key; the key is then remembered for W =
`IDEMPOTENCY_POSITIONS` positions. Every copy carries the position after which it expires: W/2 after the node's
*line* when it accepted the copy, the number of messages that it knew as green. After one copy was decided at
position p, no copy that was accepted at a line up to p + W/2 is decided, however late it gets its place q:

    q ≤ p + W    the memory of p is there, because nothing replaces it before: the copy is a duplicate
    q > p + W    so q > line + W/2, because line ≤ p + W/2: the copy has expired

That covers every copy of a node that did not know p as green, because its line is at most p, such as a red copy
that merges a year later; and every retry that a node accepts before W/2 more messages are green. A retry that is
accepted later still is a duplicate as long as p is remembered, and a new write after that.

The line counts green messages only. A component without a primary may have any number of red ones, and a copy that
was allowed to expire so much later could miss the memory of one that was decided meanwhile in the primary.

A message says what its node knew when it sent it (`Basis`). If it was sent outside a primary component, or gets
its place after its component has ended (`order_run`), the last change of a key is *concurrent* with a write of it
if the node did not know of that change. Then the merge changed what the write meets: that is a `Conflict`, and
decides whether a write yields (`Merge.KEEP_GREEN`). For this the last deletion of a key is remembered for
`IDEMPOTENCY_POSITIONS` positions too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple, Protocol

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
    Write,
    WrittenBy,
)

IDEMPOTENCY_POSITIONS = 1_000_000
"""For how many messages of the log an idempotency key, or the deletion of a key, is remembered. More make retries
safe for longer, and the tables on every disk larger."""

TEXT = "text/plain; charset=utf-8"


class Item(NamedTuple):
    """What a key holds."""

    value: bytes
    content_type: str
    revision: int | None
    """When the key was last changed; None if that write has no final place yet."""
    write_id: str
    """The write that last changed the key."""


class Basis(NamedTuple):
    """What a node knew when it sent a message."""

    revision: int
    """The revision of its green state."""
    known: Mapping[str, int]
    """The last message that it had of each stream, `<node>.<incarnation>`, with messages that were not green."""
    line: int | None = None
    """How many messages it knew as green, if it sent this one in a primary component; None outside of one."""

    def has(self, other: LastChange, write_id: str) -> bool:
        """Whether the node knew of another change when it sent this write, which comes after it in the order. What
        it had sent itself, in this message or before, it knew: a stream is in the order as it was sent."""
        if other.revision is not None and other.revision <= self.revision:
            return True
        stream, sequence, _ = other.write_id.rsplit(".", 2)
        return int(sequence) <= self.known.get(stream, 0) or stream == write_id.rsplit(".", 2)[0]


class LastChange(NamedTuple):
    """What changed a key last."""

    write_id: str
    revision: int | None
    """None if that write has no final place yet."""


class Tombstone(NamedTuple):
    """The deletion of a key."""

    write_id: str
    revision: int | None
    """None if it has no final place yet."""
    position: int

    def seen_from(self, position: int) -> LastChange | None:
        """The deletion as the last change of its key, if it is still remembered at this position."""
        if position - self.position > IDEMPOTENCY_POSITIONS:
            return None
        return LastChange(self.write_id, self.revision)


class Verdict(StrEnum):
    """What became of a write at its place in the order."""

    APPLIED = "applied"
    REJECTED = "rejected"
    DUPLICATE = "duplicate"
    """Its idempotency key had been used for the same write before."""
    EXPIRED = "expired"
    """It has an idempotency key, and got its place so late that whether the key was used before is forgotten. It
    changed nothing, and is not remembered."""
    YIELDED = "yielded"
    """It merged with `Merge.KEEP_GREEN`, and one of its keys was changed meanwhile by a write that its node did
    not know. It changed nothing."""


class Why(StrEnum):
    """Why a write was rejected."""

    NONE = ""
    CONDITION_FAILED = "condition_failed"
    NOT_A_NUMBER = "not_a_number"
    OUT_OF_RANGE = "out_of_range"
    VALUE_TOO_LARGE = "value_too_large"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"


class Outcome(NamedTuple):
    """The verdict on a write, with its details."""

    verdict: Verdict
    revision: int | None
    """The revision of the write's changes; None if it changed nothing or has no final place. For a rejected write,
    the revision of the key that caused the rejection, 0 if there is none; for one that yielded, the revision of
    the change that it yielded to. For a duplicate, the first write's."""
    why: Why = Why.NONE
    key: str = ""
    """For a write that was rejected or yielded: the key that was the reason."""
    branch: bool = True
    """For an applied write, or a duplicate of one: whether its conditions held."""
    first_id: str = ""
    """For a duplicate: the id of the first write. For a write that yielded: what it yielded to."""
    first_verdict: Verdict = Verdict.APPLIED
    """For a duplicate: what became of the first write."""


class Remembered(NamedTuple):
    """What is remembered of a write with an idempotency key."""

    write_id: str
    digest: bytes
    position: int
    """The position of its message in the log."""
    verdict: Verdict
    revision: int | None
    why: Why = Why.NONE
    key: str = ""
    branch: bool = True
    """Whether its conditions held."""


class ConflictKind(StrEnum):
    """How a merge changed the outcome or the effect of a write."""

    OVERWROTE = "overwrote"
    """It put or deleted a key over a change that its node did not know."""
    REJECTED = "rejected"
    """It was rejected because of a change that its node did not know."""
    OTHERWISE = "otherwise"
    """It did its `else` because of a change that its node did not know."""
    YIELDED = "yielded"


class Conflict(NamedTuple):
    """A change of a key that the node which accepted a write did not know, and what that did to the write."""

    kind: ConflictKind
    key: str
    other: LastChange


class Applied(NamedTuple):
    """What a write does to a state."""

    outcome: Outcome
    changes: dict[str, Item | None]
    """What each changed key holds now; None if it is deleted."""
    results: tuple[Item | None, ...] = ()
    """What its key held after each operation of the branch that was taken."""
    remembered: Remembered | None = None
    conflicts: tuple[Conflict, ...] = ()


class Source(Protocol):
    """A state, as far as a write reads it."""

    def item(self, key: str) -> Item | None: ...

    def remembered(self, idempotency_key: str) -> Remembered | None: ...

    def last_change(self, key: str, position: int) -> LastChange | None:
        """What changed the key last, as seen from this position: None if it never existed, or if its deletion is
        no longer remembered there."""


class _Rejected(Exception):
    def __init__(self, why: Why, key: str) -> None:
        super().__init__(why, key)
        self.why = why
        self.key = key


def expiry_of(line: int) -> int:
    """Returns the last position at which a write with an idempotency key may be decided, if the node that accepts
    it knows this many messages as green."""
    return line + IDEMPOTENCY_POSITIONS // 2


def apply(
    source: Source,
    write: Write,
    data: bytes,
    write_id: str,
    position: int,
    next_revision: int | None,
    expires: int,
    basis: Basis | None = None,
) -> Applied:
    """Returns what a write does to a state at this position of the log. `data` are the bytes of the write;
    `next_revision` is its revision if it changes something, None if its place is not final. `expires` is the
    position after which it is not decided any more if it has an idempotency key. `basis` is what its node knew, if
    it is judged by that."""
    if write.idempotency_key is None:
        return _apply_new(source, write, write_id, position, next_revision, basis)
    digest = blake2b(data, digest_size=16).digest()
    known = source.remembered(write.idempotency_key)
    if known is not None and position - known.position <= IDEMPOTENCY_POSITIONS:
        if known.digest != digest:
            return Applied(Outcome(Verdict.REJECTED, 0, Why.IDEMPOTENCY_KEY_REUSED), {})
        outcome = Outcome(
            Verdict.DUPLICATE,
            known.revision,
            known.why,
            known.key,
            branch=known.branch,
            first_id=known.write_id,
            first_verdict=known.verdict,
        )
        return Applied(outcome, {})
    if position > expires:
        return Applied(Outcome(Verdict.EXPIRED, None), {})
    applied = _apply_new(source, write, write_id, position, next_revision, basis)
    outcome = applied.outcome
    memory = Remembered(
        write_id,
        digest,
        position,
        outcome.verdict,
        outcome.revision,
        outcome.why,
        outcome.key,
        outcome.branch,
    )
    return Applied(outcome, applied.changes, applied.results, memory, applied.conflicts)


def _apply_new(
    source: Source,
    write: Write,
    write_id: str,
    position: int,
    next_revision: int | None,
    basis: Basis | None,
) -> Applied:
    failed = _first_failed(source, write.conditions)
    if failed is not None and write.otherwise is None:
        return _rejection(source, Why.CONDITION_FAILED, failed.key, write_id, position, basis)
    operations = write.then if failed is None else write.otherwise or ()
    try:
        changes, results = _run(source, operations, write_id, next_revision)
    except _Rejected as rejected:
        return _rejection(source, rejected.why, rejected.key, write_id, position, basis)
    outcome = Outcome(Verdict.APPLIED, next_revision if changes else None, branch=failed is None)
    if basis is None:
        return Applied(outcome, changes, results)
    conflicts: list[Conflict] = []
    if failed is not None:
        conflicts += _concurrent(source, ConflictKind.OTHERWISE, [failed.key], write_id, position, basis)
    if write.merge is Merge.KEEP_GREEN:
        yielded = _concurrent(source, ConflictKind.YIELDED, changes, write_id, position, basis)
        if yielded:
            key, other = yielded[0].key, yielded[0].other
            outcome = Outcome(Verdict.YIELDED, other.revision, Why.NONE, key, False, other.write_id)
            return Applied(outcome, {}, (), None, tuple(yielded))
    replaced = {operation.key for operation in operations if isinstance(operation, (Put, Delete))}
    overwritten = [key for key in changes if key in replaced]
    conflicts += _concurrent(source, ConflictKind.OVERWROTE, overwritten, write_id, position, basis)
    return Applied(outcome, changes, results, None, tuple(conflicts))


def _concurrent(
    source: Source, kind: ConflictKind, keys: Iterable[str], write_id: str, position: int, basis: Basis
) -> list[Conflict]:
    """Returns the last changes of these keys that the write's node did not know."""
    found = []
    for key in keys:
        last = source.last_change(key, position)
        if last is not None and not basis.has(last, write_id):
            found.append(Conflict(kind, key, last))
    return found


def _rejection(source: Source, why: Why, key: str, write_id: str, position: int, basis: Basis | None) -> Applied:
    item = source.item(key)
    outcome = Outcome(Verdict.REJECTED, 0 if item is None else item.revision, why, key, False)
    if basis is None:
        return Applied(outcome, {})
    conflicts = _concurrent(source, ConflictKind.REJECTED, [key], write_id, position, basis)
    return Applied(outcome, {}, conflicts=tuple(conflicts))


def _first_failed(source: Source, conditions: Iterable[Condition]) -> Condition | None:
    for condition in conditions:
        if not _holds(condition, source.item(condition.key)):
            return condition
    return None


def _holds(condition: Condition, item: Item | None) -> bool:
    if isinstance(condition, Exists):
        return condition.is_there == (item is not None)
    if isinstance(condition, RevisionIs):
        return (
            item is None if condition.revision == 0 else item is not None and item.revision == condition.revision
        )
    if item is None:
        return False
    return (
        item.write_id == condition.write_id if isinstance(condition, WrittenBy) else item.value == condition.value
    )


def _run(
    source: Source, operations: Iterable[Operation], write_id: str, revision: int | None
) -> tuple[dict[str, Item | None], tuple[Item | None, ...]]:
    changes: dict[str, Item | None] = {}
    results: list[Item | None] = []
    for operation in operations:
        key = operation.key
        if isinstance(operation, Put):  # nearly all are, and need no look at what was there
            item = changes[key] = Item(operation.value, operation.content_type, revision, write_id)
            results.append(item)
            continue
        before = changes[key] if key in changes else source.item(key)
        after = before if isinstance(operation, Get) else _after(operation, before, write_id, revision)
        if after is not before:
            changes[key] = after
        results.append(after)
    for key in [key for key, item in changes.items() if item is None and source.item(key) is None]:
        del changes[key]  # this write created and deleted it
    return changes, tuple(results)


def _after(
    operation: Delete | Append | Increment, before: Item | None, write_id: str, revision: int | None
) -> Item | None:
    if isinstance(operation, Delete):
        return None
    if isinstance(operation, Append):
        if before is not None and not operation.value:
            return before
        value = (before.value if before is not None else b"") + operation.value
        if len(value) > VALUE_BYTES_MAX:
            raise _Rejected(Why.VALUE_TOO_LARGE, operation.key)
        return Item(value, before.content_type if before is not None else TEXT, revision, write_id)
    number = _number(before.value, operation.key) if before is not None else 0
    if before is not None and not operation.by:
        return before
    number += operation.by
    if abs(number) > NUMBER_MAX:
        raise _Rejected(Why.OUT_OF_RANGE, operation.key)
    content_type = before.content_type if before is not None else TEXT
    return Item(str(number).encode(), content_type, revision, write_id)


def _number(value: bytes, key: str) -> int:
    digits = value[1:] if value[:1] == b"-" else value
    if not digits.isdigit() or len(digits) > len(str(NUMBER_MAX)) or int(digits) > NUMBER_MAX:
        raise _Rejected(Why.NOT_A_NUMBER, key)
    return int(value)
