"""`/v1/snapshots`: a consistent copy of a node's disk in parts, while the node goes on."""

from __future__ import annotations

import json
import threading
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from corel import Lines
from kvstore.node.snapshot_format import Batch, Header
from kvstore.node.snapshot_target import SnapshotTarget, settle
from kvstore.store.green_state import GreenState
from tests.api.cluster import Cluster, Node
from tests.kvstore.node.snapshots import MAP_BYTES, opened


@pytest.fixture
def snapshot(node: Node) -> Iterator[Any]:
    answer = node.call("POST", "/v1/snapshots")
    assert answer.status == 201, answer.body
    yield answer.json
    node.call("DELETE", f"/v1/snapshots/{answer.json['id']}")


def transfer(node: Node, snapshot: Any, target: SnapshotTarget) -> None:
    """Reads a snapshot to its end, as a node that learns does."""
    path = f"/v1/snapshots/{snapshot['id']}"
    target.begin(b64decode(snapshot["header"]))
    while (table := target.position.table) is not None:
        after = urlsafe_b64encode(target.position.after).decode().rstrip("=")
        answer = node.get_path(f"{path}/{table}?after={after}")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/octet-stream")
        target.put_chunk(answer.body)
    while target.position.line < snapshot["green"]:
        target.put_batch(node.get_path(f"{path}/tail?from={target.position.line}").body)


def test_a_snapshot_that_is_read_while_writes_go_on_is_whole_and_of_one_revision(
    cluster: Cluster, key: str, tmp_path: Path
) -> None:
    node = cluster["a"]
    for number in range(50):
        node.put(f"{key}/{number:03}", b"x" * 5_000)
    stop = threading.Event()

    def write_on() -> None:
        while not stop.is_set():
            for number in range(50):
                node.put(f"{key}/{number:03}", b"newer")

    writer = threading.Thread(target=write_on)
    snapshot = node.call("POST", "/v1/snapshots").json
    writer.start()
    try:
        with closing(SnapshotTarget(tmp_path / "b", "test", "b", MAP_BYTES)) as target:
            transfer(node, snapshot, target)
            line = target.position.line
            target.put_batch(node.get_path(f"/v1/snapshots/log?from={line}").body)
            lines = target.finish_learning(Lines(), [])
    finally:
        stop.set()
        writer.join()
    assert lines.green > snapshot["green"] >= snapshot["line"]
    assert settle(tmp_path / "b", "test", "b", MAP_BYTES)
    with opened(tmp_path / "b") as (log, tree):
        assert (tree.line, tree.revision) == (snapshot["line"], snapshot["revision"])
        state = GreenState(tree)
        for entry in log.green(tree.line, snapshot["green"] - tree.line):
            state.apply(entry.id, entry.body or b"", entry.view)
        values = [state.item(f"{key}/{number:03}") for number in range(50)]
        assert {len(item.value) for item in values if item is not None} == {5_000}
    assert node.call("DELETE", f"/v1/snapshots/{snapshot['id']}").status == 204


def test_it_says_what_it_is_of(node: Node, snapshot: Any) -> None:
    header = Header.of(b64decode(snapshot["header"]))
    assert (snapshot["node"], snapshot["cluster"]) == (header.node, header.cluster) == ("a", node.cluster)
    assert (snapshot["revision"], snapshot["line"]) == (header.revision, header.line)
    assert [table["name"] for table in snapshot["tables"]] == [table.name for table in header.tables]
    assert header.lines.established >= 1


def test_so_many_may_be_open_and_one_that_is_closed_makes_room(node: Node) -> None:
    opened = [node.call("POST", "/v1/snapshots") for _ in range(5)]
    assert [answer.status for answer in opened] == [201, 201, 201, 201, 429]
    assert opened[-1].error == "too_many_snapshots"
    names = [answer.json["id"] for answer in opened[:-1]]
    assert [node.call("DELETE", f"/v1/snapshots/{name}").status for name in names] == [204] * 4
    again = node.call("DELETE", f"/v1/snapshots/{names[0]}")
    assert (again.status, again.error) == (404, "unknown_snapshot")
    read = node.get_path(f"/v1/snapshots/{names[0]}/items")
    assert (read.status, read.error) == (404, "unknown_snapshot")


def test_what_is_not_asked_for_in_the_right_way_is_refused(node: Node, snapshot: Any) -> None:
    path = f"/v1/snapshots/{snapshot['id']}"
    assert node.get_path(f"{path}/history").status == 400, "no table that travels"
    assert node.get_path(f"{path}/items?after=*").status == 400
    assert node.get_path(f"{path}/items?after={chr(65) * 800}").status == 400
    assert node.get_path(f"{path}/tail").status == 400
    assert node.get_path("/v1/snapshots/short/items").status == 400


def test_at_the_end_of_the_log_a_batch_is_empty(node: Node, snapshot: Any) -> None:
    batch = Batch.of(node.get_path(f"/v1/snapshots/{snapshot['id']}/tail?from={snapshot['green']}").body)
    assert (batch.position, batch.records) == (snapshot["green"], [])
    header = Header.of(b64decode(snapshot["header"]))
    assert batch.digest == header.lines.green_digest


def test_a_node_that_knows_of_no_primary_component_has_nothing_to_hand_out(tmp_path: Path) -> None:
    with Cluster("abc", tmp_path) as cluster:
        cluster["a"].start("--bootstrap")
        cluster["a"].await_ready(need="")
        answer = cluster["a"].call("POST", "/v1/snapshots")
        assert (answer.status, answer.error) == (503, "no_primary")
        told = "This node has no snapshot to hand out: it knows of no primary component that was established. Ask"
        assert json.loads(answer.body)["message"].startswith(told)
