"""How long each step of a message took, on one node by its own clock, between nodes by corrected clocks."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.latency import HISTOGRAMS, LATENCIES, WATERFALL, Latency, latency
from tests.spark.frames import Fields, answers_of, at, events_of, records_of, rows_of, schema_of, true_clocks

ID = "a.1.1"
YELLOW = {"color": "yellow", "bytes": 300}


def green_message(ms: float = 0.0, name: str = ID) -> list[Fields]:
    """A message of a's that becomes green in the primary component of a, b and c; c is the slow one."""
    return [
        at("sent", "a", ms, name, **YELLOW),
        *(at("received", node, ms + 1 + slow, name, **YELLOW) for node, slow in (("b", 0), ("c", 4))),
        *(
            at("logged", node, ms + 3 + slow, name, color="yellow")
            for node, slow in (("a", 0), ("b", 0), ("c", 6))
        ),
        *(at("green", node, ms + 11, name, position=0) for node in "abc"),
        *(at("applied", node, ms + 12, name, position=0) for node in "abc"),
    ]


def answer(ms: float, name: str = ID, outcome: str = "applied", node: str = "a") -> Fields:
    fields = at("", node, ms, name, outcome=outcome, count=1, first=0)
    del fields["event"]
    return fields


def measured(session: SparkSession, events: list[Fields], answers: list[Fields] | None = None) -> Latency:
    return latency(events_of(session, *events), answers_of(session, *(answers or [])), true_clocks(session))


@pytest.fixture(scope="module")
def quick(spark_session: SparkSession) -> Latency:
    return measured(spark_session, green_message(), [answer(13.0)])


def steps_of(found: Latency, path: str) -> dict[str, float]:
    rows = found.latencies.where((F.col("dimension") == "all") & (F.col("path") == path)).collect()
    return {row["step"]: row["max_ms"] for row in rows}


def test_the_senders_path_is_divided_into_steps(quick: Latency) -> None:
    assert steps_of(quick, "sender") == {
        "sent → logged": 3.0,
        "logged → green": 8.0,
        "green → answered": 2.0,
        "green → applied": 1.0,
        "sent → green": 11.0,
        "sent → answered": 13.0,
    }


def test_the_remote_path_begins_at_the_sender(quick: Latency) -> None:
    remote = quick.latencies.where("path = 'remote' and dimension = 'node'")
    assert rows_of(remote.where("step = 'sent → received'"), "value", "max_ms") == [("b", 1.0), ("c", 5.0)]
    assert rows_of(remote.where("step = 'received → logged'"), "value", "max_ms") == [("b", 2.0), ("c", 4.0)]


def test_the_waterfall_is_by_the_slowest_node_and_adds_up(quick: Latency) -> None:
    steps = rows_of(quick.waterfall.where("path = 'cluster'"), "place", "step", "mean_ms")
    assert steps == [
        (0, "sent → received by all", 5.0),
        (1, "received by all → logged by all", 4.0),
        (2, "logged by all → green", 2.0),
        (3, "green → answered", 2.0),
    ]
    whole = steps_of(quick, "sender")["sent → answered"]
    assert sum(mean for _, _, mean in steps) == whole


def test_a_red_message_is_told_apart(spark_session: SparkSession) -> None:
    events = [
        at("sent", "a", 0, ID, color="red", bytes=10),
        at("logged", "a", 2, ID, color="red"),
        at("yellow", "a", 5_000, ID, position=7),
        at("yellow", "a", 6_000, ID, position=7),
        at("green", "a", 6_010, ID, position=7),
        at("recovered", "b", 4_000, ID, color="red"),
        at("green", "b", 6_020, ID, position=7),
    ]
    found = measured(spark_session, events, [answer(3.0, outcome="pending")])
    assert steps_of(found, "red") == {
        "sent → logged": 2.0,
        "sent → accepted": 3.0,
        "sent → yellow": 6_000.0,
        "yellow → green": 10.0,
        "sent → green": 6_010.0,
    }
    assert steps_of(found, "late") == {"sent → green": 6_020.0}
    assert found.waterfall.count() == 0


