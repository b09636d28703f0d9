"""Differences between the clocks of nodes are found from their messages, and taken out."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.clocks import CLOCK_OFFSETS, CLOCK_PAIRS, NODE_CLOCKS, Clocks, clock_pairs, clocks, compared, exchanges
from tests.spark.frames import Fields, at, events_of, rows_of, schema_of

HOUR = 3_600_000.0
START = 1_700_000_000_000.0


def message(
    number: int, sender: str, receivers: str, ms: float, ahead: dict[str, float], delay: float = 2.0
) -> list[Fields]:
    """A message that is sent at a true time and takes a delay, by the clocks of its nodes."""
    name = f"{sender}.1.{number}"
    sent = at("sent", sender, START + ms + ahead.get(sender, 0.0), name)
    return [sent, *(at("received", node, START + ms + delay + ahead.get(node, 0.0), name) for node in receivers)]


def exchanged(session: SparkSession, ahead: dict[str, float], *pairs: str, times: int = 3) -> DataFrame:
    """Messages both ways between these pairs of nodes, some a second."""
    rows = []
    for number in range(1, times + 1):
        for place, pair in enumerate(pairs):
            one, other = tuple(pair)
            ms = number * 1_000.0 + place * 100.0
            rows += message(2 * number, one, other, ms, ahead, delay=2.0 + number)
            rows += message(2 * number + 1, other, one, ms, ahead, delay=2.0 + number)
    return events_of(session, *{(row["node"], row["event"], row["id"]): row for row in rows}.values())


def offsets_of(found: Clocks) -> dict[str, float]:
    return {row["node"]: row["offset_ms"] for row in found.nodes.collect() if row["offset_ms"] is not None}


@pytest.mark.parametrize("ahead", [0.0, 250.0, -5 * HOUR, 30 * 24 * HOUR])
def test_a_clock_that_is_ahead_is_found_by_how_much(spark_session: SparkSession, ahead: float) -> None:
    found = clocks(exchanged(spark_session, {"b": ahead}, "ab"))
    assert offsets_of(found) == {"a": 0.0, "b": pytest.approx(ahead, abs=0.01)}


def test_what_is_estimated_is_taken_out(spark_session: SparkSession) -> None:
    events = exchanged(spark_session, {"b": -2 * HOUR}, "ab", times=1)
    found = clocks(events)
    timed = found.timeline.corrected(events)
    assert rows_of(timed, "event", "node", "time_ms") == [
        ("received", "a", START + 1_003.0),
        ("received", "b", START + 1_003.0),
        ("sent", "a", START + 1_000.0),
        ("sent", "b", START + 1_000.0),
    ]


def test_half_the_least_round_trip_is_the_error(spark_session: SparkSession) -> None:
    found = clocks(exchanged(spark_session, {"b": 70.0}, "ab"))
    errors = {row["node"]: row["error_ms"] for row in found.nodes.collect()}
    assert errors == {"a": 0.0, "b": pytest.approx(3.0)}


def test_nodes_that_never_speak_to_the_reference_go_through_others(spark_session: SparkSession) -> None:
    ahead = {"b": 100.0, "c": HOUR, "d": -HOUR}
    found = clocks(exchanged(spark_session, ahead, "ab", "bc", "cd"))
    paths = {row["node"]: (row["state"], row["path"]) for row in found.nodes.collect()}
    assert paths["b"] == ("reference", ["b"])
    assert paths["d"] == ("measured", ["d", "c", "b"])
    assert offsets_of(found) == {
        "a": pytest.approx(-100.0, abs=0.01),
        "b": 0.0,
        "c": pytest.approx(HOUR - 100.0, abs=0.01),
        "d": pytest.approx(-HOUR - 100.0, abs=0.01),
    }


def test_what_cannot_be_compared_is_unknown(spark_session: SparkSession) -> None:
    alone = message(9, "c", "", 50.0, {}) + message(8, "a", "d", 60.0, {})
    no_journal = [at("received", "a", START, "z.1.1")]
    events = exchanged(spark_session, {}, "ab").unionByName(events_of(spark_session, *alone, *no_journal))
    found = clocks(events)
    states = {row["node"]: (row["state"], row["offset_ms"]) for row in found.nodes.collect()}
    assert states["c"] == ("unknown", None)
    assert states["d"] == ("unknown", None), "messages in one direction only say nothing"
    assert states["z"] == ("no_journal", None)
    assert states["a"] == ("reference", 0.0)


def test_a_drifting_clock_is_followed_and_its_drift_told(spark_session: SparkSession) -> None:
    drift = 100e-6
    rows = [
        row
        for number in range(1, 61)
        for one, other in (("a", "b"), ("b", "a"))
        for row in message(number, one, other, number * 10_000.0, {"b": number * 10_000.0 * drift})
    ]
    found = clocks(events_of(spark_session, *rows))
    b = found.nodes.where("node = 'b'").collect()[0]
    assert b["drift_ppm"] == pytest.approx(100.0, rel=0.02)
    assert b["offset_max_ms"] == pytest.approx(60.0, abs=1.5)
    assert b["windows"] == b["windows_measured"] > 50


def test_windows_without_messages_have_the_estimate_before_them(spark_session: SparkSession) -> None:
    early = exchanged(spark_session, {"b": 40.0}, "ab")
    later = events_of(spark_session, at("logged", "b", START + 100_000.0, "b.1.7"))
    found = clocks(early.unionByName(later))
    of_b = rows_of(found.offsets.where("node = 'b'"), "window_ms", "offset_ms", "is_measured")
    assert [is_measured for _, _, is_measured in of_b] == [True] + [False] * 10
    assert {round(offset, 3) for _, offset, _ in of_b} == {40.0}


def test_a_window_in_which_a_clock_was_changed_is_not_used(spark_session: SparkSession) -> None:
    rows = message(1, "a", "b", 0.0, {}) + message(2, "b", "a", 10.0, {"b": HOUR})
    pairs = clock_pairs(exchanges(events_of(spark_session, *rows)), 1 << 40)
    assert pairs.count() == 0, "one message shows a delay of minus an hour, the other of none: not one clock"


def test_a_sample_of_messages_has_both_ends_of_each(spark_session: SparkSession) -> None:
    events = exchanged(spark_session, {}, "ab", times=40)
    sampled = exchanges(events, one_in=4)
    assert 0 < sampled.count() < 40
    assert sampled.where("sent_ms is null or received_ms is null").count() == 0


def test_clusters_are_compared_each_for_itself(spark_session: SparkSession) -> None:
    one = exchanged(spark_session, {"b": 10.0}, "ab")
    other = exchanged(spark_session, {"b": -10.0}, "ab").replace("", "other", subset=["cluster"])
    found = clocks(one.unionByName(other))
    told = rows_of(found.nodes.where("node = 'b'"), "cluster", "offset_ms")
    assert told == [("", pytest.approx(10.0, abs=0.01)), ("other", pytest.approx(-10.0, abs=0.01))]


def test_no_events_are_no_clocks(spark_session: SparkSession) -> None:
    found = clocks(events_of(spark_session))
    assert found.nodes.count() == found.offsets.count() == found.pairs.count() == 0
    assert schema_of(found.nodes) == NODE_CLOCKS
    assert schema_of(found.offsets) == CLOCK_OFFSETS
    assert schema_of(found.pairs) == CLOCK_PAIRS


def test_the_path_of_the_least_error_is_taken() -> None:
    direct = {("", "c", "a"): 50.0, ("", "b", "a"): 1.0, ("", "c", "b"): 2.0}
    both = direct | {(cluster, peer, node): error for (cluster, node, peer), error in direct.items()}
    found = compared({("", "a"): 9, ("", "b"): 1, ("", "c"): 1}, both)
    assert found["", "c"].path == ["c", "b", "a"]
