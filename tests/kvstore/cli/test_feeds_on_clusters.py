"""`list`, `watch`, `history`, `conflicts`, and the past and merges in `get` and `put`, on real nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from secrets import token_hex
from typing import Any

import pytest

from kvstore.cli.main import main
from tests.api.cluster import Cluster, eventually

Lines = Callable[[], list[str]]


@pytest.fixture(scope="module")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = ("--set", "membership.back_off_ms=100", "--set", "membership.back_off_ms_max=200")
    with Cluster("abc", tmp_path_factory.mktemp("cli"), flags) as cluster:
        yield cluster.start()


@pytest.fixture
def three(_started: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes, of which the commands ask a. They are up and connected again for the next test."""
    monkeypatch.setenv("CORELKV_URL", _started["a"].url)
    _started.revive()
    _started.heal()
    yield _started
    _started.revive()
    _started.heal()


@pytest.fixture
def key() -> str:
    """A prefix that no other test uses."""
    return f"cli/{token_hex(6)}"


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """What was printed since it was last asked for."""
    return lambda: capsys.readouterr().out.splitlines()


def put(lines: Lines, key: str, value: str, *flags: str) -> dict[str, Any]:
    """Puts a value where there is a primary component, and returns what the node said. On a busy machine there may
    be none for a moment."""
    lines()
    eventually(lambda: main(["put", key, value, "--json", "--ack", "green", *flags]) == 0)
    return dict(json.loads(lines()[-1]))


def put_red(lines: Lines, key: str, value: str, *flags: str) -> dict[str, Any]:
    lines()
    assert main(["put", key, value, "--json", *flags]) == 3
    return dict(json.loads(lines()[0]))


def test_list_shows_a_range_of_one_revision(three: Cluster, key: str, lines: Lines) -> None:
    last = {letter: put(lines, f"{key}/{letter}", letter.upper())["revision"] for letter in "abcd"}
    assert main(["delete", f"{key}/b"]) == 0
    lines()
    assert main(["list", f"{key}/"]) == 0
    assert lines() == [f"{key}/{letter}\t{letter.upper()}" for letter in "acd"]
    assert main(["list", f"{key}/", "--revision", str(last["c"]), "--reverse", "--limit", "2", "--keys-only"]) == 0
    assert lines() == [f"{key}/c", f"{key}/b"]
    assert main(["list", "--start", f"{key}/b", "--end", f"{key}/d", "--json"]) == 0
    [item] = map(json.loads, lines())
    assert (item["key"], item["value"], item["revision"]) == (f"{key}/c", "C", last["c"])
    assert main(["list", f"{key}/", "--count", "--limit", "2", "--read", "linearizable"]) == 0
    assert lines() == ["3"]


def test_a_long_list_is_fetched_in_pages(three: Cluster, key: str, lines: Lines) -> None:
    operations = [{"put": {"key": f"{key}/{number:04}", "value": "v"}} for number in range(1_250)]
    assert three["a"].txn({"then": operations}).status == 200
    for flags, count in (((), 1_250), (("--limit", "1100"), 1_100), (("--limit", "3"), 3)):
        assert main(["list", f"{key}/", "--keys-only", *flags]) == 0
        assert lines() == [f"{key}/{number:04}" for number in range(count)]


def test_history_and_reads_of_the_past(three: Cluster, key: str, lines: Lines) -> None:
    first, second = put(lines, key, "one"), put(lines, key, "two")
    assert main(["history", key]) == 0
    assert lines() == [
        f"{second['revision']}\tput\ttwo\t(write {second['id']})",
        f"{first['revision']}\tput\tone\t(write {first['id']})",
    ]
    assert main(["history", key, "--limit", "1", "--json"]) == 0
    assert [json.loads(line)["value"] for line in lines()] == ["two"]
    assert main(["get", key, "--revision", str(first["revision"]), "--json"]) == 0
    assert json.loads(lines()[0])["value"] == "one"
    assert main(["get", key, "--revision", str(first["revision"] - 1)]) == 5


