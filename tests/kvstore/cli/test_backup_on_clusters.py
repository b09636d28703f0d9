"""Backup and restore of real nodes: a new cluster that has all that the old one had, and nothing to do with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corel.pinned_log import PinnedLog
from corel.read_only_log import ReadOnlyLog
from kvstore.node.snapshot_target import REVISIONS_SKIPPED
from tests.api.cluster import Cluster, Node, eventually
from tests.kvstore.cli.test_export_on_clusters import writing


def corelkv(*arguments: str) -> str:
    command = [sys.executable, "-m", "kvstore", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "old").mkdir()
    with Cluster("abc", tmp_path / "old") as made:
        yield made.start()


@pytest.fixture
def new(old: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Nodes of the same names and settings, of which nothing is there yet. They hear those of the old cluster."""
    (tmp_path / "new").mkdir()
    with Cluster("abc", tmp_path / "new", cluster=old.name) as made:
        made.nodes = {name: Node(name, old.flags, tmp_path / "new") for name in "abc"}
        yield made


def backup(node: Node, path: Path) -> Any:
    return json.loads(corelkv("backup", node.url, str(path), "--json"))


def restore(cluster: Cluster, path: Path) -> None:
    for node in cluster:
        corelkv("restore", str(path), "--data", str(node.data), "--node", node.name)
        node.start()
    cluster.await_views("abc")


def keys_of(node: Node, query: str = "") -> list[Any]:
    """All keys with their values and revisions."""
    found: list[Any] = []
    cursor = ""
    while True:
        page = node.get_path(f"/v1/kv?limit=1000{query}{cursor}").json
        found += page["items"]
        if page["cursor"] is None:
            return found
        cursor = f"&cursor={page['cursor']}"


def digest_at(data: Path, line: int) -> bytes:
    with closing(ReadOnlyLog(data)) as log, closing(PinnedLog(log)) as pinned:
        return pinned.green_digest(line)


def has_dropped(node: Node, reason: str) -> bool:
    return bool(node.status()["dropped_datagrams"].get(reason))


def test_a_cluster_that_is_restored_from_a_backup_under_writes_has_its_state_at_one_revision(
    old: Cluster, new: Cluster, tmp_path: Path
) -> None:
    for number in range(100):
        old["b"].put(f"before/{number}", f"value {number}")
    deleted = old["b"].delete("before/7").json["id"]
    with writing(old["a"]):
        made = backup(old["b"], tmp_path / "b.backup")
        later = old["c"].put("after the backup", "x").json["revision"]
        etag = old["c"].put("before/1", "a later value").headers["etag"]
    assert "is whole" in corelkv("verify", str(tmp_path / "b.backup"))
    restore(new, tmp_path / "b.backup")
    new.await_agreement()
    revision = new["a"].status()["green"]["revision"] - REVISIONS_SKIPPED
    assert 101 <= revision < later
    assert keys_of(new["a"]) == keys_of(new["c"]) == keys_of(old["a"], f"&revision={revision}")
    assert {node.status()["green"]["line"] for node in new} == {made["green"]}
    assert new["a"].get_path(f"/v1/writes/{deleted}").json["outcome"] == "applied"
    digests = {digest_at(node.data, made["green"]) for cluster in (old, new) for node in cluster}
    assert len(digests) == 1
    assert new["a"].put("goes on", "yes").json["color"] == "green"
    assert new["a"].put("before/1", "mine", If_Match=etag).status == 412
    assert new["a"].get_path(f"/v1/watch?from={later}").error == "compacted"


def test_a_node_of_the_old_cluster_that_is_left_over_is_kept_out(
    old: Cluster, new: Cluster, tmp_path: Path
) -> None:
    old["a"].put("k", "old")
    backup(old["a"], tmp_path / "a.backup")
    for name in "ab":
        old[name].stop()
    restore(new, tmp_path / "a.backup")
    eventually(partial(has_dropped, new["a"], "other_cluster"))
    new["a"].put("k", "new")
    assert {node.status()["state"] for node in new} == {"primary"}
    assert old["c"].get("k").body == b"old"
    assert old["c"].status()["state"] == "non_primary"
    assert old["c"].put("k", "left over", "?ack=green").status == 503


def test_a_backup_of_a_node_that_has_nothing_final_or_is_not_there_leaves_no_file(tmp_path: Path) -> None:
    with Cluster("ab", tmp_path) as cluster:
        cluster["a"].start("--bootstrap")
        cluster["a"].await_ready("")
        for node, status, sentence in (("a", 1, "knows of no primary component"), ("b", 6, "cannot reach")):
            command = [sys.executable, "-m", "kvstore", "backup", cluster[node].url, str(tmp_path / "a.backup")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, sentence in done.stderr) == (status, True), done.stderr
            assert not list(tmp_path.glob("*.backup*"))


KEEPS_LITTLE = ("--set", "log.recovery_messages_max=1", "--set", "log.messages_kept=2")


def test_a_truncated_log_is_handed_out_from_its_cut_on_and_is_backed_up_and_restored(
    tmp_path: Path,
) -> None:
    (tmp_path / "old").mkdir()
    with Cluster("a", tmp_path / "old", KEEPS_LITTLE) as old:
        node = old.start()["a"]
        last = ""

        def is_truncated() -> bool:
            nonlocal last
            last = node.put("k", "x" * 100_000).json["id"]
            return node.get_path("/v1/snapshots/log?from=0").status == 410

        eventually(is_truncated)
        refused = node.get_path("/v1/snapshots/log?from=0")
        assert refused.error == "compacted"
        assert node.get_path(f"/v1/snapshots/log?from={refused.json['first']}").status == 200
        backup(node, tmp_path / "a.backup")
        node.stop()
        node.data.rename(tmp_path / "old" / "away")
        corelkv("restore", str(tmp_path / "a.backup"), "--data", str(node.data), "--node", "a")
        node.start()
        node.await_ready()
        assert node.get("k").body == b"x" * 100_000
        assert node.get_path(f"/v1/writes/{last}").json["outcome"] == "applied"
        assert node.put("k", "goes on").json["color"] == "green"