def test_a_message_whose_primary_ended_is_no_quick_one(spark_session: SparkSession) -> None:
    """Its sender was cut off with it, and took over that it is green, without a commitment of its own."""
    events = [row for row in green_message() if row["event"] not in ("green", "applied")]
    events += [at("yellow", node, 900, ID, position=0) for node in "bc"]
    events += [at("green", node, 910, ID, position=0) for node in "bc"]
    events += [at("green", "a", 9_000, ID, position=0)]
    found = measured(spark_session, events)
    assert steps_of(found, "interrupted")["sent → green"] == 9_000.0
    assert steps_of(found, "sender") == steps_of(found, "remote") == {}


def test_a_view_that_ended_before_green_interrupts_even_if_nobody_committed_again(
    spark_session: SparkSession,
) -> None:
    """The others made it green at once; its sender was cut off just before, and learns of it much later."""
    events = [{**row, "view": "v1"} for row in green_message() if (row["event"], row["node"]) != ("green", "a")]
    events += [at("green", "a", 6_700, ID, position=0)]
    views = [
        at("view", node, ms, view=view) for node, ms, view in (("a", -50, "v1"), ("a", 9, "v2"), ("b", 30, "v2"))
    ]
    found = latency(
        events_of(spark_session, *events),
        answers_of(spark_session),
        true_clocks(spark_session),
        records_of(spark_session, *views),
    )
    assert steps_of(found, "interrupted")["sent → green"] == 6_700.0
    assert steps_of(found, "sender") == {}


def test_a_view_that_ends_after_green_interrupts_nothing(spark_session: SparkSession) -> None:
    events = [{**row, "view": "v1"} for row in green_message()]
    views = [at("view", node, ms, view=view) for node in "abc" for ms, view in ((-50, "v1"), (15, "v2"))]
    found = latency(
        events_of(spark_session, *events),
        answers_of(spark_session),
        true_clocks(spark_session),
        records_of(spark_session, *views),
    )
    assert steps_of(found, "sender")["sent → green"] == 11.0
    assert steps_of(found, "interrupted") == steps_of(found, "late") == {}


def test_a_node_that_was_cut_off_is_late_and_the_others_are_not(spark_session: SparkSession) -> None:
    events = [
        row for row in green_message() if (row["event"], row["node"]) not in (("green", "c"), ("applied", "c"))
    ]
    events += [at("yellow", "c", 5_000, ID, position=0), at("green", "c", 5_001, ID, position=0)]
    found = measured(spark_session, events)
    assert steps_of(found, "sender")["sent → green"] == 11.0
    assert rows_of(found.latencies.where("path = 'remote' and dimension = 'node'"), "value")[0] == ("b",)
    assert steps_of(found, "late") == {"sent → green": 5_001.0}


def test_a_killed_incarnation_leaves_steps_out_and_its_next_ends_them(spark_session: SparkSession) -> None:
    events = [
        at("sent", "a", 0, ID, color="red", bytes=10),
        at("logged", "a", 2, ID, color="red"),
        {**at("green", "a", 70, ID, position=7), "incarnation": 2, "wall_ms": 4_000.0},
    ]
    found = measured(spark_session, events)
    assert steps_of(found, "red") == {"sent → logged": 2.0, "sent → green": 4_000.0}


def test_without_the_senders_journal_there_is_nothing_to_compare(spark_session: SparkSession) -> None:
    found = measured(spark_session, [row for row in green_message() if row["node"] != "a"])
    assert found.latencies.count() == 0


