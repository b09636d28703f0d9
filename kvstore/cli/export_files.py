"""Rows of an exported log as a Parquet file, which appears under its name when it is whole and on disk.

Rows are turned into Arrow's columns a few at a time, because they take much more memory as Python's objects, and
are written as a row group when there are enough of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kvstore.log_schema import FIELDS
from kvstore.node import Row

ROWS_AT_ONCE_MAX = 1_024
ROWS_AT_ONCE_BYTES_MAX = 4 * 1024**2
"""How many rows are in memory as Python's objects, and how large they are at most, but for the last one."""

ROW_GROUP_ROWS_MAX = 16_384
ROW_GROUP_BYTES_MAX = 16 * 1024**2
"""The size at which a row group is written. A reader skips whole row groups, and has one in memory."""

_WRITE_BYTES_ESTIMATE = 1_500
"""What a write of a row takes in memory."""

_STATISTICS = [
    "position",
    "sender",
    "incarnation",
    "sequence",
    "clock",
    "arrival",
    "color",
    "accepted_ms",
    "revision",
]
"""The columns of which every row group says the least and the greatest value. A body may be a megabyte."""

_DICTIONARIES = [
    *("sender", "view", "color"),
    *(
        f"writes.list.element.{name}"
        for name in ("merge", "outcome", "reason", "operations.list.element.kind", "otherwise.list.element.kind")
    ),
]

_TYPES = {"long": pa.int64(), "string": pa.string(), "binary": pa.binary()}


def arrow_type(text: str) -> pa.DataType:
    """Returns the type that Spark spells like this."""
    if text in _TYPES:
        return _TYPES[text]
    kind, _, rest = text.partition("<")
    parts = _parts(rest.removesuffix(">"))
    if kind == "array":
        return pa.list_(arrow_type(parts[0]))
    if kind == "map":
        return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
    if kind == "struct":
        fields = (part.partition(":") for part in parts)
        return pa.struct([(name, arrow_type(of)) for name, _, of in fields])
    raise ValueError(f"there is no type {text}")


def _parts(text: str) -> list[str]:
    """Splits a text at the commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


SCHEMA = pa.schema([(name, arrow_type(column.type)) for name, column in FIELDS.items()])


class RowFile:
    """A file that is being written, beside its final place and with a `_` before its name, which Spark skips.
    Every method may raise `OSError`; then `abandon` it."""

    def __init__(self, temporary: Path) -> None:
        self._temporary = temporary
        make_directory(temporary.parent)
        self._writer = pq.ParquetWriter(
            str(temporary),
            SCHEMA,
            compression="zstd",
            use_dictionary=_DICTIONARIES,
            write_statistics=_STATISTICS,
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(0)],
        )
        self._rows: list[Row] = []
        self._rows_bytes = 0
        self._batches: list[pa.RecordBatch] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)
        writes = 0 if row["writes"] is None else len(row["writes"])
        self._rows_bytes += row["body_bytes"] + writes * _WRITE_BYTES_ESTIMATE
        if len(self._rows) >= ROWS_AT_ONCE_MAX or self._rows_bytes >= ROWS_AT_ONCE_BYTES_MAX:
            self._convert()
            rows = sum(batch.num_rows for batch in self._batches)
            size = sum(batch.nbytes for batch in self._batches)
            if rows >= ROW_GROUP_ROWS_MAX or size >= ROW_GROUP_BYTES_MAX:
                self._write_row_group()

    def _convert(self) -> None:
        self._batches.append(pa.RecordBatch.from_pylist(self._rows, schema=SCHEMA))
        self._rows, self._rows_bytes = [], 0

    def _write_row_group(self) -> None:
        table = pa.Table.from_batches(self._batches, schema=SCHEMA)
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS_MAX + ROWS_AT_ONCE_MAX)
        self._batches = []

    def finish(self, path: Path, metadata: Mapping[bytes, bytes]) -> int:
        """Gives the file its final name, when all of it is on disk, and returns its size."""
        if self._rows:
            self._convert()
        if self._batches:
            self._write_row_group()
        self._writer.add_key_value_metadata(metadata)
        self._writer.close()
        place(self._temporary, path)
        return path.stat().st_size

    def abandon(self) -> None:
        with suppress(OSError):
            self._writer.close()
        self._temporary.unlink(missing_ok=True)


def metadata_of(path: Path) -> Mapping[bytes, bytes]:
    """Returns what `RowFile.finish` was given. Raises `OSError` or `ValueError` if this is no whole file."""
    return dict(pq.read_metadata(str(path)).metadata or {})


# Files and directories that survive a loss of power


def place(temporary: Path, path: Path) -> None:
    """Gives a file its name when it is on disk."""
    _sync(temporary)
    temporary.rename(path)
    _sync(path.parent)


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is there whole or not at all."""
    make_directory(path.parent)
    temporary = path.with_name(f"_{path.name}")
    temporary.write_text(text, encoding="utf-8")
    place(temporary, path)


def make_directory(path: Path) -> None:
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
