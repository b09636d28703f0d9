"""`POST /v1/txn`: several operations at one place in the order, or none of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.cluster import Cluster, Node


def put(key: str, value: object = "x", **more: str) -> dict[str, Any]:
    return {"put": {"key": key, "value": value, **more}}


def test_all_operations_happen_at_one_revision_and_say_what_they_left(node: Node, key: str) -> None:
    counter, text = f"{key}/counter", f"{key}/text"
    operations = [
        put(text, "he", content_type="text/plain"),
        {"append": {"key": text, "value": "y"}},
        {"increment": {"key": counter, "by": 3}},
        {"get": {"key": text}},
        {"delete": {"key": counter}},
        {"get": {"key": counter}},
    ]
    done = node.txn({"then": operations})
    content = done.json
    assert (done.status, content["color"], content["outcome"], content["succeeded"]) == (
        200,
        "green",
        "applied",
        True,
    )
    values = [None if item is None else item["value"] for item in content["results"]]
    assert values == ["he", "hey", "3", "hey", None, None]
    assert content["results"][3] == {
        "key": text,
        "value": "hey",
        "revision": content["revision"],
        "content_type": "text/plain",
    }
    assert node.get(text).headers["corel-revision"] == str(content["revision"])
    assert node.get(counter).status == 404


def test_values_that_are_not_text_travel_as_base64(node: Node, key: str) -> None:
    done = node.txn({"then": [put(key, {"base64": "/wD+"}), {"get": {"key": key}}]})
    assert [item["value"] for item in done.json["results"]] == [{"base64": "/wD+"}] * 2
    assert node.get(key).body == b"\xff\x00\xfe"


def test_conditions_of_every_kind_decide_which_branch_happens(node: Node, key: str) -> None:
    written = node.put(key, "x").json
    holding: list[dict[str, Any]] = [
        {"revision": written["revision"]},
        {"exists": True},
        {"value": "x"},
        {"value": {"base64": "eA=="}},
        {"id": written["id"]},
    ]
    failing: list[dict[str, Any]] = [{"revision": 0}, {"exists": False}, {"value": "y"}, {"id": "a.1.999999.0"}]
    for condition in holding + failing:
        done = node.txn(
            {
                "if": [{"key": key, **condition}],
                "then": [{"get": {"key": key}}],
                "else": [{"get": {"key": f"{key}-"}}],
            }
        )
        assert done.status == 200
        assert done.json["succeeded"] is (condition in holding)
        assert done.json["results"][0] == (done.json["results"][0] if condition in holding else None)


def test_one_failed_condition_and_nothing_happens(node: Node, key: str) -> None:
    conditions = [{"key": key, "exists": False}, {"key": key, "revision": 7}]
    refused = node.txn({"if": conditions, "then": [put(key), put(f"{key}/2")]})
    assert (refused.status, refused.error) == (412, "condition_failed")
    assert (refused.json["outcome"], refused.json["key"], refused.json["revision"]) == ("rejected", key, 0)
    assert [node.get(one).status for one in (key, f"{key}/2")] == [404, 404]


def test_one_impossible_operation_and_nothing_happens(node: Node, key: str) -> None:
    refused = node.txn({"then": [put(key, "text"), put(f"{key}/2"), {"increment": {"key": key, "by": 1}}]})
    assert (refused.status, refused.error) == (409, "not_a_number")
    assert [node.get(one).status for one in (key, f"{key}/2")] == [404, 404]


def test_an_empty_else_is_a_success_that_changes_nothing(node: Node, key: str) -> None:
    done = node.txn({"if": [{"key": key, "exists": True}], "then": [put(key)], "else": []})
    assert (done.status, done.json["succeeded"], done.json["revision"], done.json["results"]) == (
        200,
        False,
        None,
        [],
    )


def test_a_transaction_without_operations_is_applied(node: Node) -> None:
    done = node.txn({"then": []})
    assert (done.status, done.json["outcome"], done.json["revision"]) == (200, "applied", None)


def test_a_thousand_operations_have_one_revision(cluster: Cluster, key: str) -> None:
    done = cluster["a"].txn({"then": [put(f"{key}/{number}", str(number)) for number in range(1_000)]})
    revision = done.json["revision"]
    assert (done.status, len(done.json["results"])) == (200, 1_000)
    for number in (0, 500, 999):
        found = cluster["c"].get(f"{key}/{number}", f"?min_revision={revision}")
        assert (found.body, found.headers["corel-revision"]) == (str(number).encode(), str(revision))


def test_a_transaction_of_a_mebibyte_fits_and_a_larger_one_does_not(node: Node, key: str) -> None:
    halves = [put(f"{key}/1", "x" * 524_000), put(f"{key}/2", "y" * 524_000)]
    assert node.txn({"then": halves}).status == 200
    refused = node.txn({"then": [*halves, put(f"{key}/3", "z" * 100_000)]})
    assert (refused.status, refused.error) == (413, "txn_too_large")
    assert node.get(f"{key}/3").status == 404


def test_more_than_ten_thousand_operations_are_too_many(node: Node, key: str) -> None:
    most = [{"get": {"key": key}}] * 10_000
    assert node.txn({"then": most}).status == 200
    refused = node.txn({"if": [{"key": key, "exists": False}], "then": most})
    assert (refused.status, refused.error) == (413, "txn_too_large")


def test_a_body_over_eight_mebibytes_is_refused_unread(node: Node) -> None:
    length = 8 * 1_048_576 + 1
    answer = node.raw(f"POST /v1/txn HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"body_too_large"' in answer


def test_a_retry_on_another_node_applies_once(cluster: Cluster, key: str) -> None:
    content = {"then": [{"increment": {"key": key, "by": 1}}]}
    first = cluster["a"].txn(content, Idempotency_Key=key)
    again = cluster["b"].txn(content, Idempotency_Key=key)
    assert (again.status, again.json["outcome"]) == (200, "duplicate")
    assert again.json["duplicate_of"] == first.json["id"]
    assert cluster["b"].get(key).body == b"1"
    other = cluster["b"].txn({"then": []}, Idempotency_Key=key)
    assert (other.status, other.error) == (422, "idempotency_key_reused")


def test_a_retry_of_a_transaction_that_took_its_else_says_so(node: Node, key: str) -> None:
    content = {"if": [{"key": key, "exists": True}], "then": [put(key, "then")], "else": [put(key, "else")]}
    assert node.txn(content, Idempotency_Key=key).json["succeeded"] is False
    assert node.txn(content, Idempotency_Key=key).json["succeeded"] is False


def test_parameters_are_those_of_a_put(node: Node, key: str) -> None:
    assert node.txn({"then": [put(key)]}, "?ack=green&timeout_ms=10000").status == 200
    red = node.txn({"then": [put(key, "y")]}, "?ack=red")
    assert red.status in (200, 202)
    assert node.fate(red.json["id"], "?wait=green").json["outcome"] == "applied"
    for query in (
        "?ack=blue",
        "?timeout_ms=-1",
        "?timeout_ms=x",
        "?timeout_ms=600001",
        "?read=red",
        "?ack=red&ack=red",
    ):
        refused = node.txn({"then": [put(key, "z")]}, query)
        assert refused.status == 400
        assert refused.error in ("invalid_parameter", "unknown_parameter")
    assert node.get(key).body == b"y"


@pytest.mark.parametrize("headers", [{"If_Match": '"1"'}, {"If_None_Match": "*"}])
def test_a_condition_in_a_header_is_not_passed_over(node: Node, key: str, headers: dict[str, str]) -> None:
    node.put(key, "x")
    assert node.txn({"then": [put(key, "y")]}, **headers).status == 400


WRONG: list[object] = [
    *(None, [], 1, "then", {}, {"then": None}, {"then": {}}, {"then": [None]}, {"then": [[]]}, {"then": [{}]}),
    *({"then": [], "also": []}, {"then": [], "if": None}, {"then": [], "if": [None]}, {"then": [], "else": {}}),
    *({"then": [{"put": {"key": "k"}}]}, {"then": [{"put": {"key": 1, "value": "v"}}]}, {"then": [put("", "v")]}),
    *({"then": [put("k", None)]}, {"then": [put("k", 1)]}, {"then": [put("k", {"base64": "?"})]}),
    *({"then": [put("k" * 481)]}, {"then": [{"put": {"key": "k", "value": "v", "content_type": 1}}]}),
    *({"then": [put("k", "v", content_type="")]}, {"then": [put("k", "v", content_type="é")]}),
    *({"then": [put("k", "v", ttl="1")]}, {"then": [{"get": {"key": "k"}, "delete": {"key": "k"}}]}),
    *({"then": [{"rename": {"key": "k"}}]}, {"then": [{"get": "k"}]}, {"then": [{"delete": {"key": "\ud800"}}]}),
    *({"then": [{"increment": {"key": "k", "by": 0.5}}]}, {"then": [{"increment": {"key": "k", "by": 2**63}}]}),
    *({"then": [], "if": [{"key": "k"}]}, {"then": [], "if": [{"key": "k", "exists": 1}]}),
    *({"then": [], "if": [{"key": "k", "exists": True, "revision": 1}]}, {"then": [], "if": [{"exists": True}]}),
    *({"then": [], "if": [{"key": "k", "revision": -1}]}, {"then": [], "if": [{"key": "k", "revision": True}]}),
    *({"then": [], "if": [{"key": "k", "id": 1}]}, {"then": [], "if": [{"key": "k", "value": None}]}),
]


@pytest.mark.parametrize("content", WRONG, ids=lambda content: json.dumps(content)[:60])
def test_a_transaction_that_is_none_is_refused(node: Node, content: object) -> None:
    refused = node.txn(content)
    assert refused.status == 400
    assert refused.error


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"then": []', b"[" * 100_000, b'{"then": NaN}'])
def test_what_is_not_json_is_refused(node: Node, body: bytes) -> None:
    refused = node.call("POST", "/v1/txn", body)
    assert refused.status == 400
    assert refused.error in ("malformed_json", "invalid_txn")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_other_methods_are_not_allowed(node: Node, method: str) -> None:
    refused = node.call(method, "/v1/txn")
    assert (refused.status, refused.error) == (405, "method_not_allowed")
    assert refused.headers["allow"] == "POST"
