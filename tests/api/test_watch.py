"""`/v1/watch` over real HTTP: every change of interest, in order and exactly once, on whichever node."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.api.cluster import Cluster, Node, eventually, received
from tests.api.watching import refused, watch
from tests.benchmarks.connects import Connects, usage
from tests.ports import HOST


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A cluster of one that keeps ten revisions."""
    flags = ("--set", "store.history_revisions=10", "--set", "store.checkpoint_ms=20")
    with Cluster("a", tmp_path_factory.mktemp("forgetful"), flags) as started:
        yield started.start()["a"]


# What is seen


def test_every_change_is_one_event_with_its_revision_as_id(cluster: Cluster, key: str) -> None:
    with watch(cluster["b"], f"?prefix={key}") as seen:
        first = cluster["a"].put(f"{key}/1", "one", Content_Type="text/plain").json
        second = cluster["c"].delete(f"{key}/1").json
        put, deleted = seen.take(2)
    assert (put.kind, put.id) == ("message", str(first["revision"]))
    changes = [{"key": f"{key}/1", "value": "one", "content_type": "text/plain"}]
    assert put.data == {"revision": first["revision"], "write": first["id"], "changes": changes}
    assert deleted.data["changes"] == [{"key": f"{key}/1", "deleted": True}]
    assert deleted.id == str(second["revision"])


def test_the_changes_of_a_transaction_come_together_as_far_as_they_are_of_interest(node: Node, key: str) -> None:
    puts = [{"put": {"key": f"{key}/{name}", "value": name}} for name in ("a", "b", "c")]
    other = {"put": {"key": f"other {key}", "value": "x"}}
    with (
        watch(node, f"?prefix={key}/a&prefix={key}/c&key={key}/b") as all_of_it,
        watch(node, f"?key={key}/b") as one,
    ):
        node.txn({"then": [*puts, other]})
        [event] = all_of_it.take(1)
        assert [change["key"] for change in event.data["changes"]] == [f"{key}/a", f"{key}/b", f"{key}/c"]
        assert one.values(1) == [(f"{key}/b", "b")]


def test_what_is_not_of_interest_is_not_sent(node: Node, key: str) -> None:
    with watch(node, f"?key={key}") as seen:
        for name in (f"{key}x", key[:-1], f"{key}/", key):
            node.put(name, name)
        assert seen.values(1) == [(key, key)]


def test_without_a_selection_everything_is_of_interest(alone: Node, key: str) -> None:
    revision = alone.put(key, "x").json["revision"]
    with watch(alone, f"?from={revision}") as seen:
        assert seen.values(1) == [(key, "x")]


def test_previous_values_on_request(node: Node, key: str) -> None:
    revision = node.put(key, "one").json["revision"]
    node.put(key, b"\xff")
    node.delete(key)
    with watch(node, f"?key={key}&from={revision}&prev=true") as seen:
        before = [event.data["changes"][0]["prev"] for event in seen.take(3)]
    assert [prev and prev["value"] for prev in before] == [None, "one", {"base64": "/w=="}]
    assert before[1]["revision"] == revision


# Resuming


def test_a_watch_begins_at_any_kept_revision_and_goes_on_with_what_is_new(node: Node, key: str) -> None:
    revisions = [node.put(key, str(number)).json["revision"] for number in range(5)]
    with watch(node, f"?key={key}&from={revisions[2]}") as seen:
        assert seen.values(3) == [(key, "2"), (key, "3"), (key, "4")]
        node.put(key, "new")
        assert seen.values(1) == [(key, "new")]


def test_a_watch_resumes_on_another_node_after_the_last_event(cluster: Cluster, key: str) -> None:
    with watch(cluster["a"], f"?key={key}") as seen:
        for number in range(3):
            cluster["b"].put(key, str(number))
        assert seen.values(2) == [(key, "0"), (key, "1")]
    with watch(cluster["c"], f"?key={key}", Last_Event_ID=seen.last_id) as again:
        assert again.values(1) == [(key, "2")]


def test_a_watch_from_a_revision_to_come_waits_for_it(node: Node, key: str) -> None:
    revision = node.put(key, "now").json["revision"]
    with watch(node, f"?key={key}&from={revision + 2}") as seen:
        node.put(key, "too early")
        node.put(key, "in time")
        assert seen.values(1) == [(key, "in time")]


