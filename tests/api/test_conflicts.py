"""`GET /v1/conflicts`: what merges changed, with both sides. `/v1/conflicts/preview`: what one would change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.api.cluster import Answer, Cluster, Node, eventually


def ask(node: Node, **parameters: object) -> Answer:
    return node.get_path(f"/v1/conflicts?{urlencode(parameters)}")


def preview(node: Node, **parameters: object) -> Answer:
    return node.get_path(f"/v1/conflicts/preview?{urlencode(parameters)}")


def conflicts(node: Node, **parameters: object) -> Any:
    answer = ask(node, **parameters)
    assert answer.status == 200, answer.body
    return answer.json


def met(cluster: Cluster, key: str) -> list[Any]:
    """Heals the cluster, and returns the conflicts about a key, which all nodes must tell alike."""
    cluster.heal()
    cluster.await_agreement()
    told = [conflicts(node, prefix=key)["items"] for node in cluster]
    assert all(one == told[0] for one in told)
    return list(told[0])


def test_a_red_write_that_overwrote_is_shown_with_both_values(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    began_ms = time.time() * 1_000
    green = three["a"].put(key, "green").json
    red = three["c"].put(key, b"\xff").json
    [found] = met(three, key)
    told = three["a"].fate(red["id"]).json
    assert began_ms - 1_000 < found.pop("accepted_ms") < time.time() * 1_000 + 1_000
    assert three["a"].get_path(f"/v1/log?from={found['position']}&limit=1").json["entries"][0]["id"] in red["id"]
    del found["position"]
    assert found == {
        "kind": "overwrote",
        "key": key,
        "write": red["id"],
        "node": "c",
        "revision": told["revision"],
        "value": {"base64": "/w=="},
        "other": {"write": green["id"], "node": "a", "revision": green["revision"], "value": "green"},
    }


def test_deletions_on_either_side_are_conflicts_without_a_value(three: Cluster, key: str) -> None:
    three["a"].txn({"then": [{"put": {"key": f"{key}/{number}", "value": "x"}} for number in (1, 2)]})
    three.await_agreement()
    three.partition("ab|c")
    three["a"].delete(f"{key}/1")
    three["a"].put(f"{key}/2", "green")
    three["c"].put(f"{key}/1", "red")
    three["c"].delete(f"{key}/2")
    found = {one["key"][-1]: one for one in met(three, key)}
    assert [found[name]["kind"] for name in "12"] == ["overwrote", "overwrote"]
    assert [(found[name]["value"], found[name]["other"]["value"]) for name in "12"] == [
        ("red", None),
        (None, "green"),
    ]
    assert "compacted" not in found["1"]["other"]


@pytest.mark.parametrize(
    ("operation", "value"),
    [
        ({"put": {"value": "red"}}, "red"),
        ({"increment": {"by": -5}}, {"increment": -5}),
        ({"append": {"value": "red"}}, {"append": "red"}),
        ({"delete": {}}, None),
    ],
)
def test_a_rejected_condition_is_shown_with_what_was_to_be_written(
    three: Cluster, key: str, operation: dict[str, Any], value: object
) -> None:
    three.partition("ab|c")
    green = three["b"].put(key, "7").json
    [(kind, content)] = operation.items()
    content = {"if": [{"key": key, "exists": False}], "then": [{kind: {"key": key, **content}}]}
    red = three["c"].txn(content).json
    [found] = met(three, key)
    assert (found["kind"], found["write"], found["revision"]) == ("rejected", red["id"], None)
    assert found["value"] == value
    assert (found["other"]["write"], found["other"]["value"]) == (green["id"], "7")


def test_a_write_that_yielded_or_did_its_else_is_shown(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    for name in "123":
        three["a"].put(f"{key}/{name}", "green")
    three["c"].put(f"{key}/1", "red", "?merge=keep_green")
    condition = {"key": f"{key}/2", "exists": False}
    put = {"put": {"key": f"{key}/2", "value": "else"}}
    three["c"].txn({"if": [condition], "then": [], "else": [put]})
    three["c"].txn({"if": [{**condition, "key": f"{key}/3"}], "then": [], "else": []})
    found = met(three, key)
    kinds = [(one["key"][-1], one["kind"], one["value"]) for one in found]
    assert kinds == [
        *(("1", "yielded", "red"), ("2", "otherwise", "else"), ("2", "overwrote", "else")),
        ("3", "otherwise", None),
    ]
    assert {one["other"]["value"] for one in found} == {"green"}


def test_changes_that_merge_and_changes_that_were_known_are_no_conflicts(three: Cluster, key: str) -> None:
    revision = three["a"].put(f"{key}/1", "known").json["revision"]
    three["c"].get(key, f"?min_revision={revision}")
    three.partition("ab|c")
    three["a"].patch(f"{key}/n", {"increment": 1})
    three["c"].patch(f"{key}/n", {"increment": 1})
    three["c"].put(f"{key}/1", "one")
    three["c"].put(f"{key}/1", "two")
    assert met(three, key) == []


def test_pages_of_conflicts_go_on_at_any_node(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    for number in range(40):
        three["a"].put(f"{key}/{number:02}", "green")
        three["c"].put(f"{key}/{number:02}", "red")
        three["c"].put(f"{key}-/{number:02}", "no conflict")
    found = met(three, f"{key}/")
    assert [one["key"] for one in found] == [f"{key}/{number:02}" for number in range(40)]
    assert [one["revision"] for one in found] == sorted(one["revision"] for one in found)
    paged, page = [], conflicts(three["a"], prefix=f"{key}/", limit=7)
    while page["cursor"] is not None:
        paged += page["items"]
        page = conflicts(three["b"], prefix=f"{key}/", limit=7, cursor=page["cursor"])
    assert paged + page["items"] == found
    since = conflicts(three["c"], **{"from": found[30]["revision"], "prefix": key})
    assert since["items"] == found[30:]
    assert conflicts(three["c"], **{"from": found[-1]["revision"] + 1})["items"] == []
    assert conflicts(three["c"], prefix=f"{key}/1", limit=2)["items"] == found[10:12]


@pytest.mark.parametrize("path", ["", "/preview"])
@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "cursor=", "cursor=AAAA", "prefix=%ff", "x=1", "prefix=a&prefix=b", "from=-1"],
)
def test_what_is_not_understood_is_refused(node: Node, path: str, query: str) -> None:
    refused = node.get_path(f"/v1/conflicts{path}?{query}")
    assert refused.status == 400
    assert refused.error in ("invalid_parameter", "unknown_parameter", "invalid_cursor")


def test_a_cursor_is_for_its_query(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    for number in range(3):
        three["a"].put(f"{key}/{number}", "green")
        three["c"].put(f"{key}/{number}", "red")
    of_preview = preview(three["c"], prefix=key, limit=1).json["cursor"]
    assert preview(three["c"], prefix=f"{key}/", cursor=of_preview).error == "invalid_cursor"
    met(three, key)
    cursor = conflicts(three["a"], prefix=key, limit=1)["cursor"]
    assert len(conflicts(three["a"], prefix=key, cursor=cursor)["items"]) == 2
    for other in ({"prefix": f"{key}/"}, {"prefix": key, "from": 1}):
        assert ask(three["a"], **other, cursor=cursor).error == "invalid_cursor"
    assert preview(three["a"], prefix=key, cursor=cursor).error == "invalid_cursor"
    assert preview(three["c"], prefix=key, cursor=of_preview).error == "invalid_cursor"  # they are green now


# Preview


def test_a_minority_sees_what_its_writes_would_do(three: Cluster, key: str) -> None:
    three["a"].put(f"{key}/1", "green")
    three.await_agreement()
    three.partition("ab|c")
    ids = [
        three["c"].put(f"{key}/1", "red").json["id"],
        three["c"].put(f"{key}/1", "never", If_None_Match="*").json["id"],
        three["c"].delete(f"{key}/1").json["id"],
        three["c"].txn({"then": [{"increment": {"key": f"{key}/{n}", "by": 1}} for n in (2, 3)]}).json["id"],
    ]
    answer = preview(three["c"], prefix=key)
    assert answer.status == 200
    items = answer.json["items"]
    assert [(one["write"], one["node"], one["color"]) for one in items] == [(name, "c", "red") for name in ids]
    assert [one["outcome"] for one in items] == ["applied", "rejected", "applied", "applied"]
    assert (items[1]["reason"], items[1]["key"], items[1]["changes"]) == ("condition_failed", f"{key}/1", [])
    assert items[0]["changes"] == [{"key": f"{key}/1", "before": "green", "after": "red"}]
    assert items[2]["changes"] == [{"key": f"{key}/1", "before": "red", "after": None}]
    assert [change["after"] for change in items[3]["changes"]] == ["1", "1"]
    assert abs(items[0]["accepted_ms"] - time.time() * 1_000) < 60_000
    assert answer.json["revision"] == three["c"].status()["green"]["revision"]
    third = preview(three["c"], prefix=f"{key}/3").json["items"]
    assert [(one["write"], len(one["changes"])) for one in third] == [(ids[3], 1)]
    paged, page = [], preview(three["c"], prefix=key, limit=1).json
    while page["cursor"] is not None:
        paged += page["items"]
        page = preview(three["c"], prefix=key, limit=1, cursor=page["cursor"]).json
    assert paged + page["items"] == items
    three.heal()
    three.await_agreement()
    assert preview(three["c"]).json["items"] == []


def test_minorities_that_meet_see_which_of_their_writes_yield(five: Cluster, key: str) -> None:
    five.partition("abc|d|e")
    first = five["d"].put(key, "d", "?merge=keep_green").json["id"]
    second = five["e"].put(key, "e", "?merge=keep_green").json["id"]
    five.partition("abc|de")
    eventually(lambda: len(preview(five["e"], prefix=key).json["items"]) == 2)
    for node in (five["d"], five["e"]):
        told = {one["write"]: one for one in preview(node, prefix=key).json["items"]}
        outcomes = {name: told[name]["outcome"] for name in (first, second)}
        assert sorted(outcomes.values()) == ["applied", "yielded"]
        loser = first if outcomes[first] == "yielded" else second
        assert told[loser]["beaten_by"] == (second if loser == first else first)


# Retention

FORGETFUL = (
    *("--set", "store.history_revisions=5", "--set", "store.checkpoint_ms=10"),
    *("--set", "membership.back_off_ms=100", "--set", "membership.back_off_ms_max=200"),
)


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster("abc", tmp_path, FORGETFUL) as cluster:
        yield cluster.start()


def test_conflicts_are_kept_as_long_as_the_past(forgetful: Cluster, key: str) -> None:
    forgetful.partition("ab|c")
    for number in range(3):
        forgetful["a"].put(f"{key}/{number}", "green")
        forgetful["c"].put(f"{key}/{number}", "red")
    found = met(forgetful, key)
    assert [(one["value"], one["other"]["value"]) for one in found] == [("red", "green")] * 3
    page = conflicts(forgetful["b"], limit=1)

    def is_forgotten() -> bool:
        forgetful["b"].put("other", "x")
        return not conflicts(forgetful["b"])["items"]

    eventually(is_forgotten)
    for parameters in ({"cursor": page["cursor"]}, {"from": found[0]["revision"]}):
        gone = ask(forgetful["b"], **parameters)
        assert (gone.status, gone.error) == (410, "compacted")
        assert gone.json["oldest"] >= found[0]["revision"]
    assert conflicts(forgetful["b"], **{"from": gone.json["oldest"] + 1})["items"] == []
