"""What a node says of a log of which little is kept: 410 for what is gone, and everything else as before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from corel.verification import verify
from kvstore.cli.main import main
from kvstore.client import Client, Compacted
from tests.api.cluster import Cluster, Node, eventually
from tests.api.scraping import scrape

KEPT = 20
_FLAGS = (
    *("--set", "log.recovery_messages_max=10", "--set", f"log.messages_kept={KEPT}"),
    *("--set", "store.checkpoint_ms=20", "--set", "store.history_revisions=10"),
)


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that keep little of their logs, and have written more than that."""
    with Cluster("abc", tmp_path_factory.mktemp("brief"), _FLAGS) as started:
        started.start()
        for number in range(40):
            started["a"].put(f"key/{number % 4}", str(number))
        yield started


def first_of(node: Node) -> int:
    return int(node.status()["log"]["first"])


def is_truncated(node: Node) -> bool:
    return first_of(node) > 0


def written(node: Node, count: int = 40) -> str:
    """Writes so many times, and returns the id of the first write."""
    ids = [str(node.put("key/0", str(number)).json["id"]) for number in range(count)]
    return ids[0]


def is_forgotten(node: Node, write_id: str) -> bool:
    """Whether a node no longer tells what became of a write, after a few more."""
    written(node, 5)
    return node.fate(write_id).status == 410


def test_the_log_begins_at_its_cut(brief: Cluster) -> None:
    for node in brief:
        eventually(partial(is_truncated, node))
        status = node.status()
        assert status["log"]["first"] <= status["green"]["line"] - KEPT
        assert 0 < status["log"]["bytes"] < 1_000_000
        page = node.get_path("/v1/log?limit=5").json
        assert [entry["position"] for entry in page["entries"]] == [page["next"] - 5 + place for place in range(5)]
        assert page["entries"][0]["position"] >= status["log"]["first"]


def test_what_is_before_the_cut_is_410_with_the_first_position(brief: Cluster) -> None:
    node = brief["b"]
    eventually(partial(is_truncated, node))
    gone = node.get_path("/v1/log?from=0")
    assert (gone.status, gone.error) == (410, "compacted")
    assert gone.json["message"].startswith(f"The log is kept from position {gone.json['first']} on.")
    found = node.get_path(f"/v1/log?from={gone.json['first']}&limit=1").json
    assert found["entries"][0]["position"] == gone.json["first"]


def test_the_metrics_say_the_same(brief: Cluster) -> None:
    node = brief["c"]
    eventually(partial(is_truncated, node))
    log, found = node.status()["log"], scrape(node)
    assert found("corelkv_log_first") >= log["first"]
    assert found("corelkv_log_bytes") > 0


def test_what_became_of_a_write_is_410_once_it_is_no_longer_kept(brief: Cluster) -> None:
    write_id = written(brief["a"])
    for node in brief:
        eventually(partial(is_forgotten, node, write_id))
        gone = node.fate(write_id, "?wait=green&timeout_ms=1")
        assert (gone.status, gone.error) == (410, "compacted")
        assert "no longer kept. Read the keys" in gone.json["message"]
    name, incarnation, sequence, _ = write_id.rsplit(".", 3)
    assert brief["a"].fate(f"{name}.{incarnation}.{int(sequence) + 10**6}.0").status == 404
    assert brief["a"].fate(f"x.{incarnation}.{sequence}.0").status == 404


def test_the_client_and_the_command_say_so(brief: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    node, write_id = brief["a"], written(brief["a"])
    eventually(lambda: all(is_forgotten(one, write_id) for one in brief))
    with Client(node.url) as client, pytest.raises(Compacted, match="no longer kept"):
        client.write(write_id)
    assert main(["write", write_id, "--url", node.url]) == 1
    assert "no longer kept" in capsys.readouterr().err
    assert main(["log", "--from", "0", "--url", node.url]) == 1
    assert "what is kept: corelkv log --from" in capsys.readouterr().err
    assert main(["log", "--limit", "1", "--url", node.url]) == 0


def test_a_node_that_starts_again_has_what_it_kept(tmp_path: Path) -> None:
    with Cluster("a", tmp_path, _FLAGS) as started:
        node = started.start()["a"]
        for number in range(60):
            node.put(f"key/{number % 4}", str(number))
        eventually(lambda: first_of(node) >= 40)
        node.put("key/0", "with which the cut gets to disk")
        before = node.status()
        node.kill()
        verify(node.data)
        node.start()
        node.await_ready()
        after = node.status()
        assert after["green"]["line"] >= before["green"]["line"] - 1
        assert after["log"]["first"] >= 40
        assert node.get("key/3").body == b"59"
        assert node.get_path("/v1/log").json["entries"][0]["position"] == first_of(node)
