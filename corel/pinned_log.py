"""A log as it was at one moment: everything is read in one transaction, which lasts until it is closed.

LMDB uses no page again that the transaction can see, so whatever is written meanwhile, truncation too, changes
nothing here. That has a price: until it is closed, the file grows by all that is written. The writer never
waits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import lmdb

from corel import record_codec
from corel.checked_values import Bytes
from corel.disk_errors import DiskError, explained, unusable
from corel.lmdb_reading import LINES, META, Beginning, LmdbReader, Reading
from corel.record_cache import RecordCache
from corel.storage import Lines, Record

LINEAGE = b"lineage"
RECORDS_AT_ONCE = 2_000
"""How many records are read at once, however small they are: that takes a millisecond or two where their pages are
in memory, and far longer where the disk has to read them."""
_ARRIVALS_AT_ONCE = 256
_DIGESTS_MAX = 64
"""How many digests are remembered: one for each reader is enough, if it reads from the front to the end."""
_ORDER_RECORDS_MAX = 4
"""How many records of the order are remembered: a page may begin in one and end in the next."""
_CHAINED_AT_ONCE = 64
"""How many messages are added to a digest between two rests: they take less than a millisecond."""


class TableSize(NamedTuple):
    """How much there is in a table."""

    name: str
    records: int
    bytes: int
    """What its pages take, which is somewhat more than its records."""


class GreenMemory:
    """What was read of one log's green order last. Green messages never change, so it holds in every later
    transaction, too. A merge of many messages is one record of the order: whoever reads it page by page would read
    all of it for each page otherwise, and compute the digest of all that is before the page.

    Where that takes long, because nothing is remembered yet, `rest` is called now and then: a thread that computes
    without end slows down the other threads of the process. It is for one thread at a time."""

    def __init__(self, rest: Callable[[], object] = lambda: None) -> None:
        self.rest = rest
        self.records = RecordCache()
        self.digests: OrderedDict[int, bytes] = OrderedDict()
        """By line; the one that was used longest ago first."""
        self.order: OrderedDict[bytes, tuple[bytes, list[int]]] = OrderedDict()
        """Records of the order, by key."""

    def note_digest(self, line: int, digest: bytes) -> None:
        self.digests[line] = digest
        self.digests.move_to_end(line)
        if len(self.digests) > _DIGESTS_MAX:
            self.digests.popitem(last=False)

    def note_order(self, key: bytes, record: tuple[bytes, list[int]]) -> None:
        self.order[key] = record
        if len(self.order) > _ORDER_RECORDS_MAX:
            self.order.popitem(last=False)

    def digest_before(self, line: int) -> tuple[int, bytes] | None:
        """Returns the last line up to this one whose digest is known, with the digest."""
        known = max((known for known in self.digests if known <= line), default=None)
        return None if known is None else (known, self.digests[known])


class PinnedLog(LmdbReader):
    """The log of `reader`, and whatever else is in its environment, as they are when this is made. It has to be
    closed before the reader is. With `memory`, it goes on with what others of the same log have read."""

    def __init__(self, reader: LmdbReader, memory: GreenMemory | None = None) -> None:
        super().__init__(reader.directory)
        self._memory = memory or GreenMemory()
        self._cache = self._memory.records
        self.uuid = reader.uuid
        self._environment = reader._environment
        try:
            self._transaction = self._environment.begin()
        except lmdb.Error as error:
            raise unusable(self.directory, error) from error
        try:
            self._open_tables()
            self.identity = self._read_identity()
            with self.read(self._meta) as meta:
                value = meta.get(LINES)
                lineage = meta.get(LINEAGE)
            self.lines: Lines = record_codec.lines(self.unpack(value, META + LINES, "lines"))
            self.lineage: tuple[Any, ...] = ()
            """The generations of the cluster before this one."""
            if lineage is not None:
                self.lineage = tuple(map(tuple, self.unpack(lineage, META + LINEAGE, "the lineage")))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets the pages be used again."""
        self._transaction.abort()

    def table(self, name: str, is_index: bool = False) -> Any:
        """Returns a table, which the reader has opened before: nothing else may be opened while another thread
        writes."""
        try:
            return self._environment.open_db(
                name.encode(), txn=self._transaction, create=False, dupsort=is_index, dupfixed=is_index
            )
        except lmdb.NotFoundError:
            raise DiskError(f"{self.directory / 'data.mdb'} has no table {name!r}") from None
        except lmdb.Error as error:
            raise explained(error, self.directory) from error

    def read(self, table: Any, buffers: bool = False) -> Reading:
        return _PinnedReading(self._transaction, table, self)

    def size(self, name: str) -> TableSize:
        table = self.table(name)
        with self.read(table) as transaction:
            figures = transaction.stat(table)
        pages = figures["branch_pages"] + figures["leaf_pages"] + figures["overflow_pages"]
        return TableSize(name, figures["entries"], pages * figures["psize"])

    def records_after(self, name: str, after: bytes, bytes_max: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Returns the records of a table after this key, in order and unchanged: at least one if there is one, at
        most `RECORDS_AT_ONCE`, and no more once they have `bytes_max`. Says too whether they are the last. An
        empty key is before all."""
        found: list[tuple[bytes, bytes]] = []
        size = 0
        with self.read(self.table(name)) as transaction, transaction.cursor() as cursor:
            is_there = cursor.set_range(after) if after else cursor.first()
            if is_there and after and cursor.key() == after:
                is_there = cursor.next()
            for record in cursor.iternext() if is_there else ():
                if size >= bytes_max or len(found) == RECORDS_AT_ONCE:
                    return found, False
                found.append(record)  # type: ignore[arg-type]  # without buffers they are bytes
                size += len(record[0]) + len(record[1])
        return found, True

    def green_records(self, first: int, bytes_max: int) -> list[Record]:
        """Returns green messages from this position on: at least one if there is one, and no more once their
        bodies have `bytes_max`."""
        found: list[Record] = []
        size = 0
        for arrival in self._green_arrivals(first, min(_ARRIVALS_AT_ONCE, self.lines.green - first)):
            if size >= bytes_max:
                break
            found.append(self.record(arrival))
            size += len(found[-1].body)
        return found

    def green_digest(self, line: int) -> bytes:
        digest = super().green_digest(line)
        self._memory.note_digest(line, digest)
        return digest

    def _chained(self, digest: bytes, arrivals: Sequence[int]) -> bytes:
        for first in range(0, len(arrivals), _CHAINED_AT_ONCE):
            if first > 0:
                self._memory.rest()
            digest = super()._chained(digest, arrivals[first : first + _CHAINED_AT_ONCE])
        return digest

    def _digest_before(self, cursor: Any, beginning: Beginning, line: int) -> tuple[int, bytes]:
        known = self._memory.digest_before(line)
        if known is not None and known[0] >= int.from_bytes(cursor.key(), "big"):
            return known
        return super()._digest_before(cursor, beginning, line)

    def order_at(self, cursor: Any) -> tuple[bytes, list[int]]:
        key = bytes(cursor.key())
        known = self._memory.order.get(key)
        if known is None:
            known = super().order_at(cursor)
            self._memory.note_order(key, known)
        return known

    def open_records(self) -> list[Record]:
        """Returns the messages that are not green, in the order of their arrival."""
        arrivals = sorted(entry.arrival for entry in self.load().queue)
        return [self.record(arrival) for arrival in arrivals]


class _PinnedReading(Reading):
    """A table in the transaction of a pinned log, which goes on afterwards."""

    __slots__ = ("_table",)

    def __init__(self, transaction: lmdb.Transaction, table: Any, log: PinnedLog) -> None:
        super().__init__(transaction, log.directory)
        self._table = table

    def __enter__(self) -> Any:
        return _PinnedTable(self._transaction, self._table)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, lmdb.Error) and not isinstance(error, lmdb.BadValsizeError):
            raise explained(error, self._directory) from error


class _PinnedTable:
    """A transaction as one that was begun for this table."""

    __slots__ = ("_table", "_transaction")

    def __init__(self, transaction: lmdb.Transaction, table: Any) -> None:
        self._transaction = transaction
        self._table = table

    def get(self, key: bytes, default: Bytes | None = None, db: Any = None) -> Any:
        return self._transaction.get(key, default, db=self._table if db is None else db)

    def cursor(self, db: Any = None) -> Any:
        return self._transaction.cursor(db=self._table if db is None else db)

    def stat(self, table: Any) -> Any:
        return self._transaction.stat(table)
