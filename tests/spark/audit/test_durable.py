"""How many messages a node starts with, and how many it had logged before."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark.audit.causal import disk_epochs
from spark.audit.durable import forgotten_at_start, last_exports, logged_streams
from spark.audit.journals import INCARNATIONS
from spark.schemas import MANIFESTS
from tests.spark.frames import Fields, at, events_of, frame_of, rows_of

LOGGED = (
    at("logged", "a", 1, "a.1.1"),
    at("logged", "a", 2, "a.1.2"),
    at("logged", "a", 3, "b.1.1"),
    at("logged", "a", 1, "b.1.1", incarnation=2),
    at("logged", "a", 2, "b.1.2", incarnation=2),
)


def forgotten(
    session: SparkSession, *started_with: int | None, events: tuple[Fields, ...] = LOGGED
) -> list[tuple[object, ...]]:
    """Returns the details of what is found of a node whose incarnations started with so many messages."""
    lives: list[Fields] = [
        {"node": "a", "incarnation": life, "started_length": length, "is_last": life == len(started_with)}
        for life, length in enumerate(started_with, 1)
    ]
    incarnations = frame_of(session, INCARNATIONS, lives)
    streams = logged_streams(events_of(session, *events), last_exports(frame_of(session, MANIFESTS, [])))
    return rows_of(forgotten_at_start(streams, incarnations, disk_epochs(incarnations)), "position", "detail")


def test_a_node_that_starts_with_all_that_it_had_logged_or_more_forgets_nothing(
    spark_session: SparkSession,
) -> None:
    assert not forgotten(spark_session, 0, 3, 4)
    assert not forgotten(spark_session, 0, 5, 9)


def test_a_node_that_starts_with_less_than_it_had_logged_has_forgotten_something(
    spark_session: SparkSession,
) -> None:
    told = "a started as incarnation 3 with 3 messages, and had logged 4 on the same disk"
    assert forgotten(spark_session, 0, 3, 3) == [(3, told)]


def test_what_was_logged_on_another_disk_or_by_a_start_of_which_nothing_is_told_does_not_count(
    spark_session: SparkSession,
) -> None:
    assert not forgotten(spark_session, 0, 3, 0)
    assert not forgotten(spark_session, 0, 0, 2)
    assert not forgotten(spark_session, 0, 3, None)
