"""The lines of nodes over time."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark.lines import LINES, lines
from tests.spark.frames import at, records_of, rows_of, schema_of, true_clocks


def test_lines_are_told_as_they_were_last_in_each_window(spark_session: SparkSession) -> None:
    rows = [
        at("started", "a", 0, green=0, yellow=0, length=0),
        at("sent", "a", 100, ids=["a.1.1"], length=1),
        at("received", "a", 200, ids=["b.1.1", "b.1.2"], length=3),
        at("green", "a", 300, ids=["a.1.1", "b.1.1"], position=0),
        at("sent", "a", 1_500, ids=["a.1.2"], length=4),
        at("stage", "a", 2_000, green=2, yellow=3, length=4),
        at("sent", "a", 2_100, ids=["a.1.3"], length=5),
    ]
    found = lines(records_of(spark_session, *rows), true_clocks(spark_session))
    assert rows_of(found, "window_ms", "green", "yellow", "length", "waiting", "greened") == [
        (0, 2, 2, 3, 1, 2),
        (1_000, 2, 2, 4, 2, 0),
        (2_000, 2, 3, 5, 3, 0),
    ]


def test_the_longest_queue_of_a_window_is_kept(spark_session: SparkSession) -> None:
    rows = [at("reordered", "a", ms, green=0, yellow=0, length=length) for ms, length in ((1, 5), (2, 9), (3, 7))]
    found = lines(records_of(spark_session, *rows), true_clocks(spark_session))
    assert rows_of(found, "length", "length_max") == [(7, 9)]


def test_nodes_and_clusters_have_lines_of_their_own(spark_session: SparkSession) -> None:
    rows = [{**at("green", "a", 1, ids=["a.1.1"], position=4), "cluster": cluster} for cluster in ("", "x")]
    rows += [at("green", "b", 3_600_001, ids=["a.1.1", "a.1.2"], position=4)]
    found = lines(records_of(spark_session, *rows), true_clocks(spark_session, offsets={"b": 3_600_000.0}))
    assert rows_of(found, "cluster", "node", "window_ms", "green", "length") == [
        ("", "a", 0, 5, 5),
        ("", "b", 0, 6, 6),
        ("x", "a", 0, 5, 5),
    ]


def test_without_records_there_are_no_lines(spark_session: SparkSession) -> None:
    found = lines(records_of(spark_session), true_clocks(spark_session))
    assert found.count() == 0
    assert schema_of(found) == LINES
