"""What came over links, what was lost, and how long flow control held messages back."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark.network import BLOCKED, DROPPED, LINK_WINDOWS, LINKS, RETRANSMISSIONS, STUCK, Network, network
from tests.spark.frames import Fields, at, records_of, rows_of, schema_of, true_clocks


def counted(ms: float, node: str = "b", machine: str = "a.1", **counts: int) -> Fields:
    return at("links", node, ms, machine=machine, **counts)


def told(session: SparkSession, *rows: Fields, width_ms: int = 1_000) -> Network:
    return network(records_of(session, *rows), true_clocks(session, width_ms))


def test_loss_is_what_came_only_as_a_retransmission(spark_session: SparkSession) -> None:
    rows = [
        counted(10_000, packets=95, retransmissions=10, duplicates=2, bytes=1_000, requested_units=8),
        counted(20_000, packets=7, retransmissions=0, duplicates=0, bytes=50, requested_units=0),
    ]
    link = told(spark_session, *rows).links.collect()[0]
    assert (link["sender"], link["receiver"], link["packets"], link["bytes"]) == ("a", "b", 102, 1_050)
    assert (link["lost_packets"], link["requested_units"]) == (8, 8)
    assert link["loss"] == pytest.approx(8 / 100)


def test_requests_are_counted_by_link_and_reason(spark_session: SparkSession) -> None:
    rows = [
        at("nacked", "b", 100, machine="a.1", reason="new", firsts=[1, 9], counts=[2, 1]),
        at("nacked", "b", 200, machine="a.1", reason="retry", firsts=[9], counts=[1]),
        at("nacked", "a", 300, machine="b.1", reason="new", firsts=[5], counts=[1]),
    ]
    found = told(spark_session, *rows).links
    assert rows_of(found, "sender", "receiver", "nacks", "nacked_units", "renacked_units", "loss") == [
        ("a", "b", 2, 3, 1, None),
        ("b", "a", 1, 1, 0, None),
    ]


def test_links_over_time_have_windows_no_shorter_than_the_counting(spark_session: SparkSession) -> None:
    rows = [counted(ms, packets=10, retransmissions=1, duplicates=0) for ms in (9_000, 12_000, 19_000)]
    found = told(spark_session, *rows).link_windows
    assert rows_of(found, "window_ms", "packets", "lost_packets") == [(0, 10, 1), (10_000, 20, 2)]


def test_incarnations_of_a_node_are_one_end_of_a_link(spark_session: SparkSession) -> None:
    rows = [counted(1, machine="node.with.dots.1", packets=1), counted(2, machine="node.with.dots.2", packets=2)]
    assert rows_of(told(spark_session, *rows).links, "sender", "packets") == [("node.with.dots", 3)]


def test_who_sends_again_whose_packets_is_told(spark_session: SparkSession) -> None:
    rows = [at("retransmitted", node, 5, machine="a.1", first=1, last=1, bytes=100) for node in "aab"]
    found = told(spark_session, *rows).retransmissions
    assert rows_of(found, "node", "origin", "packets", "bytes") == [("a", "a", 2, 200), ("b", "a", 1, 100)]


def test_the_time_of_blocking_is_divided_among_windows(spark_session: SparkSession) -> None:
    rows = [
        at("blocked", "a", 900, reason="share_used"),
        at("blocked", "a", 1_200, reason="window_full"),
        at("unblocked", "a", 3_100, reason="window_open"),
    ]
    found = told(spark_session, *rows).blocked
    assert rows_of(found, "reason", "window_ms", "times", "blocked_ms") == [
        ("share_used", 0, 1, 100.0),
        ("share_used", 1_000, 0, 200.0),
        ("window_full", 1_000, 1, 800.0),
        ("window_full", 2_000, 0, 1_000.0),
        ("window_full", 3_000, 0, 100.0),
    ]


def test_blocking_that_lasts_over_the_hour_ends_in_the_next_one_there_is(spark_session: SparkSession) -> None:
    hour = 3_600_000.0
    rows = [at("blocked", "a", hour - 10, reason="backlog"), at("unblocked", "a", 3 * hour)]
    found = told(spark_session, *rows, width_ms=86_400_000).blocked
    assert rows_of(found, "times", "blocked_ms") == [(1, 2 * hour + 10)]


def test_blocking_of_a_killed_process_has_no_end_and_is_left_out(spark_session: SparkSession) -> None:
    rows = [
        at("blocked", "a", 10, reason="backlog"),
        {**at("unblocked", "a", 500), "incarnation": 2},
        at("blocked", "b", 10, reason="backlog"),
        at("stopped", "b", 60, reason="closed"),
    ]
    assert rows_of(told(spark_session, *rows).blocked, "node", "blocked_ms") == [("b", 50.0)]


def test_laggards_and_drops_are_counted(spark_session: SparkSession) -> None:
    rows = [
        at("stuck", "a", 1, reason="new", machines=["b.1", "c.1"]),
        at("stuck", "a", 2, reason="new", machines=["b.1"]),
        at("dropped", "a", 1, machine="c.1", reason="oversized", count=7),
        at("dropped", "a", 2, machine="c.1", reason="oversized", count=None),
        at("dropped", "a", 2, machine=None, reason="undecodable", count=1),
    ]
    found = told(spark_session, *rows)
    assert rows_of(found.stuck, "node", "laggard", "times") == [("a", "b", 2), ("a", "c", 1)]
    assert rows_of(found.dropped, "sender", "receiver", "reason", "datagrams") == [
        ("c", "a", "oversized", 8),
        (None, "a", "undecodable", 1),
    ]
    assert rows_of(found.links, "sender", "receiver", "dropped") == [("c", "a", 8)]


def test_a_quiet_network_has_nothing_to_tell(spark_session: SparkSession) -> None:
    found = told(spark_session, at("green", "a", 1, ids=["a.1.1"], position=0))
    expected = (LINKS, LINK_WINDOWS, RETRANSMISSIONS, BLOCKED, STUCK, DROPPED)
    frames = [getattr(found, name) for name in Network.__dataclass_fields__]
    assert [schema_of(frame) for frame in frames] == list(expected)
    assert [frame.count() for frame in frames] == [0] * len(frames)