def test_get_waits_for_a_change(three: Cluster, key: str, lines: Lines) -> None:
    revision = str(put(lines, key, "one")["revision"])
    assert main(["get", key, "--wait-revision", revision, "--timeout-ms", "50"]) == 1
    command = [sys.executable, "-m", "kvstore", "get", key, "--wait-revision", revision, "--timeout-ms", "30000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        assert main(["put", key, "two", "--url", three["b"].url]) == 0
        assert waiting.communicate(timeout=30)[0] == "two"
    assert main(["delete", key]) == 0
    assert main(["get", key, "--wait-revision", revision]) == 5


def test_watch_shows_changes_and_ends_after_as_many_as_asked(three: Cluster, key: str, lines: Lines) -> None:
    first = put(lines, key, "one")
    put(lines, key, "two")
    assert main(["delete", key]) == 0
    lines()
    at = first["revision"]
    assert main(["watch", "--key", key, "--from", str(at), "--prev", "--count", "3"]) == 0
    assert lines() == [
        f"{at}\tput\t{key}\tone",
        f"{at + 1}\tput\t{key}\ttwo\t(before: one)",
        f"{at + 2}\tdelete\t{key}\t(before: two)",
    ]
    assert main(["watch", key, "nothing/", "--from", str(at), "--count", "1", "--json"]) == 0
    event = json.loads(lines()[0])
    assert (event["revision"], event["write"], event["changes"][0]["value"]) == (at, first["id"], "one")


def test_watch_goes_on_at_another_node_that_was_named(three: Cluster, key: str, lines: Lines) -> None:
    at = put(lines, key, "one")["revision"]
    urls = f"{three['a'].url},{three['b'].url}"
    command = [sys.executable, "-m", "kvstore", "watch", key, "--from", str(at), "--count", "2", "--url", urls]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == f"{at}\tput\t{key}\tone\n"
        three["a"].kill()
        put(lines, key, "two", "--url", three["c"].url)
        assert watching.communicate(timeout=60)[0] == f"{at + 1}\tput\t{key}\ttwo\n"
        assert watching.returncode == 0


def test_writes_of_both_sides_before_and_after_they_meet(three: Cluster, key: str, lines: Lines) -> None:
    at = put(lines, f"{key}/1", "old")["revision"]
    three.partition("a|bc")
    mine = put_red(lines, f"{key}/1", "mine")
    yielding = put_red(lines, f"{key}/2", "mine", "--merge", "keep_green")
    assert main(["watch", f"{key}/", "--tentative", "--from", str(at + 1), "--count", "2"]) == 0
    assert lines() == [
        f"red\tput\t{key}/1\tmine\t(write {mine['id']})",
        f"red\tput\t{key}/2\tmine\t(write {yielding['id']})",
    ]
    assert main(["conflicts", f"{key}/", "--preview"]) == 0
    assert lines() == [
        f"red\tapplied\t{key}/1\t(write {mine['id']})",
        f"red\tapplied\t{key}/2\t(write {yielding['id']})",
    ]
    theirs = [put(lines, f"{key}/{number}", "theirs", "--url", three["b"].url) for number in (1, 2)]
    three.heal()
    assert main(["write", "--wait", "--timeout-ms", "30000", mine["id"]]) == 0
    assert main(["write", "--wait", "--timeout-ms", "30000", yielding["id"]]) == 4
    assert f"yielded to write {theirs[1]['id']}" in lines()[-1]
    for flags in ((), ("--from", str(at))):
        assert main(["conflicts", f"{key}/", *flags]) == 0
        assert lines() == [
            f"overwrote\t{key}/1\t{mine['id']} mine\t(other: {theirs[0]['id']} theirs)",
            f"yielded\t{key}/2\t{yielding['id']} mine\t(other: {theirs[1]['id']} theirs)",
        ]
    assert main(["conflicts", f"{key}/", "--json", "--limit", "1"]) == 0
    assert [json.loads(line)["kind"] for line in lines()] == ["overwrote"]
