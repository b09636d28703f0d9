"""Logs for tests of exports, and what an export has of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from corel import Color, MessageId, Record
from kvstore.cli.export_writer import Figures, Source
from kvstore.log_schema import FIRST_DIGEST
from kvstore.node import Row, exported_row, revision_after
from kvstore.store import Outcome, Put, Verdict, Write, encode_write
from kvstore.store.write_codec import encode_batch
from transport import Machine, ViewId

A = Machine("a", 1)
VIEW = ViewId(3, "a", 1)
SOURCE = Source("test", "a", "a disk", "ab" * 16)


def body_of(number: int, writes: int = 1) -> bytes:
    """The body of a message with so many writes."""
    one = [encode_write(Write((Put(f"key {number} {index}", b"value"),))) for index in range(writes)]
    return encode_batch(one, expires=500_000 + number, accepted_ms=1_000 + number)


def record_of(position: int, body: bytes | None = None) -> Record:
    return Record(position, MessageId(A, position + 1), 10 + position, VIEW, 1, body or body_of(position))


def final_rows(first: int, count: int, digest: bytes = FIRST_DIGEST, revision: int = 0) -> list[Row]:
    """Rows whose messages have one write each, which changes something."""
    rows = []
    for position in range(first, first + count):
        outcomes = (Outcome(Verdict.APPLIED, revision + 1),)
        revision = revision_after(revision, outcomes)
        row = exported_row(position, record_of(position), Color.GREEN, outcomes, revision, digest)
        digest = row["digest"]
        rows.append(row)
    return rows


def tail_rows(first: int, colors: Sequence[Color], digest: bytes) -> list[Row]:
    rows = []
    for position, color in enumerate(colors, first):
        rows.append(exported_row(position, record_of(position), color, None, None, digest))
        digest = rows[-1]["digest"]
    return rows


def figures(green: int, yellow: int, length: int) -> Figures:
    return Figures(green, yellow, length, bytes(16), 1, 1)


def rows_in(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of these files, in the order of positions. Maps are lists of pairs."""
    found = [row for path in paths for row in pq.ParquetFile(str(path)).read(use_threads=False).to_pylist()]
    return sorted(found, key=lambda row: row["position"])


def final_of(directory: Path) -> list[dict[str, Any]]:
    return rows_in(directory.glob("log/segment=*/part-*.parquet"))


def tail_of(directory: Path, number: int) -> list[dict[str, Any]]:
    return rows_in(directory.glob(f"tail/export={number:06}/part-*.parquet"))