def test_a_node_that_is_behind_waits_until_it_gets_there(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    revision = three["a"].put(key, "meanwhile").json["revision"]
    with watch(three["c"], f"?key={key}&from={revision}") as seen:
        three.heal()
        assert seen.values(1) == [(key, "meanwhile")]


def test_a_restarted_node_serves_what_it_had(alone: Node, key: str) -> None:
    revision = alone.put(key, "before").json["revision"]
    alone.kill()
    alone.start()
    alone.await_ready()
    alone.put(key, "after")
    with watch(alone, f"?key={key}&from={revision}") as seen:
        assert seen.values(2) == [(key, "before"), (key, "after")]


def test_a_feed_goes_on_through_a_partition_and_its_merge(three: Cluster, key: str) -> None:
    with watch(three["a"], f"?prefix={key}") as majority, watch(three["c"], f"?prefix={key}") as minority:
        three.partition("ab|c")
        red = three["c"].put(f"{key}/red", "red").json
        three["b"].put(f"{key}/green", "green")
        assert majority.values(1) == [(f"{key}/green", "green")]
        three.heal()
        assert minority.values(2) == [(f"{key}/green", "green"), (f"{key}/red", "red")]
        [merged] = majority.take(1)
    assert merged.data["write"] == red["id"]


def test_what_is_no_longer_kept_is_410_with_the_oldest_that_is(forgetful: Node) -> None:
    for number in range(30):
        forgetful.put("k", str(number))
    eventually(lambda: forgetful.status()["oldest_revision"] == 20)
    answer = refused(forgetful, "?from=1")
    assert (answer.status, answer.error, answer.json["oldest"]) == (410, "compacted", 21)
    with watch(forgetful, "?from=21") as seen:
        assert seen.take(1)[0].id == "21"
    assert refused(forgetful, "", Last_Event_ID="19").status == 410


# Colours


def test_the_tentative_feed_shows_red_writes_and_what_becomes_of_them(three: Cluster, key: str) -> None:
    three["a"].put(key, "0")
    three["c"].get(key, f"?min_revision={three['a'].status()['green']['revision']}")
    three.partition("ab|c")
    with watch(three["c"], f"?prefix={key}&colors=red,yellow,green") as seen:
        conditional = three["c"].put(key, "red", If_None_Match="*").json["id"]
        plain = three["c"].put(f"{key}/2", "two").json["id"]
        first, second = seen.take(2)
        assert (first.kind, first.id, first.data["write"], first.data["color"]) == (
            "tentative",
            "",
            conditional,
            "red",
        )
        assert second.data["operations"][0]["put"]["value"] == "two"
        three.heal()
        outcomes: dict[str, str] = {}
        while len(outcomes) < 2:
            [event] = seen.take(1)
            if event.kind != "recolored":
                outcomes[event.data["write"]] = event.data.get("outcome", event.id)
    assert outcomes[conditional] == "rejected"
    assert outcomes[plain].isdigit()


def test_writes_that_are_red_already_are_shown_first(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    red = three["c"].put(key, "red").json["id"]
    with watch(three["c"], f"?key={key}&colors=red") as seen:
        assert [event.data["write"] for event in seen.take(1)] == [red]


def test_a_red_write_behind_hundreds_that_are_of_no_interest_is_shown(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    for number in range(300):
        three["c"].put(f"other/{number}", "x")
    red = three["c"].put(key, "red").json["id"]
    with watch(three["c"], f"?key={key}&colors=red,green") as seen:
        assert [event.data["write"] for event in seen.take(1)] == [red]
    three.heal()


def test_who_does_not_watch_green_is_told_the_outcome_of_every_write_and_waits_for_the_next(
    three: Cluster, key: str
) -> None:
    three.partition("ab|c")
    with watch(three["c"], f"?prefix={key}&colors=red") as seen:
        red = three["c"].put(key, "red").json["id"]
        rejected = three["c"].put(key, "x", If_None_Match="*").json["id"]
        assert [event.data["write"] for event in seen.take(2)] == [red, rejected]
        three.heal()
        outcomes: dict[str, dict[str, str]] = {}
        while len(outcomes) < 2:
            [event] = seen.take(1)
            assert event.id == ""
            if event.kind == "outcome":
                outcomes[event.data["write"]] = event.data
        assert outcomes[red]["outcome"] == "applied"
        assert (outcomes[rejected]["reason"], outcomes[rejected]["key"]) == ("condition_failed", key)
        before = three["c"].cpu_seconds()
        time.sleep(0.5)
        assert three["c"].cpu_seconds() - before < 0.2, "the stream keeps the node busy"


# One change of one key


def test_a_read_waits_until_the_key_has_changed(cluster: Cluster, key: str) -> None:
    revision = cluster["a"].put(key, "old").json["revision"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cluster["b"].get, key, f"?wait_revision={revision}&timeout_ms=20000")
        cluster["a"].put(f"{key}/other", "x")
        cluster["a"].put(key, "new")
        assert waiting.result().body == b"new"
    assert cluster["a"].get(key, f"?wait_revision={revision}").body == b"new"


def test_a_read_that_waited_in_vain_is_not_modified(node: Node, key: str) -> None:
    revision = node.put(key, "old").json["revision"]
    answer = node.get(key, f"?wait_revision={revision}&timeout_ms=50")
    assert (answer.status, answer.tag, answer.body) == (304, f'"{revision}"', b"")
    assert node.get(f"{key}/never", f"?wait_revision={revision}&timeout_ms=50").status == 304


def test_what_a_wait_asks_for_is_checked_before_anything_is_waited_for(node: Node, key: str) -> None:
    for query in ("wait_revision=no&min_revision=999999", "wait_revision=1&revision=999999"):
        assert node.get(key, f"?{query}&timeout_ms=1000").status == 400


def test_a_deletion_is_a_change_also_afterwards(node: Node, key: str) -> None:
    revision = node.put(key, "old").json["revision"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(node.get, key, f"?wait_revision={revision}&timeout_ms=20000")
        node.delete(key)
        assert waiting.result().status == 404
    assert node.get(key, f"?wait_revision={revision}&timeout_ms=20000").status == 404


def test_a_wait_for_a_change_is_for_the_green_state(node: Node, key: str) -> None:
    for query in ("read=red", "read=linearizable", "revision=1"):
        assert node.get(key, f"?wait_revision=1&{query}").error == "contradictory_parameters"
    assert node.get(key, "?wait_revision=x").error == "invalid_parameter"


# Bad input


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?from=x", "invalid_parameter"),
        ("?from=-1", "invalid_parameter"),
        ("?colors=blue", "invalid_parameter"),
        ("?colors=", "invalid_parameter"),
        ("?prev=yes", "invalid_parameter"),
        ("?prefix=%ff", "invalid_parameter"),
        ("?prefix=%f", "invalid_percent_encoding"),
        ("?key=", "empty_key"),
        ("?since=1", "unknown_parameter"),
        ("?from=1&from=2", "invalid_parameter"),
        ("?" + "&".join(f"prefix={number}" for number in range(65)), "invalid_parameter"),
    ],
)
def test_what_is_not_understood_is_refused(node: Node, query: str, code: str) -> None:
    answer = refused(node, query)
    assert (answer.status, answer.error) == (400, code)


def test_where_to_begin_is_said_once_and_as_a_number(node: Node) -> None:
    assert refused(node, "?from=1", Last_Event_ID="1").error == "contradictory_parameters"
    for last_id in ("x", "-1", "1.5", "9" * 20):
        assert refused(node, "", Last_Event_ID=last_id).error == "invalid_header"
    answer = node.call("POST", "/v1/watch")
    assert (answer.status, answer.headers["allow"]) == (405, "GET")


# Bad days


def test_a_node_that_stops_ends_the_stream_and_says_so(alone: Node, key: str) -> None:
    with watch(alone, f"?prefix={key}") as seen:
        alone.put(key, "x")
        assert seen.values(1) == [(key, "x")]
        alone.signal(signal.SIGTERM)
        [last] = list(seen)
    assert last.kind == "resume"
    assert "watch another" in last.data["reason"]
    assert alone.wait() == 0


def test_a_watcher_that_never_reads_costs_little_and_is_disconnected(tmp_path: Path) -> None:
    prelude = "import api.http_protocol\napi.http_protocol.READ_SECONDS = 1.0"
    with Cluster("a", tmp_path, prelude=prelude) as started:
        node = started.start()["a"]
        with socket.create_connection((HOST, node.port)) as stalled:
            stalled.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: x\r\n\r\n")
            for number in range(40):
                assert node.put(f"k{number}", bytes(262_144)).status == 200
            eventually(lambda: node.status()["watchers"] == 0)
            assert len(received(stalled)) < 30_000_000  # of 60 million that all events have
        with watch(node, "?from=1") as seen:
            assert [event.id for event in seen.take(40)] == [str(number) for number in range(1, 41)]


def test_watchers_that_come_and_go_in_mid_event_leave_nothing_behind_and_writes_go_on(alone: Node) -> None:
    assert alone.process is not None
    before, count = usage(alone.process.pid)["files"], 300
    connects = Connects(alone.port, "", Random(1))
    asyncio.run(connects.run(count, seconds=2.0))
    assert connects.answers.pop("200") == count
    assert set(connects.answers) == {"put 200"}
    eventually(lambda: alone.status()["watchers"] == 0)
    eventually(lambda: usage(alone.process.pid)["files"] <= before + 2 if alone.process else False)


def test_a_watcher_that_disconnects_leaves_nothing_behind(alone: Node, key: str) -> None:
    for _ in range(20):
        with watch(alone, f"?prefix={key}"):
            alone.put(key, "x")
    eventually(lambda: alone.status()["watchers"] == 0)
