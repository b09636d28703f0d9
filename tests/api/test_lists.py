"""`GET /v1/kv`: lists in either direction, their bounds, pages, cursors, counts and streams."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.api.cluster import Answer, Cluster, Node, eventually
from tests.ports import HOST

MIB = 1_048_576
NDJSON = {"Accept": "application/x-ndjson"}


def ask(node: Node, **parameters: object) -> Answer:
    return node.get_path(f"/v1/kv?{urlencode(parameters)}")


def listed(node: Node, **parameters: object) -> Any:
    """Returns the content of a page, which must be one."""
    answer = ask(node, **parameters)
    assert answer.status == 200, answer.body
    assert answer.headers["corel-revision"] == str(answer.json["revision"])
    return answer.json


def keys_of(page: Any) -> list[str]:
    return [item["key"] for item in page["items"]]


def streamed(node: Node, **parameters: object) -> list[Any]:
    answer = node.call("GET", f"/v1/kv?{urlencode(parameters)}", headers=NDJSON)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    assert answer.body == b"" or answer.body.endswith(b"\n")
    return [json.loads(line) for line in answer.body.splitlines()]


def paged(node: Node, **parameters: object) -> list[Any]:
    """Returns the items of all pages, which must be of one revision."""
    items, page = [], listed(node, **parameters)
    revision = page["revision"]
    while True:
        items += page["items"]
        if page["cursor"] is None:
            return items
        assert page["items"]
        page = listed(node, **{**parameters, "cursor": page["cursor"]})
        assert page["revision"] == revision


@pytest.fixture
def seven(node: Node, key: str) -> str:
    """Returns a prefix with seven keys, in an order that is that of their bytes: a, a/b, a/c, b, c, ü, 😀."""
    names = ("c", "a", "😀", "a/c", "b", "ü", "a/b")
    operations = [{"put": {"key": f"{key}/{name}", "value": name}} for name in names]
    assert node.txn({"then": operations}).status == 200
    return f"{key}/"


# Bounds and direction


@pytest.mark.parametrize(
    ("bounds", "names"),
    [
        ({}, ["a", "a/b", "a/c", "b", "c", "ü", "😀"]),
        ({"prefix": "a"}, ["a", "a/b", "a/c"]),
        ({"prefix": "a/"}, ["a/b", "a/c"]),
        ({"prefix": "ü"}, ["ü"]),
        ({"prefix": "z"}, []),
        ({"start": "b"}, ["b", "c", "ü", "😀"]),
        ({"end": "b"}, ["a", "a/b", "a/c"]),
        ({"start": "a/b", "end": "c"}, ["a/b", "a/c", "b"]),
        ({"prefix": "a", "start": "a/b", "end": "z"}, ["a/b", "a/c"]),
        ({"prefix": "a", "end": "a/c"}, ["a", "a/b"]),
        ({"start": "c", "end": "a"}, []),
        ({"start": "x" * 600}, ["ü", "😀"]),
    ],
)
def test_all_bounds_combine_in_both_directions(node: Node, seven: str, bounds: Any, names: list[str]) -> None:
    query = {"prefix": seven, **{name: f"{seven}{bound}" for name, bound in bounds.items()}}
    expected = [f"{seven}{name}" for name in names]
    assert keys_of(listed(node, **query)) == expected
    assert keys_of(listed(node, **query, reverse="true")) == expected[::-1]
    assert listed(node, **query, count_only="true")["count"] == len(names)
    for reverse in ("true", "false"):
        assert [item["key"] for item in paged(node, **query, limit=2, reverse=reverse)] == (
            expected[::-1] if reverse == "true" else expected
        )


def test_a_list_without_bounds_is_of_everything(alone: Node, key: str) -> None:
    alone.put(key, "x")
    page = listed(alone, limit=1_000)
    assert key in keys_of(page)
    assert keys_of(page) == sorted(keys_of(page), key=str.encode)
    assert alone.get_path("/v1/kv").json["items"] == page["items"][:100]
    assert alone.get_path("/v1/kv?prefix=&start=&end=&limit=1000").json == page


def test_an_item_has_what_the_key_has(node: Node, key: str) -> None:
    text = node.put(f"{key}/1", "é", Content_Type="text/plain").json["revision"]
    binary = node.put(f"{key}/2", b"\xff\x00").json["revision"]
    items = [
        {"key": f"{key}/1", "value": "é", "revision": text, "content_type": "text/plain"},
        {
            "key": f"{key}/2",
            "value": {"base64": "/wA="},
            "revision": binary,
            "content_type": "application/octet-stream",
        },
    ]
    assert listed(node, prefix=key) == {"items": items, "cursor": None, "revision": binary}
    short = [{"key": item["key"], "revision": item["revision"]} for item in items]
    assert listed(node, prefix=key, keys_only="true")["items"] == short
    assert streamed(node, prefix=key, keys_only="true") == short
    assert ask(node, prefix=key, count_only="true").json == {"count": 2, "revision": binary}


@pytest.mark.parametrize(
    "query",
    [
        *(
            "limit=0",
            "limit=x",
            "limit=-1",
            "reverse=yes",
            "keys_only=1",
            "count_only=True",
            "depth=1",
        ),
        *(
            "read=blue",
            "revision=-1",
            "revision=x",
            "min_revision=-1",
            "timeout_ms=600001",
            "prefix=%ff",
            "start=%C3",
        ),
        *("end=%ED%A0%80", "prefix=a&prefix=b", "prefix=%", "read=red&revision=1", "read=linearizable&revision=1"),
        *("count_only=true&limit=5", "count_only=true&cursor=x", "count_only=true&keys_only=true"),
    ],
)
@pytest.mark.parametrize("headers", [{}, NDJSON], ids=["page", "stream"])
def test_what_is_not_understood_is_refused(node: Node, query: str, headers: dict[str, str]) -> None:
    refused = node.call("GET", f"/v1/kv?{query}", headers=headers)
    assert refused.status == 400
    assert refused.error in (
        *("invalid_parameter", "unknown_parameter", "contradictory_parameters", "invalid_percent_encoding"),
    )


def test_the_list_is_not_the_empty_key(node: Node) -> None:
    assert node.get_path("/v1/kv").status == 200
    assert node.get_path("/v1/kv/").error == "empty_key"
    assert node.get_path("/v1/k%76").error == "no_such_path"
    for method in ("PUT", "POST", "DELETE", "PATCH"):
        refused = node.call(method, "/v1/kv", b"x")
        assert (refused.status, refused.error, refused.headers["allow"]) == (405, "method_not_allowed", "GET")


# Pages and cursors


def test_pages_are_of_one_revision_while_writes_go_on(cluster: Cluster, key: str) -> None:
    for number in range(20):
        cluster["a"].put(f"{key}/{number:02}", "old")
    page = listed(cluster["a"], prefix=key, limit=3)
    items, revision, others = page["items"], page["revision"], ("b", "c", "a")
    for place in range(0, 20, 2):
        cluster["a"].put(f"{key}/{place:02}", "new")
        cluster["a"].put(f"{key}/{place:02}+", "between")
        cluster["a"].delete(f"{key}/{place + 1:02}")
        if page["cursor"] is not None:
            node = cluster[others[place // 2 % 3]]
            page = listed(node, prefix=key, limit=3, cursor=page["cursor"])
            assert page["revision"] == revision
            items += page["items"]
    assert page["cursor"] is None
    assert [(item["key"], item["value"]) for item in items] == [(f"{key}/{n:02}", "old") for n in range(20)]
    assert listed(cluster["a"], prefix=key, revision=revision)["items"] == items


def test_a_cursor_may_go_on_with_other_sizes_and_without_values(node: Node, seven: str) -> None:
    first = listed(node, prefix=seven, limit=2)
    rest = listed(node, prefix=seven, cursor=first["cursor"], keys_only="true", timeout_ms=100)
    assert keys_of(first) + keys_of(rest) == keys_of(listed(node, prefix=seven))
    assert "value" not in rest["items"][0]
    again = listed(node, prefix=seven, cursor=first["cursor"], revision=first["revision"])
    assert keys_of(again) == keys_of(rest)
    assert [item["key"] for item in streamed(node, prefix=seven, cursor=first["cursor"])] == keys_of(rest)


def test_a_page_that_ends_with_the_last_key_has_no_cursor(node: Node, seven: str) -> None:
    assert listed(node, prefix=seven, limit=7)["cursor"] is None
    assert listed(node, prefix=seven, limit=6)["cursor"] is not None


def test_a_cursor_of_another_query_is_refused(node: Node, seven: str) -> None:
    page = listed(node, prefix=seven, limit=2)
    for other in (
        {"prefix": f"{seven}a"},
        {"prefix": seven, "start": f"{seven}b"},
        {"prefix": seven, "end": f"{seven}z"},
        {"prefix": seven, "reverse": "true"},
        {"prefix": seven, "read": "red"},
        {"prefix": seven, "read": "linearizable"},
    ):
        refused = ask(node, **other, cursor=page["cursor"])
        assert (refused.status, refused.error) == (400, "invalid_cursor")
    refused = ask(node, prefix=seven, cursor=page["cursor"], revision=page["revision"] - 1)
    assert (refused.status, refused.error) == (400, "contradictory_parameters")
    history = node.get_path(f"/v1/history?{urlencode({'key': seven, 'cursor': page['cursor']})}")
    assert (history.status, history.error) == (400, "invalid_cursor")


def test_a_forged_cursor_is_refused(node: Node, seven: str) -> None:
    cursor = listed(node, prefix=seven, limit=2)["cursor"]
    for forged in (
        *("", "x", "AAAA", "é", "\0", "a b", cursor + "=", cursor * 50, cursor[::-1]),
        *(cursor[:place] for place in range(len(cursor))),
        *(
            cursor[:place] + ("B" if cursor[place] == "A" else "A") + cursor[place + 1 :]
            for place in range(len(cursor))
        ),
    ):
        refused = ask(node, prefix=seven, cursor=forged)
        assert (refused.status, refused.error) == (400, "invalid_cursor")


def test_a_cursor_of_another_cluster_is_refused(alone: Node, node: Node, seven: str) -> None:
    alone.txn({"then": [{"put": {"key": f"{seven}{number}", "value": "x"}} for number in range(3)]})
    cursor = listed(alone, prefix=seven, limit=1)["cursor"]
    assert ask(node, prefix=seven, cursor=cursor).error == "invalid_cursor"


def test_a_page_ends_early_when_its_values_are_large(node: Node, key: str) -> None:
    for number in range(6):
        node.put(f"{key}/{number}", "x" * MIB)
    first = listed(node, prefix=key)
    assert len(first["items"]) == 4
    rest = listed(node, prefix=key, cursor=first["cursor"])
    assert (len(rest["items"]), rest["cursor"]) == (2, None)
    assert len(listed(node, prefix=key, keys_only="true")["items"]) == 6
    assert [len(item["value"]) for item in streamed(node, prefix=key)] == [MIB] * 6


# Read levels


def test_a_linearizable_list_has_everything_and_goes_on_at_its_revision(cluster: Cluster, key: str) -> None:
    for number in range(5):
        cluster["a"].put(f"{key}/{number}", str(number))
        assert listed(cluster["c"], prefix=key, read="linearizable", count_only="true")["count"] == number + 1
    page = listed(cluster["b"], prefix=key, read="linearizable", limit=3)
    cluster["a"].put(f"{key}/9", "later")
    rest = listed(cluster["c"], prefix=key, read="linearizable", cursor=page["cursor"])
    assert keys_of(rest) == [f"{key}/3", f"{key}/4"]
    assert rest["revision"] == page["revision"]


def test_a_list_can_wait_for_a_revision(node: Node, key: str) -> None:
    revision = node.put(key, "x").json["revision"]
    assert keys_of(listed(node, prefix=key, min_revision=revision)) == [key]
    for name in ("min_revision", "revision"):
        late = ask(node, prefix=key, **{name: revision + 1_000, "timeout_ms": 50})
        assert (late.status, late.error) == (504, "revision_not_reached")
        assert late.json["revision"] >= revision


def test_a_red_list_shows_what_is_not_green_and_its_colour(three: Cluster, key: str) -> None:
    for name in "abcd":
        revision = three["a"].put(f"{key}/{name}", "green").json["revision"]
    three["c"].get(key, f"?min_revision={revision}")
    three.partition("ab|c")
    three["c"].put(f"{key}/b", "red")
    three["c"].put(f"{key}/e", "red")
    three["c"].delete(f"{key}/c")
    found = listed(three["c"], prefix=key, read="red")
    told = [(item["key"][-1], item["value"], item["color"], item["revision"] is None) for item in found["items"]]
    green, red = ("green", "green", False), ("red", "red", True)
    assert told == [("a", *green), ("b", *red), ("d", *green), ("e", *red)]
    assert found["revision"] == revision
    assert paged(three["c"], prefix=key, read="red", limit=1) == found["items"]
    assert streamed(three["c"], prefix=key, read="red") == found["items"]
    assert listed(three["c"], prefix=key, read="red", count_only="true")["count"] == 4
    assert len(listed(three["c"], prefix=key)["items"]) == 4
    assert ask(three["c"], prefix=key, read="linearizable").error == "no_primary"
    short = listed(three["c"], prefix=key, read="red", keys_only="true", limit=2)["items"]
    assert short[1] == {"key": f"{key}/b", "revision": None, "color": "red"}


def test_a_cursor_waits_on_a_node_that_is_behind(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    for number in range(3):
        three["a"].put(f"{key}/{number}", "x")
    page = listed(three["a"], prefix=key, limit=1)
    late = ask(three["c"], prefix=key, cursor=page["cursor"], timeout_ms=100)
    assert (late.status, late.error) == (504, "revision_not_reached")
    found: list[Any] = []
    reader = threading.Thread(
        target=lambda: found.append(listed(three["c"], prefix=key, cursor=page["cursor"], timeout_ms=25_000))
    )
    reader.start()
    three.heal()
    reader.join(30.0)
    assert keys_of(found[0]) == [f"{key}/1", f"{key}/2"]


# Streams


def test_a_stream_is_what_the_pages_are(node: Node, key: str) -> None:
    for part in range(3):
        operations = [{"put": {"key": f"{key}/{part}/{n}", "value": f"{n}" * 40}} for n in range(1_000)]
        assert node.txn({"then": operations}).status == 200
    items = paged(node, prefix=key, limit=1_000)
    assert len(items) == 3_000
    assert streamed(node, prefix=key) == items
    assert streamed(node, prefix=key, reverse="true") == items[::-1]
    assert streamed(node, prefix=key, limit=1_500) == items[:1_500]
    assert ask(node, prefix=key, limit=1_001).error == "invalid_parameter"
    assert streamed(node, prefix=f"{key}-none") == []
    after = {"start": f"{items[9]['key']}\0", "revision": items[-1]["revision"]}
    assert streamed(node, prefix=key, **after) == items[10:]
    assert listed(node, prefix=key, count_only="true")["count"] == 3_000


@pytest.mark.parametrize("accept", ["application/json", "*/*", "application/x-ndjson;q=0", "text/plain"])
def test_who_does_not_ask_for_a_stream_gets_a_page(node: Node, accept: str) -> None:
    answer = node.call("GET", "/v1/kv?limit=1", headers={"Accept": accept})
    assert answer.headers["content-type"] == "application/json"
    many = node.call("GET", "/v1/kv?limit=1", headers={"Accept": f"{accept}, application/x-ndjson;q=0.9"})
    assert many.headers["content-type"] == "application/x-ndjson"


class Stream:
    """A stream that is read a line at a time."""

    def __init__(self, node: Node, **parameters: object) -> None:
        self._connection = http.client.HTTPConnection(HOST, node.port, timeout=30.0)
        self._connection.request("GET", f"/v1/kv?{urlencode(parameters)}", headers=NDJSON)
        self.response = self._connection.getresponse()

    def __iter__(self) -> Iterator[Any]:
        while line := self.response.readline():
            yield json.loads(line)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def many(alone: Node, key: str) -> str:
    """Returns a prefix with so many bytes of values that no socket buffers hold them."""
    for number in range(40):
        assert alone.put(f"{key}/{number:02}", "old" * (MIB // 3)).status == 200
    return f"{key}/"


def test_a_stream_is_of_one_revision_while_writes_go_on(alone: Node, many: str) -> None:
    with closing(Stream(alone, prefix=many)) as stream:
        lines = iter(stream)
        found = [next(lines)]
        for number in range(40):
            alone.put(f"{many}{number:02}", "new")
            alone.put(f"{many}{number:02}+", "between")
        alone.delete(f"{many}39")
        found += lines
    revision = int(stream.response.headers["corel-revision"])
    assert [item["key"] for item in found] == [f"{many}{number:02}" for number in range(40)]
    assert {item["value"][:3] for item in found} == {"old"}
    assert max(item["revision"] for item in found) <= revision


def test_a_client_that_goes_away_in_mid_stream_costs_nothing(alone: Node, many: str) -> None:
    for _ in range(70):  # more than there may be at the same time
        stream = Stream(alone, prefix=many)
        assert stream.response.status == 200
        stream.close()
    assert len(streamed(alone, prefix=many, keys_only="true")) == 40


def test_too_many_streams_at_once_are_refused(alone: Node, many: str) -> None:
    streams = [Stream(alone, prefix=many) for _ in range(65)]
    assert [stream.response.status for stream in streams] == [200] * 64 + [429]
    for stream in streams:
        stream.close()
    eventually(lambda: alone.call("GET", "/v1/kv?limit=1", headers=NDJSON).status == 200)


# Retention

FORGETFUL = ("--set", "store.history_revisions=5", "--set", "store.checkpoint_ms=10")


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that keeps the past of five revisions."""
    with Cluster("a", tmp_path_factory.mktemp("forgetful"), FORGETFUL) as cluster:
        yield cluster.start()["a"]


