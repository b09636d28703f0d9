"""What clients asked for: from exported logs, and from journals where there is no export."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark import workload as workload_module
from spark.workload import CONFLICTS, KEYS, MIX, OUTCOMES, RATES, SIZES, WRITES, Workload, workload
from tests.spark.frames import (
    Fields,
    answers_of,
    at,
    events_of,
    logs_of,
    records_of,
    rows_of,
    schema_of,
    true_clocks,
)


def operation(kind: str, key: str, value_bytes: int | None = None) -> Fields:
    return {"kind": kind, "key": key, "value_bytes": value_bytes, "by": None}


def write(*operations: Fields, outcome: str | None = "applied", **fields: object) -> Fields:
    common: Fields = dict.fromkeys(
        ("otherwise", "conditions", "idempotency_key", "merge", "revision", "reason", "first")
    )
    return {
        **common,
        "operations": list(operations),
        "outcome": outcome,
        "conditions": 0,
        "merge": "last",
        **fields,
    }


def put(key: str, size: int = 10, outcome: str | None = "applied", **fields: object) -> Fields:
    return write(operation("put", key, size), outcome=outcome, **fields)


def message(position: int, *writes: Fields, sender: str = "a", ms: int = 0, **fields: object) -> Fields:
    name = {"id": f"{sender}.1.{position + 1}", "sender": sender, "position": position}
    return {**name, "accepted_ms": ms, "body_bytes": 100 * len(writes), "writes": list(writes), **fields}


def asked(session: SparkSession, *messages: Fields, records: DataFrame | None = None) -> Workload:
    nothing = records_of(session) if records is None else records
    return workload(
        logs_of(session, *messages), nothing, events_of(session), answers_of(session), true_clocks(session)
    )


def test_hot_keys_are_counted_exactly_and_ranked(spark_session: SparkSession) -> None:
    rows = [message(n, put("hot/1"), put(f"cold/{n}"), sender="ab"[n % 2]) for n in range(4)]
    found = workload_module.hot_keys(workload_module.operations_of(_writes(spark_session, *rows)), 2)
    assert rows_of(found, "rank", "key", "prefix", "operations", "share", "value_bytes", "senders") == [
        (1, "hot/1", "hot/", 4, 0.5, 40, 2),
        (2, "cold/0", "cold/", 1, 0.125, 10, 1),
    ]


def _writes(session: SparkSession, *messages: Fields) -> DataFrame:
    return workload_module.writes_of(logs_of(session, *messages), true_clocks(session))


def test_the_longest_export_of_a_cluster_is_taken_with_its_last_tail(spark_session: SparkSession) -> None:
    rows = [
        *(message(n, put("k")) for n in range(2)),
        message(2, put("old"), is_final=False, run=1),
        message(2, put("tail"), is_final=False, run=2),
        {**message(0, put("short")), "node": "b", "export": "b"},
        {**message(0, put("else")), "cluster": "other", "node": "z", "export": "z"},
    ]
    found = asked(spark_session, *rows).keys
    assert rows_of(found, "cluster", "key", "operations") == [("", "k", 2), ("", "tail", 1), ("other", "else", 1)]


def test_kinds_of_operations_and_writes_are_told_by_node_and_prefix(spark_session: SparkSession) -> None:
    rows = [
        message(0, put("users/1"), put("users/2", idempotency_key="x"), put("n", merge="keep_green")),
        message(1, write(operation("delete", "users/1"), operation("increment", "n"), conditions=1), sender="b"),
    ]
    found = asked(spark_session, *rows)
    assert rows_of(found.mix, "node", "prefix", "kind", "operations") == [
        ("a", "n", "put", 1),
        ("a", "users/", "put", 2),
        ("b", "n", "increment", 1),
        ("b", "users/", "delete", 1),
    ]
    kinds = ("node", "writes", "transactions", "conditional", "keep_green", "idempotent", "operations", "messages")
    assert rows_of(found.writes, *kinds) == [("a", 3, 0, 0, 1, 1, 3, 1), ("b", 1, 1, 1, 0, 0, 2, 1)]


def test_rare_prefixes_are_counted_together(spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_module, "PREFIXES_MAX", 1)
    found = asked(spark_session, message(0, *(put(key) for key in ("a/1", "a/2", "b/1", "c/1")))).mix
    assert rows_of(found, "prefix", "operations") == [("(others)", 2), ("a/", 2)]


def test_conflicts_and_repeats_are_told(spark_session: SparkSession) -> None:
    outcomes = ("applied", "applied", "rejected", "yielded", "duplicate", None)
    rows = [message(0, *(put("users/1", outcome=outcome) for outcome in outcomes))]
    twice = [at("outcome_changed", node, 1, write="a.1.1.1", kind="overwrote") for node in "ab"]
    met = records_of(spark_session, *twice)
    found = asked(spark_session, *rows, records=met)
    conflict = found.conflicts.collect()[0].asDict()
    counts = {"writes": 6, "applied": 2, "rejected": 1, "yielded": 1, "expired": 0, "duplicate": 1, "undecided": 1}
    assert {name: conflict[name] for name in counts} == counts
    assert (conflict["changed_by_merge"], conflict["conflict_rate"]) == (1, 2 / 5)
    assert ("log", "undecided", 1) in rows_of(found.outcomes, "source", "outcome", "writes")


def test_sizes_of_values_and_messages_are_told(spark_session: SparkSession) -> None:
    found = asked(
        spark_session, message(0, put("k", 10), put("k", 2_000)), message(1, write(operation("delete", "k")))
    )
    assert rows_of(found.sizes, "what", "size", "count", "bytes", "largest") == [
        ("message", "up to 256 B", 2, 300, 200),
        ("value", "up to 256 B", 1, 10, 10),
        ("value", "up to 4 KiB", 1, 2_000, 2_000),
    ]


def test_rates_are_told_from_logs_and_from_journals(spark_session: SparkSession) -> None:
    events = [
        at("sent", "a", 100, "a.1.1", bytes=50),
        at("applied", "a", 1_200, "a.1.1", writes=3),
        at("applied", "b", 1_200, "a.1.1", writes=3),
        at("received", "b", 110, "a.1.1", bytes=50),
    ]
    found = workload(
        logs_of(spark_session, message(0, put("k"), put("l"), ms=100), message(1, put("k"), ms=2_900, sender="b")),
        records_of(spark_session),
        events_of(spark_session, *events),
        answers_of(spark_session),
        true_clocks(spark_session),
    ).rates
    assert rows_of(found, "source", "node", "window_ms", "messages", "writes", "bytes", "per_second") == [
        ("journal", "a", 0, 1, 0, 50, 0.0),
        ("journal", "a", 1_000, 0, 3, 0, 3.0),
        ("log", "a", 0, 1, 2, 200, 2.0),
        ("log", "b", 2_000, 1, 1, 100, 1.0),
    ]


def test_what_clients_were_told_is_summed_up(spark_session: SparkSession) -> None:
    told = [
        {"node": "a", "outcome": outcome, "count": count} for outcome, count in (("applied", 5), ("applied", 2))
    ]
    found = workload(
        logs_of(spark_session),
        records_of(spark_session),
        events_of(spark_session),
        answers_of(spark_session, *told, {"node": "b", "outcome": "pending", "count": 1}),
        true_clocks(spark_session),
    ).outcomes
    assert rows_of(found, "source", "node", "outcome", "writes") == [
        ("journal", "a", "applied", 7),
        ("journal", "b", "pending", 1),
    ]


def test_messages_that_are_no_batches_of_writes_have_only_a_size(spark_session: SparkSession) -> None:
    found = asked(spark_session, message(0) | {"writes": None, "accepted_ms": None, "body_bytes": 7})
    assert rows_of(found.sizes, "what", "bytes") == [("message", 7)]
    assert found.rates.count() == found.keys.count() == 0


def test_without_logs_and_journals_there_is_no_workload(spark_session: SparkSession) -> None:
    found = asked(spark_session)
    frames = [getattr(found, name) for name in Workload.__dataclass_fields__]
    expected = (KEYS, SIZES, RATES, MIX, WRITES, CONFLICTS, OUTCOMES)
    assert [schema_of(frame) for frame in frames] == list(expected)
    assert [frame.count() for frame in frames] == [0] * len(frames)
