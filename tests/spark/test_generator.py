"""Synthetic logs are like those of real nodes, and clean, as far as plain Python can tell."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kvstore.journal_schema import SCHEMA
from spark.events import answers, message_events
from spark.generator import PLANTS, PlantError, generate, plant, shape_of
from spark.reading import read
from tests.spark.generated import SHAPE, green_order, journal


def rows(root: Path, node: str) -> list[dict[str, Any]]:
    export = root / "export" / node
    final = [pq.read_table(file) for file in sorted(export.glob("log/*/part-*.parquet"))]
    tail = [pq.read_table(file) for file in sorted(export.glob("tail/*/part-*.parquet"))]
    return [row for table in [*final, *tail] for row in table.to_pylist()]


def manifest(root: Path, node: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((root / "export" / node / "exports" / "000001.json").read_text())
    return content


def test_there_are_as_many_events_as_the_shape_says(
    spark_session: SparkSession, clean_logs: Path, tmp_path: Path
) -> None:
    inputs = read(spark_session, [str(clean_logs)], str(tmp_path))
    told = answers(inputs.records).where("outcome != 'rejected'").count()
    assert message_events(inputs.records).count() + told + inputs.logs.count() == SHAPE.events
    assert inputs.skipped.count() == 0


def test_every_record_has_the_fields_of_its_event(clean_logs: Path) -> None:
    for node in SHAPE.names:
        for record in journal(clean_logs, node):
            assert set(record) <= {*SCHEMA.common, *SCHEMA.events[record["event"]].fields}
            assert record["node"] == node


def test_the_records_of_an_incarnation_are_in_the_order_of_time(clean_logs: Path) -> None:
    for node in SHAPE.names:
        times = [(one["incarnation"], one["monotonic_ms"]) for one in journal(clean_logs, node)]
        assert times == sorted(times)


def test_all_nodes_have_the_same_green_order_without_gaps(clean_logs: Path) -> None:
    orders = [green_order(journal(clean_logs, node)) for node in SHAPE.names]
    longest = max(orders, key=len)
    assert sorted(longest) == list(range(SHAPE.majority_length))
    assert all(longest[position] == message_id for order in orders for position, message_id in order.items())
    assert [len(order) for order in orders] == [SHAPE.majority_length] * 2 + [SHAPE.minority_green]


def test_the_messages_of_a_stream_ascend_without_gaps(clean_logs: Path) -> None:
    last: Counter[str] = Counter()
    for _, message_id in sorted(green_order(journal(clean_logs, "a")).items()):
        stream, _, sequence = message_id.rpartition(".")
        assert int(sequence) == last[stream] + 1
        last[stream] += 1


def test_exported_logs_have_the_order_of_the_journals(clean_logs: Path) -> None:
    order = green_order(journal(clean_logs, "a"))
    for node in SHAPE.names:
        exported = rows(clean_logs, node)
        assert [row["position"] for row in exported] == list(range(manifest(clean_logs, node)["length"]))
        green = [row for row in exported if row["color"] == "green"]
        assert len(green) == manifest(clean_logs, node)["green"]
        assert all(order[row["position"]] == row["id"] for row in green)


def test_digests_are_chained(clean_logs: Path) -> None:
    for node in SHAPE.names:
        digest = bytes(32)
        for row in rows(clean_logs, node):
            digest = sha256(digest + row["id"].encode() + row["body_sha256"]).digest()
            assert row["digest"] == digest
            if row["position"] == manifest(clean_logs, node)["final"] - 1:
                assert manifest(clean_logs, node)["final_digest"] == digest.hex()


def test_what_a_message_was_sent_after_is_before_it(clean_logs: Path) -> None:
    last: Counter[str] = Counter()
    for row in rows(clean_logs, "c"):
        assert all(last[stream] >= sequence for stream, sequence in row["basis_known"] or ())
        assert row["basis_line"] is None or row["basis_line"] <= row["position"]
        last[row["id"].rpartition(".")[0]] = row["sequence"]
    assert any(row["basis_known"] for row in rows(clean_logs, "c"))


def test_clients_were_told_what_became_of_their_writes(clean_logs: Path) -> None:
    outcomes = {
        row["id"]: [(write["outcome"], write["revision"]) for write in row["writes"]]
        for row in rows(clean_logs, "a")
    }
    told = [one for one in journal(clean_logs, "a") if one["event"] == "acknowledged" and one["color"] == "green"]
    for record in told[:-10]:
        runs = zip(record["firsts"], record["counts"], record["outcomes"], record["revisions"], strict=True)
        writes = [(what, revision + place) for _, count, what, revision in runs for place in range(count)]
        assert writes == outcomes[record["id"]]


def test_messages_that_were_yellow_at_the_minority_alone_are_demoted(clean_logs: Path) -> None:
    demoted = [one for one in journal(clean_logs, "c") if one["event"] == "demoted"]
    assert len(demoted) == SHAPE.cycles - 1
    logged = [one for one in journal(clean_logs, "c") if one["event"] == "logged" and one["color"] == "yellow"]
    assert {message for one in demoted for message in one["ids"]} <= {id_ for one in logged for id_ in one["ids"]}


def test_the_same_seed_makes_the_same_logs(spark_session: SparkSession, clean_logs: Path, tmp_path: Path) -> None:
    generate(spark_session, SHAPE, str(tmp_path))
    assert journal(tmp_path, "b") == journal(clean_logs, "b")
    assert rows(tmp_path, "c") == rows(clean_logs, "c")


def test_a_violation_that_is_not_known_is_refused(spark_session: SparkSession, clean_logs: Path) -> None:
    with pytest.raises(PlantError, match="there is no violation 'x': demotion"):
        plant(spark_session, str(clean_logs), "x")
    assert len(PLANTS) == 13


def test_a_cluster_has_a_minority_that_can_be_cut_off() -> None:
    with pytest.raises(ValueError, match="3 to 26"):
        shape_of(1_000, nodes=2)
    assert [shape_of(100_000, nodes).minority for nodes in (3, 4, 5, 9)] == [1, 1, 2, 4]
