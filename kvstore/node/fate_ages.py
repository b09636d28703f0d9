"""For how long a node can say what became of a write: fates are deleted in the order of their age.

    fate_ages  position -> message, by its key in `fates`
    state      "fates aged": up to which message fates have an age, while a disk of format 5 is upgraded

The fate of a message is kept for so many messages after it (`log.messages_kept`), and for as long as the message
itself is in the log. Nothing that a write does depends on it, so nodes may keep different numbers of them. They
are deleted a few at a time, with every checkpoint."""

from __future__ import annotations

import logging
from typing import Any

from corel.lmdb_log import LmdbLog, checked, pack
from corel.lmdb_reading import LmdbReader, key_of

logger = logging.getLogger("corelkv")

ALL = 2**63
"""So many fates are kept on a disk that is still being built."""

FORGOTTEN_AT_ONCE_MIN = 256
"""At least so many fates may be deleted with a checkpoint, and twice as many as are added: none pile up."""

AGED_AT_ONCE = 10_000
"""How many fates get an age in one transaction of an upgrade. More take fewer syncs; fewer leave less to do again
after a crash."""

_FATES, _FATE_AGES, _STATE, _AGED = b"fates ", b"fate_ages ", b"state ", b"fates aged"


class FateAges:
    """The ages of the fates in one node's LMDB environment, of which the last `kept` are kept. Everything runs in
    the writing thread."""

    def __init__(self, log: LmdbReader, kept: int) -> None:
        self._log = log
        self._kept = kept
        self.open_tables()

    def open_tables(self) -> None:
        """Opens the tables, for the first time or because the log has been opened again."""
        self._fates = self._log.table("fates")
        self._ages = self._log.table("fate_ages")

    def add(self, transaction: Any, position: int, name: bytes) -> None:
        """Puts the age of the fate with this key, whose message is the last so far."""
        key = key_of(position)
        if not transaction.put(key, checked(name, _FATE_AGES + key), db=self._ages, append=True):
            raise self._log.damaged(f"what became of the message at {position}, or beyond, is written already")

    def forget(self, transaction: Any, line: int, added: int) -> None:
        """Deletes fates of messages that are too far before the line, more than have been added."""
        before = min(line - self._kept, self._log.beginning(transaction).line)
        with transaction.cursor(db=self._ages) as cursor:
            for _ in range(max(FORGOTTEN_AT_ONCE_MIN, 2 * added)):
                if not cursor.first() or int.from_bytes(cursor.key(), "big") >= before:
                    return
                key = cursor.key()
                where = f"fate_ages {int.from_bytes(key, 'big')}"
                name = self._log.verified(cursor.value(), _FATE_AGES + key, where)
                transaction.delete(bytes(name), db=self._fates)
                cursor.delete()


def age_fates(log: LmdbLog) -> None:
    """Gives an age to every fate on a disk of format 5. If that is interrupted, the next call goes on."""
    fates, ages, state = (log.table(name) for name in ("fates", "fate_ages", "state"))
    with log.read(fates) as transaction:
        total: int = transaction.stat(fates)["entries"]
        value = transaction.get(_AGED, db=state)
    last: bytes | None = None if value is None else log.unpack(value, _STATE + _AGED, "the upgrade's place")
    logger.info("%s is being upgraded: what became of %s messages gets an age", log.directory, f"{total:,}")

    def age_some(transaction: Any) -> None:
        nonlocal last
        with transaction.cursor(db=fates) as cursor:
            is_there = cursor.first() if last is None else cursor.set_range(last + b"\0")
            for _ in range(AGED_AT_ONCE):
                if not is_there:
                    transaction.delete(_AGED, db=state)
                    last = None
                    return
                last = bytes(cursor.key())
                position = log.unpack(cursor.value(), _FATES + last, "what became of a message")[0]
                key = key_of(position)
                transaction.put(key, checked(last, _FATE_AGES + key), db=ages)
                is_there = cursor.next()
        transaction.put(_AGED, pack(last, _STATE + _AGED), db=state)

    log.update(age_some)
    while last is not None:
        log.update(age_some)
    logger.info("%s has been upgraded", log.directory)
