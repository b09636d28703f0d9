"""Journals that grow are followed exactly, however often the follower is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.local_frames import local_frame
from spark.schemas import RECORDS
from spark.streaming import CheckpointError, Told, as_json, as_text, follow
from spark.streaming.batches import (
    ORDER,
    WAITING,
    bound_of,
    compared,
    contradictions,
    kept_order,
    lags,
    node_facts,
    still_waiting,
    waits,
)
from tests.spark.generated import SHAPE, green_order, journal

START_S = 240.0
"""On a machine with much else to do a session takes minutes to get going."""


def pieces(root: Path, node: str, lines_each: int) -> Iterator[tuple[str, str]]:
    """Names and contents of many small files, as a node would have finished them."""
    for file in sorted((root / "data" / node / "journal").glob("journal-*.jsonl")):
        lines = file.read_text().splitlines(keepends=True)
        for number, start in enumerate(range(0, len(lines), lines_each), 1):
            yield f"{file.name[:20]}-{number:06}.jsonl", "".join(lines[start : start + lines_each])


def finish(directory: Path, name: str, content: str) -> None:
    """Writes a file as a node does: it has its name when it is whole."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"_{name}").write_text(content)
    (directory / f"_{name}").rename(directory / name)


def told(checkpoint: Path, what: str) -> list[dict[str, Any]]:
    files = sorted((checkpoint / "told" / what).glob("batch-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + START_S
    while not condition():
        assert process.poll() is None, "the follower has ended"
        assert time.monotonic() < ends, "the follower did not get there"
        time.sleep(0.02)


def follower(directory: Path, checkpoint: Path) -> subprocess.Popen[bytes]:
    conf = ["--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.memory=768m"]
    options = ["--follow", "--checkpoint", str(checkpoint), "--master", "local[2]", "--json", *conf]
    command = [sys.executable, "-m", "kvstore", "analyze", str(directory), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


@pytest.mark.timeout(600)
def test_a_follower_that_is_killed_tells_nothing_twice_and_misses_nothing(
    spark_session: SparkSession, clean_logs: Path, tmp_path: Path
) -> None:
    data, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    files = [(node, *piece) for node in SHAPE.names for piece in pieces(clean_logs, node, 10)]
    files.sort(key=lambda one: one[1])
    half = len(files) // 2
    for node, name, content in files[:half]:
        finish(data / node / "journal", name, content)
    process = follower(data, checkpoint)
    try:
        state = checkpoint / "state"
        wait_for(lambda: (state / "batch-000000000" / "done.json").exists(), process)
        for node, name, content in files[half:]:
            finish(data / node / "journal", name, content)
        wait_for(lambda: (state / "batch-000000002").exists(), process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    follow(spark_session, [str(data)], str(checkpoint), lambda _: None, is_once=True)

    nodes = told(checkpoint, "nodes")
    for node in SHAPE.names:
        records = journal(clean_logs, node)
        assert sum(one["records"] for one in nodes if one["node"] == node) == len(records)
        greened = sum(one["greened"] for one in nodes if one["node"] == node)
        assert greened == len(green_order(records)) == max(one["green"] for one in nodes if one["node"] == node)
    assert len({(one["batch"], one["node"]) for one in nodes}) == len(nodes)
    assert {alert["kind"] for alert in told(checkpoint, "alerts")} <= {"partition", "no_primary"}
    sent = [one for node in SHAPE.names for one in journal(clean_logs, node) if one["event"] == "sent"]
    timed = sum(lag["messages"] for one in nodes for lag in one["to_green"])
    assert 0 < timed <= len(sent)


def test_what_was_there_is_told_once(spark_session: SparkSession, clean_logs: Path, tmp_path: Path) -> None:
    seen: list[Told] = []
    for _ in range(2):
        follow(spark_session, [str(clean_logs / "data")], str(tmp_path), seen.append, is_once=True)
    (batch,) = seen
    lines = {node["node"]: node for node in batch.nodes}
    assert lines["a"]["green"] == SHAPE.majority_length
    assert (lines["c"]["green"], lines["c"]["length"]) == (SHAPE.minority_green, SHAPE.minority_length)
    assert lines["c"]["red"] == SHAPE.reds - SHAPE.minority
    text = "\n".join(as_text(batch))
    assert f"c  non_primary  green {SHAPE.minority_green:,}  red" in text
    assert len([json.loads(line) for line in as_json(batch)]) == len(batch.nodes) + len(batch.alerts)


def test_nodes_that_disagree_are_told_of(spark_session: SparkSession, clean_logs: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for node in SHAPE.names:
        for name, content in pieces(clean_logs, node, 10_000):
            lines = content.splitlines()
            if node == "b":
                at = next(k for k, line in enumerate(lines) if '"event":"green"' in line and '","' in line)
                green = json.loads(lines[at])
                green["ids"].reverse()
                lines[at] = json.dumps(green)
            finish(data / node / "journal", name, "\n".join([*lines, ""]))
    follow(spark_session, [str(data)], str(tmp_path / "checkpoint"), lambda _: None, is_once=True)
    alerts = [one for one in told(tmp_path / "checkpoint", "alerts") if one["kind"] == "divergence"]
    positions = {int(one["subject"]) for one in alerts}
    assert positions
    assert positions <= set(range(green["position"], green["position"] + len(green["ids"])))
    assert all("at b" in one["text"] and "at a" in one["text"] for one in alerts)


def test_journals_that_are_missing_torn_or_incomplete_are_told_of(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    head = '{"version":1,"node":"a","incarnation":5,"monotonic_ms":1.0,"wall_ms":1.0,"event":'
    data, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    finish(data, "journal-000000000005-000001.jsonl", f'{head}"gap","count":3}}\n')
    finish(data, "journal-000000000005-000004.jsonl", f'{head}"stopped","reason":"closed"}}\n{{"versio')
    follow(spark_session, [str(data)], str(checkpoint), lambda _: None, is_once=True)
    found = {one["kind"]: one["text"] for one in told(checkpoint, "alerts")}
    assert set(found) == {"missing", "torn", "lost"}
    assert found["missing"].startswith("2 journal files of a before journal-000000000005-000004.jsonl")
    assert found["lost"] == "the journal of a lacks 3 events"


def test_a_checkpoint_belongs_to_its_directories(spark_session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    follow(spark_session, [str(tmp_path / "a")], str(tmp_path / "c"), lambda _: None, is_once=True)
    with pytest.raises(CheckpointError, match=r"name another directory with --checkpoint"):
        follow(spark_session, [str(tmp_path)], str(tmp_path / "c"), lambda _: None, is_once=True)


def test_the_first_claim_of_a_position_is_kept_and_others_are_compared_with_it(
    spark_session: SparkSession,
) -> None:
    known = local_frame(spark_session, [("k", 1, "b.1.1", "b"), ("k", 2, "b.1.2", "b")], ORDER.ddl)
    claims = local_frame(
        spark_session,
        [("k", 1, "b.1.1", "a"), ("k", 2, "x.1.1", "a"), ("k", 3, "c.1.1", "a"), ("j", 2, "b.1.9", "a")],
        ORDER.ddl,
    )
    positions = compared(known, claims)
    (found,) = contradictions(positions).collect()
    assert (found.cluster, found.position) == ("k", 2)
    assert {(claim.node, claim.id) for claim in found.claims} == {("b", "b.1.2"), ("a", "x.1.1")}
    kept = {(row.cluster, row.position, row.id) for row in kept_order(positions, {"k": 2, "j": 0}).collect()}
    assert kept == {("k", 2, "b.1.2"), ("k", 3, "c.1.1"), ("j", 2, "b.1.9")}


def test_messages_are_waited_for_until_they_are_green_or_their_sender_has_restarted(
    spark_session: SparkSession,
) -> None:
    waiting = local_frame(
        spark_session, [("", "a", 1, "a.1.1", "yellow", 10.0), ("", "b", 1, "b.1.1", "red", 5.0)], WAITING.ddl
    )
    common = dict.fromkeys(RECORDS) | {"cluster": "", "node": "a", "incarnation": 1}
    rows = [
        {**common, "event": "green", "monotonic_ms": 14.0, "ids": ["a.1.1", "b.1.1"], "position": 0},
        {**common, "event": "sent", "monotonic_ms": 15.0, "ids": ["a.1.2"], "color": "yellow"},
    ]
    records = local_frame(spark_session, [tuple(row[name] for name in RECORDS) for row in rows], RECORDS.ddl)
    waited = waits(waiting, records)
    (lag,) = lags(waited).collect()
    assert (lag.node, lag.color, lag.messages, lag.max_ms) == ("a", "yellow", 1, 4.0)
    still = still_waiting(waited, {("", "a"): 1, ("", "b"): 2}).collect()
    assert [(row.node, row.id) for row in still] == [("a", "a.1.2")]


def test_every_batch_can_be_empty(spark_session: SparkSession) -> None:
    records = local_frame(spark_session, [], RECORDS.ddl)
    assert node_facts(records).collect() == []
    assert waits(local_frame(spark_session, [], WAITING.ddl), records).collect() == []
    row = spark_session.range(1).select(bound_of(spark_session.range(1)["id"].cast("string"), {})).collect()
    assert row[0][0] == 0
