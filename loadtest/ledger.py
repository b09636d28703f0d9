"""What was promised and what is there, side by side in an SQLite file: a record may have millions of lines."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from loadtest.record import WRITE_FIELDS, read_lines

T = TypeVar("T")

_ROWS = 10_000
"""How many rows are inserted at a time."""

_TABLES = f"""
    CREATE TABLE writes (worker, {", ".join(WRITE_FIELDS)});
    CREATE TABLE feeds (worker, watcher, first INTEGER, last INTEGER, digest, fault);
    CREATE TABLE delays (worker, what, duration_ms REAL);
    CREATE TABLE unfinished (file);
    CREATE TABLE log (id TEXT, position INTEGER, color TEXT, PRIMARY KEY (id, position)) WITHOUT ROWID;
    CREATE TABLE feed (revision INTEGER PRIMARY KEY, id TEXT, key TEXT);
    CREATE TABLE fates (node, id, color, outcome, revision);
    CREATE TABLE counters (node, key, value);
    CREATE TABLE digests (node, what, digest);
"""
_INDICES = """
    CREATE INDEX writes_by_id ON writes (id);
    CREATE INDEX writes_by_operation ON writes (operation, key);
    CREATE INDEX feed_by_id ON feed (id);
    CREATE INDEX fates_by_id ON fates (id);
"""

_RECORD_TABLES = {
    "write": ("writes", ("worker", *WRITE_FIELDS)),
    "feed": ("feeds", ("worker", "watcher", "first", "last", "digest", "fault")),
    "delay": ("delays", ("worker", "what", "duration_ms")),
}
"""Which fields of which lines of the record go where."""


class LogRow(NamedTuple):
    """A write in the log of a node."""

    id: str
    position: int
    color: str


class FeedRow(NamedTuple):
    revision: int
    id: str
    key: str


class FateRow(NamedTuple):
    """What one node says became of a write."""

    node: str
    id: str
    color: str | None
    outcome: str | None
    revision: int | None


class Ledger:
    def __init__(self, path: Path | None = None) -> None:
        """In memory without a path, for tests; a file of an earlier audit is replaced."""
        if path is not None:
            path.unlink(missing_ok=True)
        self._db = sqlite3.connect(path or ":memory:", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.executescript(_TABLES)

    def close(self) -> None:
        self._db.close()

    # What is put in

    def add_record(self, directory: Path) -> None:
        """Takes over all files of a record."""
        paths = sorted(directory.glob("*.jsonl"))
        if not paths:
            raise FileNotFoundError(f"there is no record in {directory}: --record of the run says where it is")
        for path in paths:
            self.add_lines(path.name, read_lines(path))

    def add_lines(self, name: str, lines: Iterable[dict[str, Any]]) -> None:
        """Takes over the lines of one file of a record."""
        is_finished = False
        for bunch in _bunches(lines):
            for kind, (table, names) in _RECORD_TABLES.items():
                rows = ([line.get(name) for name in names] for line in bunch if line["kind"] == kind)
                self._insert(table, rows, len(names))
            is_finished = bunch[-1]["kind"] == "end"
        if not is_finished:
            self._insert("unfinished", [(name,)], 1)

    def add_log(self, rows: Iterable[LogRow]) -> None:
        for bunch in _bunches(rows):
            self._insert("log", bunch, 3)

    def add_feed(self, rows: Iterable[FeedRow]) -> None:
        for bunch in _bunches(rows):
            self._insert("feed", bunch, 3)

    def add_fates(self, rows: Iterable[FateRow]) -> None:
        self._insert("fates", rows, 5)

    def add_counter(self, node: str, key: str, value: int) -> None:
        self._insert("counters", [(node, key, value)], 3)

    def add_digest(self, node: str, what: str, digest: str) -> None:
        self._insert("digests", [(node, what, digest)], 3)

    def index(self) -> None:
        """To be called once everything is in, before questions are asked."""
        self._db.executescript(_INDICES)

    def _insert(self, table: str, rows: Iterable[Sequence[Any]], columns: int) -> None:
        marks = ",".join("?" * columns)
        self._db.execute("BEGIN")
        self._db.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)
        self._db.execute("COMMIT")

    # What is asked

    def rows(self, question: str, *values: object) -> Iterator[Any]:
        return self._db.execute(question, values)

    def one(self, question: str, *values: object) -> Any:
        """Returns the first column of the first row, or `None`."""
        row = self._db.execute(question, values).fetchone()
        return None if row is None else row[0]

    def feed_range(self) -> tuple[int, int]:
        """Returns the first and the last revision that the feed has; (1, 0) for an empty one."""
        first, last = next(self.rows("SELECT min(revision), max(revision) FROM feed"))
        return (1, 0) if first is None else (first, last)

    def delays(self) -> dict[str, dict[str, float]]:
        """Returns how long things took that are no requests."""
        found = {}
        for what, count in list(self.rows("SELECT what, count(*) FROM delays GROUP BY what")):
            ranked = (
                "SELECT round(duration_ms, 1) FROM delays WHERE what = ? ORDER BY duration_ms LIMIT 1 OFFSET ?"
            )
            shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
            places = {name: min(count - 1, int(count * share)) for name, share in shares.items()}
            found[what] = {"count": count, **{name: self.one(ranked, what, at) for name, at in places.items()}}
        return found


def _bunches(rows: Iterable[T]) -> Iterator[list[T]]:
    left = iter(rows)
    while bunch := list(islice(left, _ROWS)):
        yield bunch