def test_skew_is_taken_out_between_nodes_but_not_within_one(spark_session: SparkSession) -> None:
    ahead = 7_200_000.0
    events = [
        {**row, "wall_ms": row["wall_ms"] + ahead, "monotonic_ms": row["monotonic_ms"] - 5.0}
        if row["node"] == "b"
        else row
        for row in green_message()
    ]
    timeline = true_clocks(spark_session, offsets={"b": ahead})
    found = latency(events_of(spark_session, *events), answers_of(spark_session), timeline)
    by_node = found.latencies.where("path = 'remote' and dimension = 'node' and value = 'b'")
    assert rows_of(by_node.where("step in ('sent → received', 'logged → green')"), "step", "max_ms") == [
        ("logged → green", 8.0),
        ("sent → received", 1.0),
    ]


def test_negative_delays_are_kept_and_counted(spark_session: SparkSession) -> None:
    early = [{**row, "wall_ms": row["wall_ms"] - 3.0} if row["node"] == "b" else row for row in green_message()]
    found = measured(spark_session, early)
    row = found.latencies.where("path = 'remote' and dimension = 'all' and step = 'sent → received'").collect()[0]
    assert (row["messages"], row["negative"], row["min_ms"], row["max_ms"]) == (2, 1, -2.0, 5.0)


def test_percentiles_are_right_within_half_a_percent(spark_session: SparkSession) -> None:
    events = _logged_after(spark_session, 2_000)
    found = latency(events, answers_of(spark_session), true_clocks(spark_session, 10_000_000))
    row = found.latencies.where("path = 'sender' and step = 'sent → logged' and dimension = 'all'").collect()[0]
    assert row["mean_ms"] == pytest.approx(1_000.5)
    for name, exact in (
        ("p50_ms", 1_000),
        ("p90_ms", 1_800),
        ("p99_ms", 1_980),
        ("p999_ms", 1_998),
        ("max_ms", 2_000),
    ):
        assert row[name] == pytest.approx(exact, rel=0.005)


def _logged_after(session: SparkSession, count: int) -> DataFrame:
    """Messages that are logged after as many milliseconds as their number says."""
    numbered = session.range(1, count + 1).withColumnRenamed("id", "n")
    both = numbered.select("n", F.explode(F.array(F.lit("sent"), F.lit("logged"))).alias("event"))
    time = F.when(F.col("event") == "logged", F.col("n")).otherwise(F.lit(0)).cast("double")
    rows = both.select(
        F.lit("").alias("cluster"), F.lit("a").alias("node"), F.lit(1).cast("long").alias("incarnation"), "event",
        time.alias("monotonic_ms"), time.alias("wall_ms"), F.concat(F.lit("a.1."), "n").alias("id"),
        F.lit("yellow").alias("color"),
    )  # fmt: skip
    return events_of(session).unionByName(rows, allowMissingColumns=True)


def test_latencies_are_told_by_size_window_and_cluster(spark_session: SparkSession) -> None:
    large = [{**row, "bytes": 5_000} if row["event"] == "sent" else row for row in green_message(2_500.0, "a.1.2")]
    other = [{**row, "cluster": "other"} for row in green_message(100.0)]
    found = measured(spark_session, [*green_message(), *large, *other])
    told = found.latencies.where("path = 'sender' and step = 'sent → green' and dimension in ('size', 'window')")
    assert rows_of(told, "cluster", "dimension", "rank", "value", "messages") == [
        ("", "size", 2, "up to 1 KiB", 1),
        ("", "size", 4, "up to 16 KiB", 1),
        ("", "window", 0, "0", 1),
        ("", "window", 2_000, "2000", 1),
        ("other", "size", 2, "up to 1 KiB", 1),
        ("other", "window", 0, "0", 1),
    ]


def test_no_events_have_no_latencies(spark_session: SparkSession) -> None:
    found = measured(spark_session, [])
    assert found.latencies.count() == found.waterfall.count() == 0
    assert schema_of(found.latencies) == LATENCIES
    assert schema_of(found.waterfall) == WATERFALL
    assert schema_of(found.histograms) == HISTOGRAMS
