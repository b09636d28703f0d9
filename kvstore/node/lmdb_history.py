"""The past of the green state on disk: what each revision replaced (decision 23).

    history    first revision of a message -> [message, then for each of its revisions
               [index of the write, key, what it held before, key, what it held before, …]]
    replaced   revision, place of the key -> what it held before, if that is large: the record has its size then
    versions   key -> the revisions that changed it, as sorted duplicates
    conflicts  revision, position, index, number -> what the merge of a write met
    state      "past": [the last revision that is forgotten, bytes in `history`]

What a key held at a revision is what the first later change of it replaced; if there is none, it is what the key
holds now. So a record is needed only for revisions before it, and the oldest records can be deleted in order. What
a key held before is kept as the bytes of its record in `items`, with that record's checksum.

`versions` has no checksums: what it says is confirmed by the record that it leads to."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from corel.lmdb_log import Bytes, ValuePacker, pack
from corel.lmdb_reading import LmdbReader
from kvstore.store import (
    Change,
    Checkpoint,
    Compacted,
    Conflict,
    ConflictKind,
    ConflictPlace,
    FoundConflict,
    Item,
    LastChange,
    Span,
    bounded,
)

ITEMS, STATE = b"items ", b"state "
LINE = b"line"
_REPLACED = b"replaced "
_HISTORY, _CONFLICTS = b"history ", b"conflicts "
PAST = b"past"
LARGE_BYTES = 2_048
"""What a key held before is kept apart from its message's record if it is larger: to read one key of a transaction
must not take all that the transaction replaced."""
_NO_CHANGE: tuple[bytes | None, int] = (None, 0)
_PLACE = ">QQII"
_FORGOTTEN_AT_ONCE_MAX = 256
"""At least so many changes may be forgotten with a checkpoint."""


class LmdbHistory:
    """The past in one node's LMDB environment. `write` runs in the writing thread, all else on the event loop."""

    def __init__(self, log: LmdbReader) -> None:
        self._log = log
        self._pack = ValuePacker().pack  # of the writing thread
        self.open_tables()

    def open_tables(self) -> None:
        """Opens the tables, for the first time or because the log has been opened again."""
        self._items = self._log.table("items")
        self._state = self._log.table("state")
        self._history = self._log.table("history")
        self._replaced = self._log.table("replaced")
        self._versions = self._log.table("versions", is_index=True)
        self._conflicts = self._log.table("conflicts")

    # Writing

    def write(self, transaction: Any, checkpoint: Checkpoint) -> dict[str, bytes | None]:
        """Puts the changes of a checkpoint into a transaction, before its items are put there. Returns the records
        of the items as they are to be put; None for a key that is deleted."""
        forgotten, size = self._past(transaction)
        records: dict[str, bytes | None] = {}
        last = checkpoint.changes[-1].revision if checkpoint.changes else 0
        if last > checkpoint.forget_through:
            size += self._append(transaction, checkpoint.changes, records)
        else:  # no past is to be kept at all
            forgotten = max(forgotten, last)
        at_once = max(_FORGOTTEN_AT_ONCE_MAX, 2 * sum([len(change.items) for change in checkpoint.changes]))
        while at_once > 0 and (oldest := self._oldest_record(transaction)) is not None:
            first, value, changes = oldest
            through = first + len(changes) - 1
            if through > checkpoint.forget_through and size <= checkpoint.history_bytes_max:
                break
            size -= len(value) + self._delete(transaction, first, changes)
            at_once -= sum(len(parts) // 2 for parts in changes)
            forgotten = max(forgotten, through)
        self._write_conflicts(transaction, checkpoint.conflicts, forgotten)
        transaction.put(PAST, pack([forgotten, size], STATE + PAST), db=self._state)
        return records

    def begin_at(self, transaction: Any, revision: int) -> None:
        """Has the past begin here, where there is none: what earlier revisions replaced is not on this disk."""
        transaction.put(PAST, pack([revision, 0], STATE + PAST), db=self._state)

    def _append(self, transaction: Any, changes: list[Change], records: dict[str, bytes | None]) -> int:
        """Puts what the changes replaced; returns how many bytes that took."""
        size = 0
        versions: list[tuple[bytes, bytes]] = []
        for message, group in groupby(changes, _message_of):
            content: list[object] = [message]
            first = 0
            with transaction.cursor(db=self._items) as items:
                for revision, write_id, changed in group:
                    first = first or revision
                    number = _key(revision)
                    parts: list[object] = [int(write_id[len(message) + 1 :])]
                    for place, (key, item) in enumerate(changed):
                        name = key.encode()
                        before = records[key] if key in records else items.get(name)
                        if before is not None and len(before) > LARGE_BYTES:
                            size += self._put_apart(transaction, revision, place, before)
                            parts += (key, len(before))
                        else:
                            parts += (key, before)
                        records[key] = None if item is None else self._pack(item, ITEMS + name)
                        versions.append((name, number))
                    content.append(parts)
            value = self._pack(content, _HISTORY + _key(first))
            if not transaction.put(_key(first), value, db=self._history, append=True):
                raise self._log.damaged(f"revision {first} or a later one is written already")
            size += len(value)
        versions.sort()
        with transaction.cursor(db=self._versions) as cursor:
            cursor.putmulti(versions)
        return size

    def _put_apart(self, transaction: Any, revision: int, place: int, before: bytes) -> int:
        """Puts a large record that a revision replaced; returns its size."""
        name = _replaced_key(revision, place)
        transaction.put(name, pack(before, _REPLACED + name), db=self._replaced)
        return len(before)

    def _oldest_record(self, transaction: Any) -> tuple[int, bytes, list[Any]] | None:
        """Returns the first revision of the oldest record, the record, and its changes."""
        with transaction.cursor(db=self._history) as cursor:
            if not cursor.first():
                return None
            first, _, *changes = self._record(cursor.key(), cursor.value())
            return first, cursor.value(), changes

    def _delete(self, transaction: Any, first: int, changes: list[Any]) -> int:
        """Deletes a record; returns how many bytes there were apart from it."""
        apart = 0
        for revision, (_, *parts) in enumerate(changes, start=first):
            for place, (key, before) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
                transaction.delete(key.encode(), _key(revision), db=self._versions)
                if isinstance(before, int):
                    transaction.delete(_replaced_key(revision, place), db=self._replaced)
                    apart += before
        transaction.delete(_key(first), db=self._history)
        return apart

    def _write_conflicts(self, transaction: Any, conflicts: list[FoundConflict], forgotten: int) -> None:
        """Puts conflicts, and deletes those of revisions that are forgotten, more than are added."""
        for found in conflicts:
            kind, key, other = found.conflict
            name = _place_key(found.place)
            content = [str(kind), key, *other, found.write_id, found.accepted_ms, found.revision]
            transaction.put(name, pack(content, _CONFLICTS + name), db=self._conflicts)
        with transaction.cursor(db=self._conflicts) as cursor:
            for _ in range(max(_FORGOTTEN_AT_ONCE_MAX, 2 * len(conflicts))):
                if not cursor.first() or _number(cursor.key()[:8]) > forgotten:
                    break
                cursor.delete()

    # Reading

    def conflicts(self, after: ConflictPlace, count: int) -> list[FoundConflict]:
        found: list[FoundConflict] = []
        with self._log.read(self._conflicts) as transaction, transaction.cursor() as cursor:
            forgotten, _ = self._past(transaction)
            start = max(after, ConflictPlace(forgotten + 1, -1, 0, 0))
            is_there = cursor.set_range(_place_key(start._replace(position=max(0, start.position))))
            while is_there and len(found) < count:
                place, content = self._conflict(bytes(cursor.key()), cursor.value())
                if place > after:
                    found.append(content)
                is_there = cursor.next()
        return found

    def _conflict(self, name: bytes, value: Bytes) -> tuple[ConflictPlace, FoundConflict]:
        place = ConflictPlace(*struct.unpack(_PLACE, name))
        kind, key, other_id, other_revision, write_id, accepted_ms, revision = self._log.unpack(
            value, _CONFLICTS + name, f"a conflict at revision {place.revision}"
        )
        conflict = Conflict(ConflictKind(kind), key, LastChange(other_id, other_revision))
        return place, FoundConflict(place, write_id, accepted_ms, revision, conflict)

    def oldest(self) -> int:
        with self._log.read(self._state) as transaction:
            return self._past(transaction)[0]

    def item_at(self, key: str, revision: int) -> Item | None:
        with self._log.read(self._versions) as transaction:
            self._check(transaction, revision)
            return _Reader(self, transaction, revision).item(key.encode())

    def changes(self, first: int, count: int, bytes_max: int) -> list[Change]:
        found: list[Change] = []
        size = 0
        with self._log.read(self._history) as transaction, transaction.cursor() as cursor:
            self._check(transaction, first - 1)
            is_there = _seek(cursor, first)
            while is_there and len(found) < count and size < bytes_max:
                start, message, *changes = self._record(cursor.key(), cursor.value())
                for revision, (index, *parts) in enumerate(changes, start=start):
                    if revision < first or len(found) == count or size >= bytes_max:
                        continue
                    then = _Reader(self, transaction, revision)
                    items = tuple([(key, then.item(key.encode())) for key in parts[::2]])
                    found.append(Change(revision, f"{message}.{index}", items))
                    size += sum(len(item.value) for _, item in items if item is not None)
                is_there = cursor.next()
        return bounded(found, bytes_max)

    def versions(self, key: str, before: int, count: int) -> list[tuple[int, str, Item | None]]:
        name = key.encode()
        found: list[tuple[int, str, Item | None]] = []
        with self._log.read(self._versions) as transaction, transaction.cursor() as cursor:
            forgotten, _ = self._past(transaction)
            is_there = cursor.set_range_dup(name, _key(before)) and cursor.prev_dup()
            if not is_there:
                is_there = cursor.set_key(name) and cursor.last_dup() and _number(cursor.value()) < before
            while is_there and len(found) < count and (revision := _number(cursor.value())) > forgotten:
                reader = _Reader(self, transaction, revision)
                found.append((revision, reader.write_id(), reader.item(name)))
                is_there = cursor.prev_dup()
        return found

    def walk(self, span: Span, revision: int, is_reverse: bool) -> Iterator[tuple[str, Item | None]]:
        with self._log.read(self._items) as transaction:
            self._check(transaction, revision)
            with transaction.cursor(db=self._items) as cursor:
                if self._is_newest(transaction, revision):
                    for name in _keys(cursor, span, is_reverse):
                        yield name.decode(), self._item(name, cursor.value())
                else:
                    yield from self._walk_past(transaction, cursor, span, revision, is_reverse)

    def _walk_past(
        self, transaction: Any, items: Any, span: Span, revision: int, is_reverse: bool
    ) -> Iterator[tuple[str, Item | None]]:
        """Merges the keys that there are now with those that were changed after the revision."""
        reader = _Reader(self, transaction, revision)
        with transaction.cursor(db=self._versions) as versions:
            changed = _last_changes(versions, span, is_reverse)
            name, last = next(changed, _NO_CHANGE)
            for current in _keys(items, span, is_reverse):
                while name is not None and (name > current if is_reverse else name < current):
                    yield name.decode(), reader.item(name) if last > revision else None
                    name, last = next(changed, _NO_CHANGE)
                if name == current:
                    is_changed = last > revision
                    name, last = next(changed, _NO_CHANGE)
                    if is_changed:
                        yield current.decode(), reader.item(current)
                        continue
                yield current.decode(), self._item(current, items.value())
            while name is not None:
                yield name.decode(), reader.item(name) if last > revision else None
                name, last = next(changed, _NO_CHANGE)

    def _is_newest(self, transaction: Any, revision: int) -> bool:
        """Whether nothing on disk is newer than this revision."""
        value = transaction.get(LINE, db=self._state)
        return value is None or bool(self._log.unpack(value, STATE + LINE, "the state's line")[1] <= revision)

    def _check(self, transaction: Any, revision: int) -> None:
        forgotten, _ = self._past(transaction)
        if revision < forgotten:
            raise Compacted(forgotten)

    def _past(self, transaction: Any) -> tuple[int, int]:
        value = transaction.get(PAST, db=self._state)
        if value is None:
            return 0, 0
        forgotten, size = self._log.unpack(value, STATE + PAST, "the past's beginning")
        return forgotten, size

    def _record(self, key: Bytes, value: Bytes) -> list[Any]:
        """Returns the first revision of a record, its message and its changes."""
        first = _number(key)
        return [first, *self._log.unpack(value, _HISTORY + bytes(key), f"the changes from revision {first} on")]

    def _large(self, transaction: Any, revision: int, place: int) -> bytes:
        """Returns a large record that a revision replaced."""
        name = _replaced_key(revision, place)
        value = transaction.get(name, db=self._replaced)
        record: bytes = self._log.unpack(value, _REPLACED + name, f"what revision {revision} replaced")
        return record

    def _item(self, name: bytes, record: Bytes) -> Item:
        return Item(*self._log.unpack(record, ITEMS + name, f"key {name.decode()}"))


class _Reader:
    """What keys held at one revision, in one transaction. It keeps the last record that it read: a message often
    changes keys that are next to each other."""

    def __init__(self, past: LmdbHistory, transaction: Any, revision: int) -> None:
        self._past = past
        self._transaction = transaction
        self._revision = revision
        self._first, self._message, self._changes = 0, "", list[Any]()
        self._replaced_at, self._replaced_records = 0, dict[str, tuple[int, bytes | int | None]]()
        """The revision that was looked at last, and what it replaced: it may have changed thousands of keys."""

    def item(self, name: bytes) -> Item | None:
        with self._transaction.cursor(db=self._past._versions) as cursor:
            if cursor.set_range_dup(name, _key(self._revision + 1)):
                record = self._replaced(_number(cursor.value()), name)
            else:
                record = self._transaction.get(name, db=self._past._items)
        return None if record is None else self._past._item(name, record)

    def write_id(self) -> str:
        """The write that made the revision."""
        index, *_ = self._change(self._revision)
        return f"{self._message}.{index}"

    def _replaced(self, revision: int, name: bytes) -> bytes | None:
        if revision != self._replaced_at:
            _, *parts = self._change(revision)
            places = enumerate(zip(parts[::2], parts[1::2], strict=True))
            self._replaced_at = revision
            self._replaced_records = {key: (place, before) for place, (key, before) in places}
        key = name.decode()
        if key not in self._replaced_records:
            raise self._past._log.damaged(f"revision {revision} did not change {key}")
        place, before = self._replaced_records[key]
        return self._past._large(self._transaction, revision, place) if isinstance(before, int) else before

    def _change(self, revision: int) -> Any:
        if not self._first <= revision < self._first + len(self._changes):
            with self._transaction.cursor(db=self._past._history) as cursor:
                if not _seek(cursor, revision):
                    raise self._past._log.damaged(f"revision {revision} is missing")
                self._first, self._message, *self._changes = self._past._record(cursor.key(), cursor.value())
        if revision >= self._first + len(self._changes):
            raise self._past._log.damaged(f"revision {revision} is missing")
        return self._changes[revision - self._first]


def _keys(cursor: Any, span: Span, is_reverse: bool) -> Iterator[bytes]:
    """Yields the keys of a span; the cursor is at the key that was yielded last."""
    is_there = _enter(cursor, span, is_reverse)
    while is_there and span.has(key := cursor.key()):
        yield key
        is_there = cursor.prev() if is_reverse else cursor.next()


def _last_changes(cursor: Any, span: Span, is_reverse: bool) -> Iterator[tuple[bytes | None, int]]:
    """Yields the keys of a span that were changed since the beginning of the past, each with its last change."""
    is_there = _enter(cursor, span, is_reverse)
    while is_there and span.has(key := cursor.key()):
        cursor.last_dup()
        yield key, _number(cursor.value())
        is_there = cursor.prev_nodup() if is_reverse else cursor.next_nodup()


def _enter(cursor: Any, span: Span, is_reverse: bool) -> bool:
    if not is_reverse:
        return bool(cursor.set_range(span.start))
    if span.end is not None and cursor.set_range(span.end):
        return bool(cursor.prev())
    return bool(cursor.last())


def _seek(cursor: Any, revision: int) -> bool:
    """Moves to the record that has this revision, or would have it, or else to the first. Returns whether there is
    one."""
    if cursor.set_range(_key(revision)):
        return bool(cursor.key() == _key(revision) or cursor.prev() or cursor.first())
    return bool(cursor.last())


def _replaced_key(revision: int, place: int) -> bytes:
    return struct.pack(">QI", revision, place)


def _place_key(place: ConflictPlace) -> bytes:
    return struct.pack(_PLACE, *place)


def _key(revision: int) -> bytes:
    return revision.to_bytes(8, "big")


def _message_of(change: Change) -> str:
    return change.write_id.rpartition(".")[0]


def _number(key: Bytes) -> int:
    return int.from_bytes(key, "big")
