"""All nodes hold the same log, so they reach the end of their maps together: reads go on, writes are refused,
nobody comes and goes, and larger maps bring everything back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.api.cluster import Answer, Cluster, Node, eventually

SMALL, LARGE = 24 * 1024**2, 64 * 1024**2
"""A fifth of either is more than one checkpoint takes, so the warning comes before the map is full."""

QUIET_SECONDS = 10.0


def map_of(size: int) -> tuple[str, ...]:
    """Flags for a map of this size, and for checkpoints that are small beside it."""
    return ("--set", f"log.map_bytes={size}", "--set", "store.checkpoint_ms=50")


@pytest.fixture
def values() -> dict[str, bytes]:
    """What was acknowledged, by key."""
    return {}


def fill(cluster: Cluster, values: dict[str, bytes]) -> list[Answer]:
    """Writes through all nodes in turn until each has left, and returns the errors."""
    refused: list[Answer] = []
    end = time.monotonic() + 120.0
    number = 0
    while any(node.status()["disk"] == "ok" for node in cluster):
        assert time.monotonic() < end, [node.status() for node in cluster]
        for node in cluster:
            number += 1
            key, value = f"k/{number}", b"%d/" % number * 15_000
            answer = node.put(key, value, "?timeout_ms=3000")
            if answer.status in (200, 202):
                values[key] = value
            else:
                refused.append(answer)
    return refused


def missing(node: Node, values: dict[str, bytes], query: str) -> list[str]:
    return [key for key, value in values.items() if node.get(key, query).body != value]


def test_nodes_whose_maps_are_full_read_on_refuse_writes_and_come_back_with_larger_ones(
    tmp_path: Path, values: dict[str, bytes]
) -> None:
    with Cluster("abc", tmp_path) as cluster:
        for node in cluster:
            node.start("--bootstrap", *map_of(SMALL))
        for node in cluster:
            node.await_ready("")
        cluster.await_views("abc")
        assert cluster["a"].put("first", "x").status == 200
        refused = fill(cluster, values)
        assert {(answer.status, answer.error) for answer in refused} <= {
            (503, "away"),
            (503, "no_primary"),
            (503, "timeout"),
            (504, "undecided"),
        }
        assert len(values) > 20

        seen = watch(cluster)
        assert all(len(found) == 1 for found in seen.values()), (
            f"incarnations and views in {QUIET_SECONDS} s: {seen}"
        )
        for node in cluster:
            assert node.output.count("the node cannot come back yet") == 1, "the log does not fill up either"

        for node in cluster:
            node.stop()
            node.start(*map_of(LARGE))
            node.await_ready("")
        cluster.await_views("abc")
        cluster.await_agreement()
        for node in cluster:
            assert missing(node, values, "") == []
            assert node.status()["warnings"] == [] or "file system" in str(node.status()["warnings"])
        assert cluster["b"].put("last", "x", "?ack=green").status == 200


def watch(cluster: Cluster) -> dict[str, set[tuple[int, str]]]:
    """Reads and writes for a while, and returns the incarnations and views that each node had meanwhile."""
    seen: dict[str, set[tuple[int, str]]] = {node.name: set() for node in cluster}
    end = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < end:
        for node in cluster:
            status = node.status()
            seen[node.name].add((status["incarnation"], status["view"]["id"]))
            assert "Raise log.map_bytes on every node" in status["disk"]
            assert any("of log.map_bytes" in warning for warning in status["warnings"])
            assert [node.get("first", query).status for query in ("", "?read=red", "?min_revision=1")] == [200] * 3
            away = node.put("first", "y")
            assert (away.status, away.error) == (503, "away")
            assert "its disk is full" in away.json["message"]
        time.sleep(0.1)
    return seen


def test_a_map_that_is_smaller_than_the_data_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    with Cluster("a", tmp_path) as cluster:
        node = cluster["a"]
        node.start("--bootstrap", *map_of(LARGE))
        node.await_ready()
        for number in range(20):
            assert node.put(f"k/{number}", bytes(1_000_000)).status == 200
        node.stop()
        node.start(*map_of(SMALL))
        assert node.wait() == 1
        assert "log.map_bytes is 25,165,824. Set it to more than" in node.output
        assert "Traceback" not in node.output
        node.start(*map_of(LARGE))
        node.await_ready()
        assert len(node.get("k/19").body) == 1_000_000


def test_a_map_that_would_not_hold_one_message_is_refused(tmp_path: Path) -> None:
    with Cluster("a", tmp_path) as cluster:
        node = cluster["a"]
        node.start("--bootstrap", *map_of(1_000_000))
        assert node.wait() == 2
        assert "map_bytes is 1,000,000, and must be at least twice body_bytes_max" in node.output


def test_a_node_warns_before_its_map_is_full(tmp_path: Path) -> None:
    with Cluster("a", tmp_path) as cluster:
        node = cluster["a"]
        node.start("--bootstrap", *map_of(SMALL))
        node.await_ready()
        assert not any("map_bytes" in warning for warning in node.status()["warnings"])
        number = 0
        while not any("map_bytes" in warning for warning in node.status()["warnings"]):
            number += 1
            assert node.put(f"k/{number}", bytes(200_000)).status == 200
        assert node.status()["disk"] == "ok"
        used = node.status()["disk_used"]
        assert 0.8 * SMALL <= used["used_bytes"] < SMALL
        assert used["map_bytes"] == SMALL
        assert 0 < used["free_bytes"] <= used["file_system_bytes"]
        eventually(lambda: "of log.map_bytes" in node.output)
