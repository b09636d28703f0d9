"""What nodes and load tests wrote is found below a directory and read; what cannot be read is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from spark import reading
from spark.events import answers, message_events
from spark.reading import Inputs, read
from spark.schemas import ANSWERS, LOGS, MANIFESTS, MESSAGE_EVENTS, RECORDS, TOLD
from spark.sources import SourceError, find

Record = dict[str, Any]


def record(event: str, **fields: object) -> Record:
    common = {"version": 1, "node": "a", "incarnation": 7, "event": event, "monotonic_ms": 1.5, "wall_ms": 2.5}
    return {**common, **fields}


def write_lines(path: Path, *lines: Record | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in lines))
    return path


def write_rows(path: Path, rows: list[Record]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def export_to(directory: Path, **fields: object) -> None:
    """Exports a log of two final messages and one in the tail."""
    rows = [{"position": position, "id": f"a.1.{position + 1}"} for position in range(3)]
    write_rows(directory / "log/segment=0/part-000000000000-000000000001.parquet", rows[:2])
    write_rows(directory / "tail/export=000001/part-0.parquet", rows[2:])
    manifest = {"version": 1, "number": 1, "cluster": "shop", "node": directory.name, "first": 0, "final": 2}
    write_lines(directory / "exports/000001.json", json.dumps({**manifest, **fields}, indent=1))


def read_below(spark_session: SparkSession, directory: Path) -> Inputs:
    return read(spark_session, [str(directory / "in")], str(directory / "work"))


def rows_of(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*names).collect())


def skipped_of(inputs: Inputs) -> dict[str, int]:
    return {row["what"]: row["count"] for row in inputs.skipped.collect()}


def test_nothing_is_nothing(spark_session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    inputs = read_below(spark_session, tmp_path)
    frames = (inputs.records, inputs.logs, inputs.told, inputs.manifests)
    for frame, schema in zip(frames, (RECORDS, LOGS, TOLD, MANIFESTS), strict=True):
        assert frame.columns == list(schema)
        assert frame.isEmpty()
    assert skipped_of(inputs) == {}
    assert find(spark_session, [str(tmp_path / "in")]).is_empty


def test_a_directory_that_is_not_there_is_named(spark_session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere"):
        find(spark_session, [str(tmp_path / "nowhere")])


def test_journals_are_read_with_the_cluster_that_their_path_names(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    for where in ("in/cluster=a shop/x", "in/y"):
        write_lines(tmp_path / where / "journal/journal-1-1.jsonl", record("started", cluster=where))
    inputs = read_below(spark_session, tmp_path)
    assert rows_of(inputs.records, "cluster", "cluster_name") == [("", "in/y"), ("a shop", "in/cluster=a shop/x")]
    assert inputs.records.columns == list(RECORDS)
    assert skipped_of(inputs) == {}


def test_a_journal_that_is_being_written_is_read_too(spark_session: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "in/cluster=shop/journal"
    write_lines(directory / "journal-1-1.jsonl", record("started"))
    write_lines(directory / "_journal-1-2.jsonl", record("stopped"), '{"version": 1, "ev')
    inputs = read_below(spark_session, tmp_path)
    assert rows_of(inputs.records, "cluster", "event") == [("shop", "started"), ("shop", "stopped")]
    assert skipped_of(inputs) == {reading.TORN: 1}


def test_torn_lines_and_foreign_versions_are_counted(spark_session: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "in/journal/journal-1-1.jsonl"
    foreign = {**record("green", position="7"), "version": 9}
    write_lines(
        path, record("green", ids=["a.1.1"]), {**foreign, "position": 7}, record("green")["event"] + "\n", '{"ver'
    )
    inputs = read_below(spark_session, tmp_path)
    assert rows_of(inputs.records, "event", "version") == [("green", 1)]
    assert skipped_of(inputs) == {reading.TORN: 2, reading.FOREIGN: 1}


def test_messages_and_answers_of_a_record_become_rows(spark_session: SparkSession, tmp_path: Path) -> None:
    write_lines(
        tmp_path / "in/journal/journal-1-1.jsonl",
        record("applied", ids=["a.1.1", "b.1.1"], position=5, writes=[1, 2], revisions=[8, 10]),
        record(
            "acknowledged",
            id="a.1.1",
            color="green",
            firsts=[0, 4],
            counts=[4, 1],
            outcomes=["applied", "rejected"],
        ),
        record("stage", stage="primary"),
    )
    records = read_below(spark_session, tmp_path).records
    events, told = message_events(records), answers(records)
    assert (events.columns, told.columns) == (list(MESSAGE_EVENTS), list(ANSWERS))
    names = ("id", "position", "writes", "revision")
    assert rows_of(events, *names) == [("a.1.1", 5, 1, 8), ("b.1.1", 6, 2, 10)]
    assert rows_of(told, "id", "color", "first", "count", "outcome") == [
        ("a.1.1", "green", 0, 4, "applied"),
        ("a.1.1", "green", 4, 1, "rejected"),
    ]


def test_an_exported_log_is_read_with_its_tail(spark_session: SparkSession, tmp_path: Path) -> None:
    export_to(tmp_path / "in/cluster=shop/b")
    inputs = read_below(spark_session, tmp_path)
    assert inputs.logs.columns == list(LOGS)
    names = ("cluster", "node", "position", "id", "is_final")
    assert rows_of(inputs.logs, *names) == [
        ("shop", "b", 0, "a.1.1", True),
        ("shop", "b", 1, "a.1.2", True),
        ("shop", "b", 2, "a.1.3", False),
    ]
    assert rows_of(inputs.logs.where("not is_final"), "run") == [(1,)]
    assert rows_of(inputs.manifests, "cluster", "cluster_name", "node", "final") == [("shop", "shop", "b", 2)]
    export = inputs.manifests.collect()[0]["export"]
    assert rows_of(inputs.logs.select("export").distinct(), "export") == [(export,)]


def test_what_an_unfinished_export_wrote_is_not_read(spark_session: SparkSession, tmp_path: Path) -> None:
    export_to(tmp_path / "in/b")
    write_rows(tmp_path / "in/b/tail/export=000002/part-0.parquet", [{"position": 9, "id": "a.1.9"}])
    inputs = read_below(spark_session, tmp_path)
    assert inputs.logs.where("position = 9").isEmpty()
    assert skipped_of(inputs) == {reading.UNFINISHED_EXPORT: 1}


def test_an_export_of_a_foreign_version_is_not_read(spark_session: SparkSession, tmp_path: Path) -> None:
    export_to(tmp_path / "in/b", version=99)
    write_lines(tmp_path / "in/c/exports/000001.json", "{")
    inputs = read_below(spark_session, tmp_path)
    assert inputs.logs.isEmpty()
    assert inputs.manifests.isEmpty()
    left = {reading.FOREIGN_EXPORT: 1, reading.UNFINISHED_EXPORT: 1, reading.UNREADABLE_MANIFEST: 1}
    assert skipped_of(inputs) == left


def test_a_damaged_parquet_file_ends_no_job(spark_session: SparkSession, tmp_path: Path) -> None:
    export_to(tmp_path / "in/b")
    tail = tmp_path / "in/b/tail/export=000001/part-0.parquet"
    tail.write_bytes(tail.read_bytes()[:-20])
    assert rows_of(read_below(spark_session, tmp_path).logs, "position") == [(0,), (1,)]


def test_the_record_of_a_load_test_is_read(spark_session: SparkSession, tmp_path: Path) -> None:
    begin = {"kind": "begin", "schema": 1, "worker": "w"}
    write = {"kind": "write", "worker": "w", "node": "http://x", "status": 200, "id": "a.1.1.0", "time_ms": 5}
    write_lines(tmp_path / "in/record/1.jsonl", begin, write, {"kind": "end", "lines": 2})
    write_lines(tmp_path / "in/record/2.jsonl", begin, write, '{"ki')
    write_lines(tmp_path / "in/record/3.jsonl", begin, {"kind": "end", "lines": 4})
    inputs = read_below(spark_session, tmp_path)
    assert inputs.told.columns == list(TOLD)
    assert rows_of(inputs.told, "url", "id", "time_ms") == [("http://x", "a.1.1.0", 5.0)] * 2
    assert skipped_of(inputs) == {reading.TORN: 1, reading.NO_END: 1, reading.FEWER_LINES: 3}
