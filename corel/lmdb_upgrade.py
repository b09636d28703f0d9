"""Brings a log of format 5 to format 6, whose digests of the order are SHA-256 (decision 26).

The digest of every record of the order is computed anew from its messages, some records at a time. How far that is
done is noted in the same transaction, so an upgrade that is interrupted goes on where it was. The identity says
format 6 only when all is done. Until then nothing else is written to the log, and the identity says a format that
no version runs with, so one that knows format 5 does not open it any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from corel import record_codec
from corel.checked_values import checked, pack
from corel.lmdb_reading import LINES, META, LmdbReader, key_of
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST
from corel.storage import Lines

UPGRADE = b"upgrade"
"""The record of how far an upgrade is: the next position, the digest there, and the digest at the base."""

_OLD_DIGEST_BYTES = 16
_RECORDS_AT_ONCE = 512
Transact = Callable[[Callable[[Any], None]], None]
"""Runs a change in a synced transaction."""

Progress = Callable[[int, int], None]
"""Takes how many messages have been brought to the new format, and how many there are."""


class OrderUpgrade:
    """The upgrade of one log. `transact` is how it writes."""

    def __init__(self, log: LmdbReader, meta: Any, order: Any, transact: Transact, progress: Progress) -> None:
        self._log = log
        self._meta = meta
        self._order = order
        self._transact = transact
        self._progress = progress
        self._position = 0
        self._digest = EMPTY_DIGEST
        self._base_digest = EMPTY_DIGEST

    def run(self, lines: Lines, yellow: list[int]) -> Lines:
        """Computes all digests anew, and returns the lines with theirs. `yellow` are the arrivals of the yellow
        zone as it was decided last, from the green line on."""
        self._resume()
        while self._position < lines.green:
            self._transact(partial(self._put, self._next_records(lines.base)))
            self._progress(self._position, lines.green)
        if lines.base > lines.green:
            zone = [self._log.record(arrival).entry() for arrival in yellow[: lines.base - lines.green]]
            self._base_digest = chained(self._digest, zone)
        return replace(lines, green_digest=self._digest, base_digest=self._base_digest)

    def _resume(self) -> None:
        with self._log.read(self._meta) as transaction:
            value = transaction.get(UPGRADE)
        if value is not None:
            place = self._log.unpack(value, META + UPGRADE, "how far the upgrade is")
            self._position, self._digest, self._base_digest = place

    def _put(self, records: list[tuple[bytes, bytes]], transaction: Any) -> None:
        for key, value in records:
            transaction.put(key, value, db=self._order)
        place = [self._position, self._digest, self._base_digest]
        transaction.put(UPGRADE, pack(place, META + UPGRADE), db=self._meta)

    def _next_records(self, base: int) -> list[tuple[bytes, bytes]]:
        """Returns the next records of the order as they are to be, and moves on to their end."""
        old: list[tuple[bytes, bytes]] = []
        with self._log.read(self._order) as transaction, transaction.cursor() as cursor:
            is_there = cursor.set_range(key_of(self._position))
            while is_there and len(old) < _RECORDS_AT_ONCE:
                old.append((bytes(cursor.key()), bytes(cursor.value())))
                is_there = cursor.next()
        if not old:
            raise self._log.damaged(f"the order does not reach {self._position + 1}")
        return [(key, self._rewritten(key, value, base)) for key, value in old]

    def _rewritten(self, key: bytes, value: bytes, base: int) -> bytes:
        if int.from_bytes(key, "big") != self._position:
            raise self._log.damaged(f"the order goes from {self._position} to {int.from_bytes(key, 'big')}")
        content = self._log.verified(value, b"order " + key, f"order {self._position}")
        arrivals = record_codec.arrivals(content[_OLD_DIGEST_BYTES:])
        for arrival in arrivals:
            self._digest = chained(self._digest, [self._log.record(arrival).entry()])
            self._position += 1
            if self._position == base:
                self._base_digest = self._digest
        return checked(self._digest + record_codec.arrivals_to_bytes(arrivals), b"order " + key)


def finish(transaction: Any, meta: Any, lines: Lines) -> None:
    """Puts the lines, and ends the upgrade, in the transaction that changes the identity."""
    transaction.put(LINES, pack(record_codec.lines_to_list(lines), META + LINES), db=meta)
    transaction.delete(UPGRADE, db=meta)
