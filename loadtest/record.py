"""The record of a run: what every write was answered, as JSON lines that Spark reads too.

Each generator of load has a file of its own. Its first line is `begin` and its last `end`; a file without the
last is of a generator that died, and may lack what it did at the end. In between are `write` lines, one for each
attempt, and `feed` lines, one for each stretch of a feed that a watcher has seen, and `delay` lines.
docs/loadtest.md describes every field."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

SCHEMA = 1
"""The version of the format."""

_to_json = json.JSONEncoder(separators=(",", ":")).encode


class Certainty(StrEnum):
    """What an answer says about a write. A request that failed is unknown: it may have been accepted."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


ACKNOWLEDGING = frozenset({200, 202, 409, 412, 422})
"""Statuses that come with the id of a write that has its place in the log, or will have it."""
REFUSING = frozenset({400, 404, 405, 408, 410, 413, 429, 431, 503})
"""Statuses after which nothing was accepted."""


def certainty_of(status: int, has_id: bool) -> Certainty:
    if status in ACKNOWLEDGING and has_id:
        return Certainty.ACKNOWLEDGED
    return Certainty.REFUSED if status in REFUSING else Certainty.UNKNOWN


@dataclass(slots=True)
class WriteLine:
    """One attempt at a write."""

    operation: str
    """put, insert, increment, swap, txn or red: what the user was doing."""
    key: str
    """The key; for a transaction the first of them."""
    node: str
    """The URL that was asked."""
    time_ms: int = 0
    """The wall clock when it was sent."""
    duration_ms: float = 0.0
    status: int = 0
    """The HTTP status; 0 if there was no answer."""
    certainty: str = Certainty.UNKNOWN
    id: str | None = None
    color: str | None = None
    outcome: str | None = None
    revision: int | None = None
    error: str | None = None
    """The code of an error answer, or what happened instead of an answer."""
    idempotency_key: str | None = None
    """Attempts with the same one are the same write."""
    amount: int | None = None
    """What an increment adds."""
    expected_revision: int | None = None
    """The revision that a swap replaces; 0 for a key that does not exist."""
    duplicate_outcome: str | None = None

    def answer(self, status: int, content: dict[str, Any]) -> None:
        """Takes over what a node answered."""
        self.status = status
        self.id = content.get("id")
        self.color, self.outcome = content.get("color"), content.get("outcome")
        self.revision, self.error = content.get("revision"), content.get("error")
        self.duplicate_outcome = content.get("duplicate_outcome")
        self.certainty = certainty_of(status, self.id is not None)


@dataclass(slots=True)
class FeedLine:
    """A stretch of a feed of everything, as one watcher has seen it."""

    watcher: str
    first: int
    last: int
    digest: str
    """Of the revisions and write ids of the stretch: see `FeedDigest`."""
    fault: str | None = None
    """What was wrong: a gap, a repetition."""


@dataclass(slots=True)
class DelayLine:
    """How long something took that is no request."""

    what: str
    """`red to green`: from sending a red write to seeing it green; `watch`: from making a value to its event."""
    duration_ms: float


class FeedDigest:
    """A digest of a stretch of a feed: SHA-256 over `<revision> <write id>` lines."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, revision: int, write_id: str) -> None:
        self._hash.update(f"{revision} {write_id}\n".encode())

    @property
    def text(self) -> str:
        return self._hash.hexdigest()


class Recorder:
    """Turns what one generator of load does into lines, and hands them to `emit` in bunches: at least once a
    second, so that memory is bounded and a generator that dies takes little with it."""

    LINES_MAX = 500
    SECONDS_MAX = 1.0

    def __init__(self, worker: str, emit: Callable[[list[str]], None]) -> None:
        self.worker = worker
        self._emit = emit
        self._lines: list[str] = []
        self._flushed = time.monotonic()
        self._count = 0
        self._add({"kind": "begin", "schema": SCHEMA, "worker": worker, "time_ms": wall_ms()})

    def write(self, line: WriteLine) -> None:
        self._add({"kind": "write", "worker": self.worker, **asdict(line)})

    def feed(self, line: FeedLine) -> None:
        self._add({"kind": "feed", "worker": self.worker, **asdict(line)})

    def delay(self, line: DelayLine) -> None:
        self._add({"kind": "delay", "worker": self.worker, **asdict(line)})

    def close(self) -> None:
        self._add({"kind": "end", "worker": self.worker, "lines": self._count, "time_ms": wall_ms()})
        self.flush()

    def _add(self, content: dict[str, Any]) -> None:
        self._lines.append(_to_json({name: value for name, value in content.items() if value is not None}))
        self._count += 1
        if len(self._lines) >= self.LINES_MAX or time.monotonic() - self._flushed >= self.SECONDS_MAX:
            self.flush()

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        self._flushed = time.monotonic()
        if lines:
            self._emit(lines)


class RecordFiles:
    """The files of a record, one for each generator, opened when its first lines come."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._open: dict[str, TextIO] = {}

    def append(self, worker: str, lines: Iterable[str]) -> None:
        file = self._open.get(worker)
        if file is None:
            file = self._open[worker] = open(self._directory / f"{worker}.jsonl", "a")  # noqa: SIM115 (closed below)
        file.writelines(f"{line}\n" for line in lines)
        file.flush()

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Returns the lines of one file. A torn last line, of a generator that was killed, is left out."""
    with open(path) as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


WRITE_FIELDS = tuple(field.name for field in fields(WriteLine))


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
