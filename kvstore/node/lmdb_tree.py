"""The green state on disk, in the same LMDB environment as the log.

    items      key -> [value, content type, revision, id of the write]
    fates      message -> [position, outcomes]
    memories   idempotency key -> the write that used it
    ages       position, idempotency key -> nothing: the memories in the order of their age
    state      "line": [line, revision]

Memories that are older than `IDEMPOTENCY_POSITIONS` are deleted a few at a time, with every checkpoint. Whether
one counts is decided by its position (`state.apply`), so it does not matter when after that it is deleted. A write
that has expired leaves no memory."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from corel import MessageId
from corel.lmdb_log import LmdbLog, pack
from kvstore.store import IDEMPOTENCY_POSITIONS, Checkpoint, Fate, Item, Outcome, Remembered, Verdict, Why

_FORGOTTEN_AT_ONCE_MAX = 256
_LINE = b"line"
_ITEMS, _FATES, _MEMORIES, _STATE = b"items ", b"fates ", b"memories ", b"state "
_PLAIN_OUTCOME = Outcome(Verdict.APPLIED, None)[2:]


class LmdbTree:
    """The tree in one node's LMDB environment. `write` runs in the writing thread, all else on the event loop."""

    def __init__(self, log: LmdbLog) -> None:
        self._log = log
        self.open_tables()
        self.line = self.revision = 0
        """The state on disk as of the last `load`."""
        self.load()

    def open_tables(self) -> None:
        """Opens the tables, for the first time or because the log has been opened again."""
        self._items = self._log.table("items")
        self._fates = self._log.table("fates")
        self._memories = self._log.table("memories")
        self._ages = self._log.table("ages")
        self._state = self._log.table("state")

    def load(self) -> None:
        """Reads the line and the revision of the state on disk."""
        with self._log.read(self._state) as transaction:
            value = transaction.get(_LINE)
        if value is not None:
            self.line, self.revision = self._log.unpack(value, _STATE + _LINE, "the state's line")

    # Reading

    def item(self, key: str) -> Item | None:
        with self._log.read(self._items) as transaction:
            value = transaction.get(name := key.encode())
        return None if value is None else Item(*self._log.unpack(value, _ITEMS + name, f"key {key}"))

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

    # Writing

    def write(self, transaction: Any, checkpoint: Checkpoint) -> None:
        """Puts a checkpoint into a transaction."""
        for key, item in sorted(checkpoint.items.items()):
            if item is None:
                transaction.delete(key.encode(), db=self._items)
            else:
                transaction.put(name := key.encode(), pack(item, _ITEMS + name), db=self._items)
        for message_id, fate in checkpoint.fates.items():
            name = _message_key(message_id)
            value = pack([fate.position, list(map(_outcome_to_item, fate.outcomes))], _FATES + name)
            transaction.put(name, value, db=self._fates)
        for idempotency_key, memory in checkpoint.memories.items():
            name = _memory_key(idempotency_key)
            parts = [str(part) if isinstance(part, (Verdict, Why)) else part for part in memory]
            value = pack(parts, _MEMORIES + name)
            transaction.put(name, value, db=self._memories)
            transaction.put(memory.position.to_bytes(8, "big") + name, b"", db=self._ages)
        at_once = max(_FORGOTTEN_AT_ONCE_MAX, 2 * len(checkpoint.memories))  # more than are added: none pile up
        self._forget(transaction, checkpoint.line - IDEMPOTENCY_POSITIONS - 1, at_once)
        transaction.put(_LINE, pack([checkpoint.line, checkpoint.revision], _STATE + _LINE), db=self._state)

    def _forget(self, transaction: Any, before: int, at_once: int) -> None:
        """Deletes at most `at_once` memories of positions before this one, oldest first."""
        with transaction.cursor(db=self._ages) as cursor:
            for _ in range(at_once):
                if not cursor.first() or int.from_bytes(cursor.key()[:8], "big") >= before:
                    return
                age, key = cursor.key()[:8], cursor.key()[8:]
                value = transaction.get(key, db=self._memories)
                position = int.from_bytes(age, "big")
                is_last = value is not None and self._position(value, key) == position
                if is_last:  # else it was used again since
                    transaction.delete(key, db=self._memories)
                cursor.delete()

    def _position(self, value: bytes, key: bytes) -> int:
        position: int = self._log.unpack(value, _MEMORIES + key, "an idempotency key")[2]
        return position


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
