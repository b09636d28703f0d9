"""What nodes recovered when they had a message that was sent after it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark.audit.evidence import life_of
from spark.audit.queues import recovered_late, recovered_messages, sender_moments, sent_next
from tests.spark.frames import Fields, at, events_of, rows_of

OF_LIVES = "cluster string, node string, incarnation long, is_last boolean, epoch int"


def late(session: SparkSession, epochs_of_a: tuple[int, ...], *events: Fields) -> list[tuple[str, str, str]]:
    """Returns (node, message, next). `epochs_of_a` are those of the incarnations of node a, from the first on."""
    lives = [("", "a", life, life == len(epochs_of_a), epoch) for life, epoch in enumerate(epochs_of_a, 1)]
    epochs = session.createDataFrame([*lives, ("", "b", 1, True, 1)], OF_LIVES).withColumn("life", life_of())
    told = events_of(session, *events)
    recovered = recovered_messages(told)
    following = sent_next(sender_moments(told, recovered, epochs), epochs)
    return rows_of(recovered_late(recovered, following, told), "node", "id", "next")


def test_a_message_that_comes_after_the_next_of_one_who_had_it_is_late(spark_session: SparkSession) -> None:
    """The next message is ten seconds and more away, and so is in another bucket."""
    assert late(
        spark_session,
        (1,),
        at("received", "a", 10, "d.1.1"),
        at("received", "a", 30_000, "d.1.2"),
        at("sent", "a", 30_000, "a.1.1"),
        at("sent", "a", 30_001, "a.1.2"),
        at("recovered", "b", 5, "a.1.1"),
        at("recovered", "b", 6, "a.1.2"),
        at("recovered", "b", 7, "d.1.1"),
        at("recovered", "b", 7, "d.1.2"),
    ) == [("b", "d.1.1", "a.1.1"), ("b", "d.1.2", "a.1.2")]


def test_what_came_with_its_next_message_or_before_it_is_not_late(spark_session: SparkSession) -> None:
    assert not late(
        spark_session,
        (1,),
        at("received", "a", 10, "d.1.1"),
        at("sent", "a", 11, "a.1.1"),
        at("received", "a", 12, "d.1.2"),
        at("recovered", "b", 5, "a.1.1"),
        at("recovered", "b", 5, "d.1.1"),
        at("recovered", "b", 7, "d.1.2"),
    )


def test_a_later_incarnation_has_what_was_logged_on_the_same_disk(spark_session: SparkSession) -> None:
    events = [
        at("received", "a", 10, "d.1.1"),
        at("received", "a", 10, "d.1.2"),
        at("logged", "a", 11, "d.1.1"),
        at("sent", "a", 3, "a.3.1", incarnation=3),
        at("recovered", "b", 5, "a.3.1"),
        at("recovered", "b", 7, "d.1.1"),
        at("recovered", "b", 7, "d.1.2"),
    ]
    assert late(spark_session, (1, 1, 1), *events) == [("b", "d.1.1", "a.3.1")]
    assert not late(spark_session, (1, 1, 2), *events)
