"""Logs of real nodes, exported while clients write: they are what the nodes themselves say of their logs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.api.cluster import Cluster, Node
from tests.kvstore.cli.exports import final_of, tail_of


def export(cluster: Cluster, out: Path) -> None:
    data = [str(node.data) for node in cluster]
    subprocess.run(
        [sys.executable, "-m", "kvstore", "export", *data, "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
    )


@contextmanager
def writing(node: Node) -> Iterator[None]:
    """Writes to the node as fast as it answers, without waiting for green."""
    is_over = threading.Event()
    statuses: set[int] = set()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            statuses.add(node.put(f"{node.name} {number % 50}", f"value {number}").status)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert statuses <= {200, 202}


def log_of(node: Node) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    while page := node.get_path(f"/v1/log?from={len(entries)}&limit=500").json["entries"]:
        entries += page
    return entries


def as_told(row: dict[str, Any]) -> dict[str, object]:
    """The part of a row that a node tells of a message."""
    writes = [f"{row['id']}.{index}" for index, write in enumerate(row["writes"]) for _ in write["operations"]]
    names = ("position", "id", "color", "sender", "view")
    return {name: row[name] for name in names} | {
        "timestamp": row["clock"],
        "bytes": row["body_bytes"],
        "writes": writes,
    }


def as_exported(entry: dict[str, Any]) -> dict[str, object]:
    names = ("position", "id", "color", "sender", "view", "timestamp", "bytes")
    return {name: entry[name] for name in names} | {"writes": [one["write"] for one in entry["operations"]]}


def test_logs_are_exported_while_nodes_take_writes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Cluster("abc", tmp_path).start() as cluster:
        with writing(cluster["a"]), writing(cluster["c"]):
            export(cluster, out)
            cluster.partition("ab|c")
            export(cluster, out)
            cluster.heal()
            export(cluster, out)
        cluster.await_agreement()
        logs = {node.name: [as_exported(entry) for entry in log_of(node)] for node in cluster}
        for node in cluster:
            assert node.stop() == 0
    export(cluster, out)
    # What became green just before the end is not in the tree yet, and is in the tail.
    exported = {name: [*final_of(out / name), *tail_of(out / name, 4)] for name in logs}
    for name, log in logs.items():
        assert [as_told(row) for row in exported[name]] == log
        for number in (1, 2, 3):
            for row in tail_of(out / name, number):
                is_final = log[row["position"]]["id"] == row["id"]
                assert is_final or row["color"] != "green", f"{row['id']} was green at {row['position']}"
    assert {row["color"] for row in tail_of(out / "c", 2)} >= {"red"}
    digests = {name: [row["digest"] for row in rows] for name, rows in exported.items()}
    assert digests["a"] == digests["b"] == digests["c"]
    final = min(len(final_of(out / name)) for name in logs)
    assert final > 0
    revisions = {name: [row["revision"] for row in rows[:final]] for name, rows in exported.items()}
    assert revisions["a"] == revisions["b"] == revisions["c"]
