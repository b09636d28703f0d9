"""Small frames for tests: built from the fields that matter, the others null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.clocks import CLOCK_OFFSETS
from spark.schemas import ANSWERS, LOGS, MESSAGE_EVENTS, RECORDS, Columns
from spark.timeline import Timeline

Fields = dict[str, Any]


def frame_of(session: SparkSession, columns: Columns, rows: list[Fields], **common: object) -> DataFrame:
    """Returns a frame with these columns. A field that is not one of them is a mistake of the test."""
    whole: list[Fields] = [{"cluster": "", **common, **row} for row in rows]
    wrong = {name for row in whole for name in row} - set(columns)
    assert not wrong, f"no such columns: {wrong}"
    return session.createDataFrame([tuple(row.get(name) for name in columns) for row in whole], columns.ddl)


def records_of(session: SparkSession, *rows: Fields, **common: object) -> DataFrame:
    return frame_of(session, RECORDS, list(rows), **{"incarnation": 1, **common})


def events_of(session: SparkSession, *rows: Fields, **common: object) -> DataFrame:
    return frame_of(session, MESSAGE_EVENTS, list(rows), **{"incarnation": 1, **common})


def answers_of(session: SparkSession, *rows: Fields, **common: object) -> DataFrame:
    return frame_of(session, ANSWERS, list(rows), **{"incarnation": 1, **common})


def logs_of(session: SparkSession, *rows: Fields, **common: object) -> DataFrame:
    return frame_of(session, LOGS, list(rows), **{"node": "a", "export": "a", "is_final": True, **common})


def at(event: str, node: str, ms: float, message: str = "", /, **fields: object) -> Fields:
    """An event at one moment of both clocks of its node."""
    name = {"id": message} if message else {}
    return {"event": event, "node": node, "monotonic_ms": float(ms), "wall_ms": float(ms), **name, **fields}


def true_clocks(
    session: SparkSession, width_ms: int = 1_000, offsets: Mapping[str, float] | None = None
) -> Timeline:
    """Returns a timeline on which clocks are right, but for these nodes in the window that begins at 0."""
    rows = [{"node": node, "window_ms": 0, "offset_ms": offset} for node, offset in (offsets or {}).items()]
    return Timeline(frame_of(session, CLOCK_OFFSETS, rows), 1 << 40, width_ms)


def rows_of(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Returns these columns of all rows, in order."""
    rows = [tuple(row) for row in frame.select(*names).collect()]
    return sorted(rows, key=lambda row: tuple((value is None, str(type(value)), value) for value in row))


def schema_of(frame: DataFrame) -> Fields:
    """Returns the types of a frame's columns by name, to be compared with `Columns`."""
    names = {"bigint": "long"}
    return {name: names.get(kind, kind).replace("bigint", "long") for name, kind in frame.dtypes}
