"""`GET /v1/writes/{id}`: what became of a write, asked of any node."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from api.answers import write_response
from kvstore.store import Done, Outcome, Verdict
from kvstore.store.state import Applied
from tests.api.cluster import Cluster, Node


def test_every_node_tells_the_fate_of_an_applied_write(cluster: Cluster, key: str) -> None:
    written = cluster["b"].put(key, "x").json
    for node in cluster:
        told = node.fate(written["id"], "?wait=green&timeout_ms=10000")
        assert (told.status, told.json) == (200, written)


def test_every_node_tells_why_a_write_was_rejected(cluster: Cluster, key: str) -> None:
    revision = cluster["a"].put(key, "x").json["revision"]
    rejected = cluster["a"].put(key, "y", If_None_Match="*").json
    for node in cluster:
        told = node.fate(rejected["id"], "?wait=green").json
        assert told == {
            "id": rejected["id"],
            "color": "green",
            "outcome": "rejected",
            "reason": "condition_failed",
            "key": key,
            "revision": revision,
        }


def test_every_node_tells_of_which_write_another_is_a_duplicate(cluster: Cluster, key: str) -> None:
    first = cluster["a"].put(key, "x", Idempotency_Key=key).json
    second = cluster["b"].put(key, "x", Idempotency_Key=key).json
    for node in cluster:
        told = node.fate(second["id"], "?wait=green").json
        assert (told["outcome"], told["duplicate_of"]) == ("duplicate", first["id"])
        assert told["duplicate_outcome"] == "applied"
        assert told["revision"] == first["revision"]


def test_a_duplicate_of_what_was_rejected_says_why(cluster: Cluster, key: str) -> None:
    cluster["a"].put(key, "x")
    answers = [one.put(key, "y", If_None_Match="*", Idempotency_Key=key) for one in (cluster["a"], cluster["b"])]
    assert [answer.status for answer in answers] == [412, 412]
    first, second = (answer.json for answer in answers)
    assert (second["outcome"], second["duplicate_of"]) == ("duplicate", first["id"])
    assert f"rejected because of '{key}' (condition_failed)" in second["message"]
    for told in (second, cluster["c"].fate(second["id"], "?wait=green").json):
        assert (told["duplicate_outcome"], told["reason"], told["key"]) == ("rejected", "condition_failed", key)


def test_a_duplicate_of_what_did_its_else_says_so(cluster: Cluster, key: str) -> None:
    txn = {"if": [{"key": key, "exists": True}], "then": [], "else": [{"put": {"key": key, "value": "x"}}]}
    answers = [one.txn(txn, Idempotency_Key=key).json for one in (cluster["a"], cluster["b"])]
    assert [answer["succeeded"] for answer in answers] == [False, False]
    assert cluster["c"].fate(answers[1]["id"], "?wait=green").json["succeeded"] is False


FORGETFUL = "from kvstore.store import state\nstate.IDEMPOTENCY_POSITIONS = 10"
"""A prelude that makes nodes remember idempotency keys for ten messages of the log."""


def test_a_copy_that_merges_after_its_key_was_forgotten_has_expired_on_every_node(
    tmp_path: Path, key: str
) -> None:
    with Cluster("abc", tmp_path, prelude=FORGETFUL) as cluster:
        cluster.start().partition("ab|c")
        late = cluster["c"].patch(key, {"increment": 1}, Idempotency_Key=key)
        retry = cluster["a"].patch(key, {"increment": 1}, Idempotency_Key=key)
        assert (late.status, retry.status, retry.json["outcome"]) == (202, 200, "applied")
        for number in range(10):
            assert cluster["a"].put("other", str(number)).status == 200
        cluster.heal()
        for node in cluster:
            told = node.fate(late.json["id"], "?wait=green&timeout_ms=20000").json
            assert told == {"id": late.json["id"], "color": "green", "outcome": "expired", "revision": None}
            assert node.get(key, "?read=red").body == node.get(key).body == b"1"


def test_a_write_that_is_green_and_has_expired_is_answered_so() -> None:
    response = write_response(Done("a.1.1.0", Applied(Outcome(Verdict.EXPIRED, None), {})))
    content = json.loads(response.body)
    assert (response.status, content["error"], content["outcome"]) == (409, "expired", "expired")
    assert content["message"].endswith("send it with a new Idempotency-Key.")


def test_of_a_transaction_that_took_its_else(node: Node, key: str) -> None:
    content = {"if": [{"key": key, "exists": True}], "then": [], "else": [{"put": {"key": key, "value": "x"}}]}
    done = node.txn(content).json
    told = node.fate(done["id"]).json
    assert (told["outcome"], told["succeeded"], told["revision"]) == ("applied", False, done["revision"])


def test_who_waits_for_green_hears_of_it(cluster: Cluster, key: str) -> None:
    for number in range(20):
        red = cluster["c"].put(key, str(number), "?ack=red")
        assert red.status in (200, 202)
        told = cluster["c"].fate(red.json["id"], "?wait=green&timeout_ms=10000").json
        assert (told["color"], told["outcome"]) == ("green", "applied")


def test_writes_of_one_message_have_fates_of_their_own(cluster: Cluster, key: str) -> None:
    first = cluster["a"].put(key, "x").json["id"]
    beyond = first.rpartition(".")[0] + ".4000"
    unknown = cluster["a"].fate(beyond)
    assert (unknown.status, unknown.error) == (404, "unknown_write")


@pytest.mark.parametrize(
    "write_id", ["a.1.999999999.0", "z.1.1.0", "a.999.1.0", "a.1.1.999999", "a.0.0.0", "a.1.999999999999999999.0"]
)
@pytest.mark.parametrize("query", ["", "?wait=green&timeout_ms=100"])
def test_an_unknown_write_is_not_found(node: Node, write_id: str, query: str) -> None:
    unknown = node.fate(write_id, query)
    assert (unknown.status, unknown.error) == (404, "unknown_write")
    assert write_id in unknown.json["message"]


@pytest.mark.parametrize(
    "write_id",
    [
        *("x", "a.1.1", "a.1.1.x", "a.1.-1.0", ".1.1.0", "a.1.1.0.", "a.1.1.٣", "a.1.1.0 ", "....", "a.1.1e3.0"),
        *("a.1.99999999999999999999.0", "a" * 5_000, "%00", "a. 1.1.0"),
    ],
)
def test_a_malformed_write_id_is_refused(node: Node, write_id: str) -> None:
    refused = node.fate(quote(write_id))
    assert (refused.status, refused.error) == (400, "invalid_write_id")


@pytest.mark.parametrize(
    "query", ["?wait=red", "?wait=", "?wait=green&wait=green", "?timeout_ms=-1", "?timeout_ms=9999999", "?x=1"]
)
def test_parameters_are_checked(node: Node, key: str, query: str) -> None:
    write_id = node.put(key, "x").json["id"]
    refused = node.fate(write_id, query)
    assert refused.status == 400
    assert refused.error in ("invalid_parameter", "unknown_parameter")


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_other_methods_are_not_allowed(node: Node, method: str) -> None:
    refused = node.call(method, "/v1/writes/a.1.1.0")
    assert (refused.status, refused.error) == (405, "method_not_allowed")
