"""`list`, `watch`, `history` and `conflicts` as a user runs them, against a node with scripted answers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kvstore.cli.main import main
from tests.kvstore.cli.test_main import GREEN, Node, running_node

ITEMS = [
    {"key": "n/1", "value": "one\ntwo", "revision": 3, "content_type": "text/plain"},
    {"key": "n/2", "value": {"base64": "/wA="}, "revision": 4, "content_type": "x/y"},
]
EVENT = {
    "revision": 7,
    "write": "a.1.2.0",
    "changes": [
        {"key": "k", "value": "v", "content_type": "text/plain", "prev": {"value": "u", "revision": 3}},
        {"key": "l", "deleted": True},
    ],
}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    with running_node() as started:
        monkeypatch.setenv("CORELKV_URL", started.url)
        yield started


def sse(*events: tuple[str, object]) -> bytes:
    return b"".join(f"{head}data: {json.dumps(data)}\n\n".encode() for head, data in events)


def test_list_prints_a_line_per_key(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.answer("GET /v1/kv", 200, {"items": ITEMS, "cursor": None, "revision": 9})
    assert main(["list", "n/", "--reverse", "--read", "red"]) == 0
    assert node.asked[0][1] == "/v1/kv?prefix=n%2F&reverse=true&read=red"
    assert capsys.readouterr().out == "n/1\tone\\ntwo\nn/2\t<2 bytes>\n"
    assert main(["list", "--json", "--limit", "1"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ITEMS[:1]


def test_list_counts_or_shows_keys(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.answer("GET /v1/kv", 200, {"count": 2, "revision": 9})
    assert main(["list", "n/", "--count"]) == 0
    node.answer("GET /v1/kv", 200, {"items": [{"key": "n/1", "revision": 3}], "cursor": None, "revision": 9})
    assert main(["list", "--keys-only", "--start", "a", "--end", "z", "--revision", "5"]) == 0
    assert [path for _, path, _, _ in node.asked] == [
        "/v1/kv?prefix=n%2F&count_only=true",
        "/v1/kv?start=a&end=z&keys_only=true&revision=5",
    ]
    assert capsys.readouterr().out == "2\nn/1\n"


def test_what_is_not_kept_any_more_is_explained(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.answer("GET /v1/kv", 410, {"error": "compacted", "message": "That is gone.", "oldest": 5})
    assert main(["list", "--revision", "1"]) == 1
    assert capsys.readouterr().err == "corelkv: That is gone.\n"


def test_history_is_printed_newest_first(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    items = [
        {"revision": 5, "write": "b.1.1.0", "deleted": True},
        {"revision": 3, "write": "a.1.1.0", "value": "v", "content_type": "text/plain"},
    ]
    node.answer("GET /v1/history", 200, {"key": "a/b", "items": items, "cursor": None, "oldest": 1})
    assert main(["history", "a/b"]) == 0
    assert node.asked[0][1] == "/v1/history?key=a%2Fb"
    assert capsys.readouterr().out == "5\tdelete\t(write b.1.1.0)\n3\tput\tv\t(write a.1.1.0)\n"
    assert main(["history", "a/b", "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert shown == [{"key": "a/b", **item} for item in items]


def test_conflicts_show_both_sides(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    other = {"write": "b.1.1.0", "node": "b", "revision": 4, "value": "theirs"}
    one = {"kind": "overwrote", "key": "k", "write": "c.1.1.0", "node": "c", "value": "ours", "other": other}
    node.answer("GET /v1/conflicts", 200, {"items": [one], "cursor": None})
    assert main(["conflicts", "k", "--from", "3"]) == 0
    assert node.asked[0][1] == "/v1/conflicts?from=3&prefix=k"
    assert capsys.readouterr().out == "overwrote\tk\tc.1.1.0 ours\t(other: b.1.1.0 theirs)\n"
    assert main(["conflicts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == one


def test_a_preview_says_what_would_become_of_writes(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    changes = [{"key": "k", "before": "x", "after": "y"}]
    one = {"write": "c.1.1.0", "node": "c", "color": "red", "outcome": "applied", "changes": changes}
    node.answer("GET /v1/conflicts/preview", 200, {"items": [one], "cursor": None, "revision": 4})
    assert main(["conflicts", "--preview"]) == 0
    assert capsys.readouterr().out == "red\tapplied\tk\t(write c.1.1.0)\n"
    assert main(["conflicts", "--preview", "--from", "3"]) == 2


def test_watch_prints_a_line_per_change(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.answer("GET /v1/watch", 200, sse(("id: 7\n", EVENT), ("id: 8\n", EVENT)))
    assert main(["watch", "k", "l", "--from", "5", "--prev", "--count", "1"]) == 0
    assert node.asked[0][1] == "/v1/watch?prefix=k&prefix=l&from=5&prev=true"
    assert capsys.readouterr().out == "7\tput\tk\tv\t(before: u)\n7\tdelete\tl\n"
    assert main(["watch", "--key", "k", "--from", "5", "--json", "--count", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == EVENT
    assert main(["watch", "k", "--key", "l"]) == 2
    node.answer("GET /v1/watch", 410, {"error": "compacted", "message": "That is gone.", "oldest": 9})
    assert main(["watch", "--from", "5"]) == 1
    assert capsys.readouterr().err.endswith("corelkv: That is gone.\n")


def test_watch_shows_what_is_not_final_yet(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    operations = [
        {"put": {"key": "k", "value": "v", "content_type": "x/y"}},
        {"delete": {"key": "l"}},
        {"increment": {"key": "n", "by": -2}},
        {"append": {"key": "t", "value": "more"}},
    ]
    stream = sse(
        ("event: tentative\n", {"write": "c.1.1.0", "color": "red", "operations": operations}),
        ("event: recolored\n", {"write": "c.1.1.0", "color": "yellow"}),
        (
            "event: outcome\n",
            {"write": "c.1.1.0", "outcome": "rejected", "reason": "condition_failed", "key": "k"},
        ),
        ("id: 2\n", {"revision": 2, "write": "c.1.2.0", "changes": [{"key": "k", "deleted": True}]}),
    )
    node.answer("GET /v1/watch", 200, stream)
    assert main(["watch", "--tentative", "--from", "1", "--count", "4"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "red\tput\tk\tv\t(write c.1.1.0)",
        "red\tdelete\tl\t(write c.1.1.0)",
        "red\tincrement\tn\t-2\t(write c.1.1.0)",
        "red\tappend\tt\tmore\t(write c.1.1.0)",
        "yellow\t(write c.1.1.0)",
        "rejected: condition_failed\t(write c.1.1.0)",
        "2\tdelete\tk\t(write c.1.2.0)",
    ]
    assert main(["watch", "--tentative", "--from", "1", "--json", "--count", "3"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["event"] for one in shown] == ["tentative", "recolored", "outcome"]
    assert shown[0]["operations"] == operations
    assert (shown[2]["outcome"], shown[2]["reason"], shown[2]["key"]) == ("rejected", "condition_failed", "k")


def test_ctrl_c_ends_a_watch_with_130(node: Node) -> None:
    node.answer("GET /v1/watch", 200, sse(("id: 7\n", EVENT)))
    command = [sys.executable, "-m", "kvstore", "watch", "--from", "7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "7\tput\tk\tv\t(before: u)\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_nobody_to_watch_is_6(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--from", "1", "--url", "http://127.0.0.1:9"]) == 6
    assert "cannot reach http://127.0.0.1:9" in capsys.readouterr().err


# What the other commands learned


def test_writes_take_a_merge_policy_and_say_when_they_yield(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"error": "yielded", "message": "It yielded.", **GREEN, "outcome": "yielded", "beaten_by": "b.1.1.0"}
    node.answer("PUT /v1/kv/k", 409, said)
    node.answer("GET /v1/writes/a.1.2.0", 200, {**GREEN, "outcome": "yielded", "beaten_by": "b.1.1.0"})
    assert main(["put", "k", "v", "--merge", "keep_green"]) == 4
    assert node.asked[0][1] == "/v1/kv/k?merge=keep_green"
    assert main(["write", "a.1.2.0"]) == 4
    assert "green, yielded to write b.1.1.0" in capsys.readouterr().out


def test_get_waits_for_a_change_or_looks_back(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.answer("GET /v1/kv/k", 200, b"v")
    assert main(["get", "k", "--revision", "5"]) == 0
    assert main(["get", "k", "--wait-revision", "7", "--timeout-ms", "10"]) == 0
    assert [path for _, path, _, _ in node.asked] == [
        "/v1/kv/k?revision=5",
        "/v1/kv/k?wait_revision=7&timeout_ms=10",
    ]
    node.answer("GET /v1/kv/k", 304, b"")
    assert main(["get", "k", "--wait-revision", "7"]) == 1
    assert "k did not change after revision 7 in time" in capsys.readouterr().err