def forget(node: Node, revision: int) -> None:
    """Writes until this revision is no longer kept."""

    def is_forgotten() -> bool:
        node.put("other", "x")
        return bool(node.get_path("/v1/history?key=other").json["oldest"] > revision)

    eventually(is_forgotten)


def test_what_is_no_longer_kept_is_gone_and_says_since_when(forgetful: Node, key: str) -> None:
    for number in range(3):
        forgetful.put(f"{key}/{number}", "x")
    page = listed(forgetful, prefix=key, limit=1)
    forget(forgetful, page["revision"])
    for parameters in ({"cursor": page["cursor"]}, {"revision": page["revision"]}):
        for headers in ({}, NDJSON):
            query = urlencode({"prefix": key, **parameters})
            gone = forgetful.call("GET", f"/v1/kv?{query}", headers=headers)
            assert (gone.status, gone.error) == (410, "compacted")
            assert page["revision"] < gone.json["oldest"] <= gone.json["revision"]
            assert gone.json["revision"] == forgetful.status()["green"]["revision"]
    assert ask(forgetful, revision=page["revision"], count_only="true").error == "compacted"
    assert len(listed(forgetful, prefix=key, revision=gone.json["revision"])["items"]) == 3


def test_a_stream_that_is_outrun_ends_with_an_error(forgetful: Node, key: str) -> None:
    for number in range(30):
        forgetful.put(f"{key}/{number:02}", "x" * MIB)
    with closing(Stream(forgetful, prefix=key)) as stream:
        lines = iter(stream)
        assert next(lines)["key"] == f"{key}/00"
        forget(forgetful, int(stream.response.headers["corel-revision"]))
        *rest, last = lines
    assert (last["error"], last["message"][-1]) == ("compacted", ".")
    assert [item["key"] for item in rest] == [f"{key}/{number:02}" for number in range(1, len(rest) + 1)]
    assert len(rest) < 29


def test_a_stream_that_a_stopping_node_leaves_does_not_look_whole(tmp_path: Path, key: str) -> None:
    with Cluster("a", tmp_path) as cluster:
        node = cluster.start()["a"]
        for number in range(30):
            node.put(f"{key}/{number:02}", "x" * MIB)
        with closing(Stream(node, prefix=key)) as stream:
            assert stream.response.status == 200
            assert node.stop() == 0
            with pytest.raises(http.client.IncompleteRead):
                list(stream)


def test_a_node_that_was_never_in_a_primary_component_has_lists_and_cursors_too(tmp_path: Path, key: str) -> None:
    with Cluster("a", tmp_path, roster="abc") as cluster:
        node = cluster["a"]
        node.start("--bootstrap")
        node.await_ready("")
        for number in range(3):
            assert node.put(f"{key}/{number}", "x").status == 202
        assert len(paged(node, prefix=key, read="red", limit=1)) == 3
        assert listed(node) == {"items": [], "cursor": None, "revision": 0}
        assert node.get_path("/v1/conflicts").json == {"items": [], "cursor": None}
