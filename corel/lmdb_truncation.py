"""Deleting what is before the cut from the log on disk, a little with each checkpoint.

    table      key                             value
    truncated  arrival of a batch's first      how many messages of the batch are truncated; there is a record only
                                               for batches that are still there
    meta       "cut"                           [line, digest]: where the order begins, and its digest up to there

Records of the order are deleted from the front, whole, as far as they are before `Lines.cut`. Nobody reads them
again. Their messages are counted, batch by batch, because messages do not become green in the order in which they
arrived: one that a minority logged may be early in `messages` and late in the order.

A batch is deleted when all its messages are truncated, no batch is before it, and it is before
`Lines.open_from`, where a start begins to read. So `messages` has no gaps: a batch ends where the next one begins,
nothing has to be decoded to count, and what is missing in between is damage. A batch that waits for one before it
does not wait long. While a message is not green, nothing becomes green at its node but what recoveries bring; once
the node is in a primary component, that message becomes green before every new one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

from corel.checked_values import pack
from corel.lmdb_reading import CUT, META, LmdbReader, key_of, seek
from corel.storage import Lines

TRUNCATED_AT_ONCE_MIN = 1_024
"""At least so many messages may be truncated with a checkpoint, and twice as many as have become green since the
last one, so that none pile up. More let a log that is far too long shrink sooner; fewer make a shorter write, for
which every message waits."""

_TRUNCATED = b"truncated "


def at_once(added: int) -> int:
    """Returns how many messages may be truncated after so many have become green."""
    return max(TRUNCATED_AT_ONCE_MIN, 2 * added)


class Tables(NamedTuple):
    messages: Any
    order: Any
    meta: Any
    truncated: Any


class Truncation:
    """Truncates the log that `reader` reads, in one transaction that writes."""

    def __init__(self, reader: LmdbReader, tables: Tables, transaction: Any) -> None:
        self._reader = reader
        self._tables = tables
        self._transaction = transaction

    def truncate(self, lines: Lines, count: int) -> None:
        """Deletes the oldest records of the order that are wholly before the cut, until they have `count` messages
        or more, and the batches of messages that nothing refers to then."""
        arrivals = self._shorten_order(lines.cut, count)
        counts = self._count(arrivals, lines.next_arrival)
        self._delete_batches(counts, lines, count)
        for start, truncated in counts.items():
            key = key_of(start)
            self._transaction.put(key, pack(truncated, _TRUNCATED + key), db=self._tables.truncated)

    def _shorten_order(self, cut: int, count: int) -> list[int]:
        """Returns the arrivals of the messages that are truncated now, in order."""
        line, digest = self._reader.beginning(self._transaction)
        found: list[int] = []
        with self._transaction.cursor(db=self._tables.order) as cursor:
            while line < cut and len(found) < count and cursor.first():
                start = int.from_bytes(cursor.key(), "big")
                if start != line:
                    raise self._reader.damaged(f"the order begins at {start}, and is to begin at {line}")
                record_digest, arrivals = self._reader.order_at(cursor)
                if start + len(arrivals) > cut:
                    break
                line, digest = start + len(arrivals), record_digest
                found += arrivals
                cursor.delete()
        if found:
            self._transaction.put(CUT, pack([line, digest], META + CUT), db=self._tables.meta)
        return sorted(found)

    def _count(self, arrivals: list[int], next_arrival: int) -> dict[int, int]:
        """Returns how many messages of each batch are truncated with these arrivals, for the batches that have any
        of them."""
        counts: dict[int, int] = {}
        place = 0
        with self._transaction.cursor(db=self._tables.messages) as cursor:
            while place < len(arrivals):
                if not seek(cursor, arrivals[place]):
                    raise self._reader.damaged(f"message {arrivals[place]} is missing")
                start = int.from_bytes(cursor.key(), "big")
                end = _end(cursor, next_arrival)
                following = bisect_left(arrivals, end, lo=place)
                counts[start] = self._truncated(start) + following - place
                if following == place or counts[start] > end - start:
                    raise self._reader.damaged(
                        f"{counts[start]} of the {end - start} messages at {start} are truncated"
                    )
                place = following
        return counts

    def _delete_batches(self, counts: dict[int, int], lines: Lines, count: int) -> None:
        """Deletes the first batches, at most `count`, as far as all their messages are truncated and a start does
        not look for them, and takes them out of `counts`."""
        with self._transaction.cursor(db=self._tables.messages) as cursor:
            for _ in range(count):
                if not cursor.first():
                    return
                start = int.from_bytes(cursor.key(), "big")
                end = _end(cursor, lines.next_arrival)
                truncated = counts[start] if start in counts else self._truncated(start)
                if truncated < end - start or end > lines.open_from:
                    return
                counts.pop(start, None)
                self._transaction.delete(key_of(start), db=self._tables.truncated)
                cursor.first()
                cursor.delete()

    def _truncated(self, start: int) -> int:
        """Returns how many messages of a batch have been truncated before."""
        key = key_of(start)
        value = self._transaction.get(key, db=self._tables.truncated)
        if value is None:
            return 0
        count: int = self._reader.unpack(value, _TRUNCATED + key, f"truncated {start}")
        return count


def _end(cursor: Any, next_arrival: int) -> int:
    """Returns where the batch ends at which the cursor is, and leaves it at the next one, if there is one."""
    return int.from_bytes(cursor.key(), "big") if cursor.next() else next_arrival
