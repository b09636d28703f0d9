"""From end to end: nodes under load while their network is cut twice, their logs exported and analysed. What the
analysis counts from logs and journals is what the load test counted at the clients' side."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from kvstore.cli import main
from loadtest.cluster import OwnCluster
from loadtest.record import read_lines
from tests.ports import broadcast_port, free_ports

CUTS = ("a,b|c", "a|b,c")
CUT_SECONDS = 2.5
LOAD_SECONDS = 14
START_SECONDS = 60.0
USERS = 22
KINDS = ("YcsbF", "Counter", "Swapper", "Batcher", "RedWriter", "Watcher")
"""Four of the users swap, at all three nodes: what one of them does at a node that is cut off is rejected when it
merges, because the others have swapped the same keys meanwhile."""


class Counted(NamedTuple):
    """What the load test says."""

    writes: dict[str, int]
    told: Counter[str]
    """Acknowledged writes by what clients were told first; `pending` if it was not green."""


def put_under_load(urls: list[str], output: Path) -> Counted:
    """Runs Locust against the nodes, and cuts and heals the network meanwhile."""
    load = ("--duration", str(LOAD_SECONDS), "--users", str(USERS), "--sample", "20")
    patience = ("--level", "error_rate=0.3", "--level", "p99_ms=20000")
    command = [sys.executable, "-m", "loadtest", "run", "--host", ",".join(urls), "--output", str(output)]
    process = subprocess.Popen(
        [*command, *load, *patience, "--", *KINDS, "--records", "100"], stdout=subprocess.PIPE, text=True
    )
    try:
        ends = time.monotonic() + START_SECONDS
        while not (output / "progress.json").exists():
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.1)
        for sides in CUTS:
            assert main(["partition", sides, "--url", urls[0]]) == 0
            time.sleep(CUT_SECONDS)
            assert main(["heal", "--url", urls[0]]) == 0
        assert process.poll() is None, "the load has ended before the network was whole again"
        said, _ = process.communicate(timeout=200)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, said
    return counted_in(output)


def counted_in(output: Path) -> Counted:
    summary = json.loads((output / "summary.json").read_text())
    lines = [line for path in (output / "record").glob("*.jsonl") for line in read_lines(path)]
    acknowledged = [line for line in lines if line.get("certainty") == "acknowledged"]
    told = Counter(line["outcome"] if line["color"] == "green" else "pending" for line in acknowledged)
    return Counted(summary["writes"], told)


def analysed(
    spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch, directories: list[Path], report: Path
) -> dict[str, Any]:
    """The summary that `corelkv analyze` writes. The command opens a session and stops it; here it has the one
    that all tests share."""
    monkeypatch.setattr("spark.open_session", lambda *_: spark_session)
    monkeypatch.setattr(spark_session, "stop", lambda: None)
    jobs = ("--only", "audit", "--only", "workload")
    status = main(["analyze", *map(str, directories), "--out", str(report), *jobs])
    summary: dict[str, Any] = json.loads((report / "summary.json").read_text())
    frames = summary["frames"]
    assert (status, summary["verdict"]) == (0, "agreed"), frames["audit.violations"] + frames["audit.incomplete"]
    return summary


def compare(counted: Counted, frames: dict[str, list[dict[str, Any]]]) -> None:
    """Compares what was counted on both sides. A write that no client was told of (unknown) may have been answered
    by its node."""
    writes, told = counted
    assert (told.total(), told["pending"]) == (writes["acknowledged"], writes["red_at_first"])
    checked = {(row["rule"], row["what"]): row["count"] for row in frames["audit.checked"]}
    assert checked["acknowledged", "writes answered, by clients"] == writes["acknowledged"]
    by_journals, by_log = outcomes(frames, "journal"), outcomes(frames, "log")
    assert not told - by_journals
    assert (by_journals - told).total() <= writes["unknown"]
    assert by_log["applied"] == writes["changes_in_feed"]
    assert by_log.total() == writes["in_log"]
    assert min(told["applied"], told["pending"], by_log["rejected"]) > 0


def outcomes(frames: dict[str, list[dict[str, Any]]], source: str) -> Counter[str]:
    found = Counter[str]()
    for row in frames["workload.outcomes"]:
        if row["source"] == source:
            found[row["outcome"]] += row["writes"]
    return found


@pytest.mark.timeout(600)
def test_the_analysis_counts_what_the_load_test_counted(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, load, exported, report = (tmp_path / name for name in ("data", "load", "exported", "report"))
    with OwnCluster(3, data, tmp_path / "cluster.log", free_ports(3), broadcast_port()) as cluster:
        counted = put_under_load(cluster.urls, load)
        logs = [str(data / node) for node in "abc"]
        subprocess.run([sys.executable, "-m", "kvstore", "export", *logs, "--out", str(exported)], check=True)
    summary = analysed(spark_session, monkeypatch, [data, exported, load], report)
    compare(counted, summary["frames"])
