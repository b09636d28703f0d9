"""The green state on disk, in the same LMDB environment as the log.

    items      key -> [value, content type, revision, id of the write]
    fates      message -> [position, outcomes], deleted in the order of their age (`fate_ages`)
    memories   idempotency key -> the write that used it
    tombstones key -> its last deletion
    ages       position, M or T, key -> nothing: memories and tombstones in the order of their age
    state      "line": [line, revision, view of the last run, its start]

The tables of the past are in `lmdb_history`.

Memories and tombstones that are older than `IDEMPOTENCY_POSITIONS` are deleted a few at a time, with every
checkpoint. Whether one counts is decided by its position (`state.apply`), so it does not matter when after that it
is deleted. A write that has expired leaves no memory."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from corel import MessageId
from corel.lmdb_log import Bytes, ValuePacker, pack
from corel.lmdb_reading import LmdbReader
from kvstore.node.fate_ages import FateAges
from kvstore.node.lmdb_history import ITEMS, LINE, STATE, LmdbHistory
from kvstore.store import (
    EMPTY_ORDER,
    IDEMPOTENCY_POSITIONS,
    Checkpoint,
    Fate,
    Item,
    Outcome,
    Remembered,
    Run,
    Tombstone,
    Verdict,
    Why,
)
from transport import ViewId

_FORGOTTEN_AT_ONCE_MAX = 256
_FATES, _MEMORIES, _TOMBSTONES = b"fates ", b"memories ", b"tombstones "
_OF_MEMORY, _OF_TOMBSTONE = b"M", b"T"
_PLAIN_OUTCOME = Outcome(Verdict.APPLIED, None)[2:]


class LmdbTree:
    """The tree in one node's LMDB environment. `write` runs in the writing thread, all else on the event loop.
    `fates_kept` says for how many messages fates are kept; without it, the tree is only read."""

    def __init__(self, log: LmdbReader, fates_kept: int | None = None) -> None:
        self._log = log
        self._pack = ValuePacker().pack  # of the writing thread
        self.past = LmdbHistory(log)
        self._fate_ages = None if fates_kept is None else FateAges(log, fates_kept)
        self._open_own_tables()
        self.line = self.revision = 0
        self.run = EMPTY_ORDER
        """The state on disk as of the last `load`."""
        self.load()

    def open_tables(self) -> None:
        """Opens the tables again, because the log has been opened again."""
        self.past.open_tables()
        if self._fate_ages is not None:
            self._fate_ages.open_tables()
        self._open_own_tables()

    def _open_own_tables(self) -> None:
        self._items = self._log.table("items")
        self._state = self._log.table("state")
        self._fates = self._log.table("fates")
        self._memories = self._log.table("memories")
        self._tombstones = self._log.table("tombstones")
        self._ages = self._log.table("ages")

    def load(self) -> None:
        """Reads which state is on disk."""
        with self._log.read(self._state) as transaction:
            value = transaction.get(LINE)
        if value is not None:
            self.line, self.revision, view, start = self._log.unpack(value, STATE + LINE, "the state's line")
            self.run = Run(ViewId(*view), start)

    # Reading

    def item(self, key: str) -> Item | None:
        with self._log.read(self._items) as transaction:
            value = transaction.get(name := key.encode())
        return None if value is None else Item(*self._log.unpack(value, ITEMS + name, f"key {key}"))

    def fate(self, message_id: MessageId) -> Fate | None:
        with self._log.read(self._fates) as transaction:
            value = transaction.get(name := _message_key(message_id))
        if value is None:
            return None
        position, outcomes = self._log.unpack(value, _FATES + name, f"what became of {message_id}")
        return Fate(position, tuple(map(_outcome, outcomes)))

    def remembered(self, idempotency_key: str) -> Remembered | None:
        with self._log.read(self._memories) as transaction:
            value = transaction.get(name := _memory_key(idempotency_key))
        if value is None:
            return None
        memory = self._log.unpack(value, _MEMORIES + name, "an idempotency key")
        write_id, digest, position, verdict, revision, why, *rest = memory
        return Remembered(write_id, digest, position, Verdict(verdict), revision, Why(why), *rest)

    def tombstone(self, key: str) -> Tombstone | None:
        with self._log.read(self._tombstones) as transaction:
            value = transaction.get(name := key.encode())
        return None if value is None else self._tombstone(name, value)

    # Writing

    def write(self, transaction: Any, checkpoint: Checkpoint) -> None:
        """Puts a checkpoint into a transaction."""
        records = self.past.write(transaction, checkpoint)
        puts: list[tuple[bytes, bytes]] = []
        for key in sorted(checkpoint.items):
            name, item = key.encode(), checkpoint.items[key]
            if item is None:
                transaction.delete(name, db=self._items)
            else:
                puts.append((name, records.get(key) or self._pack(item, ITEMS + name)))
        with transaction.cursor(db=self._items) as cursor:
            cursor.putmulti(puts)
        self._write_fates(transaction, checkpoint)
        for idempotency_key, memory in checkpoint.memories.items():
            name = _memory_key(idempotency_key)
            parts = [str(part) if isinstance(part, (Verdict, Why)) else part for part in memory]
            value = pack(parts, _MEMORIES + name)
            transaction.put(name, value, db=self._memories)
            transaction.put(memory.position.to_bytes(8, "big") + _OF_MEMORY + name, b"", db=self._ages)
        for key, tombstone in checkpoint.tombstones.items():
            name = key.encode()
            transaction.put(name, pack(tombstone, _TOMBSTONES + name), db=self._tombstones)
            transaction.put(tombstone.position.to_bytes(8, "big") + _OF_TOMBSTONE + name, b"", db=self._ages)
        added = len(checkpoint.memories) + len(checkpoint.tombstones)
        at_once = max(_FORGOTTEN_AT_ONCE_MAX, 2 * added)  # more than are added: none pile up
        self._forget(transaction, checkpoint.line - IDEMPOTENCY_POSITIONS - 1, at_once)
        view, start = checkpoint.run
        value = pack([checkpoint.line, checkpoint.revision, view, start], STATE + LINE)
        transaction.put(LINE, value, db=self._state)

    def skip_revisions(self, transaction: Any, count: int) -> None:
        """Has revisions go on this much later. Those in between, and all before, are past that is not kept."""
        revision = self.revision + count
        view, start = self.run
        transaction.put(LINE, pack([self.line, revision, view, start], STATE + LINE), db=self._state)
        self.past.begin_at(transaction, revision)

    def _write_fates(self, transaction: Any, checkpoint: Checkpoint) -> None:
        ages = self._fate_ages
        for message_id, fate in checkpoint.fates.items():
            name = _message_key(message_id)
            value = self._pack([fate.position, list(map(_outcome_to_item, fate.outcomes))], _FATES + name)
            transaction.put(name, value, db=self._fates)
            if ages is not None:
                ages.add(transaction, fate.position, name)
        if ages is not None:
            ages.forget(transaction, checkpoint.line, len(checkpoint.fates))

    def _forget(self, transaction: Any, before: int, at_once: int) -> None:
        """Deletes at most `at_once` memories and tombstones of positions before this one, oldest first."""
        with transaction.cursor(db=self._ages) as cursor:
            for _ in range(at_once):
                if not cursor.first() or int.from_bytes(cursor.key()[:8], "big") >= before:
                    return
                position, kind, key = int.from_bytes(cursor.key()[:8], "big"), cursor.key()[8:9], cursor.key()[9:]
                table = self._memories if kind == _OF_MEMORY else self._tombstones
                value = transaction.get(key, db=table)
                if value is not None and self._position(kind, key, value) == position:  # else there is a newer one
                    transaction.delete(key, db=table)
                cursor.delete()

    def _position(self, kind: bytes, key: bytes, value: bytes) -> int:
        if kind == _OF_TOMBSTONE:
            return self._tombstone(key, value).position
        position: int = self._log.unpack(value, _MEMORIES + key, "an idempotency key")[2]
        return position

    def _tombstone(self, name: bytes, value: Bytes) -> Tombstone:
        return Tombstone(*self._log.unpack(value, _TOMBSTONES + name, f"the deletion of {name.decode()}"))


def _message_key(message_id: MessageId) -> bytes:
    (name, incarnation), sequence = message_id
    return f"{name}.{incarnation}.".encode() + sequence.to_bytes(8, "big")


def _memory_key(idempotency_key: str) -> bytes:
    """Returns a digest, because an idempotency key may be longer than LMDB's keys."""
    return blake2b(idempotency_key.encode(errors="surrogatepass"), digest_size=32).digest()


def _outcome_to_item(outcome: Outcome) -> object:
    """Encodes an outcome, nearly always as its revision alone."""
    if outcome.verdict is Verdict.APPLIED and outcome[2:] == _PLAIN_OUTCOME:
        return outcome.revision
    return [str(part) if isinstance(part, (Verdict, Why)) else part for part in outcome]


def _outcome(item: Any) -> Outcome:
    if not isinstance(item, list):
        return Outcome(Verdict.APPLIED, item)
    verdict, revision, why, key, branch, first_id, first_verdict = item
    return Outcome(Verdict(verdict), revision, Why(why), key, branch, first_id, Verdict(first_verdict))
