"""Merge policies: what a red write does if others changed its key meanwhile, fixed when it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.answers import write_response
from kvstore.store import Done, Outcome, Verdict
from kvstore.store.state import Applied
from tests.api.cluster import Cluster, Node


def fate(cluster: Cluster, write_id: str) -> Any:
    """Returns what became of a write, which all nodes must agree on."""
    told = [node.fate(write_id, "?wait=green&timeout_ms=20000").json for node in cluster]
    assert all(one == told[0] for one in told)
    return told[0]


def test_a_red_write_with_keep_green_yields_to_the_other_side(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    winner = three["a"].put(key, "green").json
    put = three["c"].put(key, "red", "?merge=keep_green")
    delete = three["c"].delete(key, "?merge=keep_green")
    free = three["c"].put(f"{key}-", "red", "?merge=keep_green").json
    assert (put.status, delete.status) == (202, 202)
    three.heal()
    for write in (put.json, delete.json):
        assert fate(three, write["id"]) == {
            "id": write["id"],
            "color": "green",
            "outcome": "yielded",
            "key": key,
            "revision": winner["revision"],
            "beaten_by": winner["id"],
        }
    assert fate(three, free["id"])["outcome"] == "applied"
    assert [node.get(key).body for node in three] == [b"green"] * 3


def test_without_a_policy_the_last_in_the_order_wins(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    three["a"].put(key, "green")
    red = [three["c"].put(key, "red", query).json for query in ("", "?merge=last")]
    three.heal()
    assert [fate(three, write["id"])["outcome"] for write in red] == ["applied", "applied"]
    assert three["a"].get(key).body == b"red"


def test_a_write_does_not_yield_to_what_its_node_knew(three: Cluster, key: str) -> None:
    revision = three["a"].put(key, "before").json["revision"]
    three["c"].get(key, f"?min_revision={revision}")
    three.partition("ab|c")
    red = [three["c"].put(key, value, "?merge=keep_green").json for value in ("one", "two")]
    three.heal()
    assert [fate(three, write["id"])["outcome"] for write in red] == ["applied", "applied"]
    assert three["b"].get(key).body == b"two"


def test_in_a_primary_component_policies_make_no_difference(cluster: Cluster, key: str) -> None:
    for value in ("1", "2"):
        assert cluster["a"].put(key, value, "?merge=keep_green").json["outcome"] == "applied"
    assert cluster["b"].delete(key, "?merge=keep_green&ack=green").json["outcome"] == "applied"


def test_a_transaction_yields_as_a_whole(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    winner = three["b"].patch(f"{key}/2", {"increment": 1}).json
    operations = [{"put": {"key": f"{key}/{number}", "value": "red"}} for number in (1, 2)]
    red = three["c"].txn({"then": operations, "merge": "keep_green"})
    plain = three["c"].txn({"then": [{"put": {"key": f"{key}/3", "value": "x"}}], "merge": "last"})
    assert (red.status, plain.status) == (202, 202)
    three.heal()
    told = fate(three, red.json["id"])
    assert (told["outcome"], told["key"], told["beaten_by"]) == ("yielded", f"{key}/2", winner["id"])
    assert fate(three, plain.json["id"])["outcome"] == "applied"
    assert [three["a"].get(f"{key}/{number}").status for number in (1, 2, 3)] == [404, 200, 200]


def test_a_retry_of_a_write_that_yielded_is_told_so(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    three["a"].put(key, "green")
    red = three["c"].put(key, "red", "?merge=keep_green", Idempotency_Key=key).json
    three.heal()
    assert fate(three, red["id"])["outcome"] == "yielded"
    again = three["b"].put(key, "red", "?merge=keep_green", Idempotency_Key=key)
    assert (again.status, again.error) == (409, "yielded")
    assert (again.json["outcome"], again.json["duplicate_of"]) == ("duplicate", red["id"])
    assert three["b"].get(key).body == b"green"


def test_a_write_that_is_green_and_has_yielded_is_answered_so() -> None:
    outcome = Outcome(Verdict.YIELDED, 7, key="k", branch=False, first_id="a.1.1.0")
    response = write_response(Done("c.1.1.0", Applied(outcome, {})))
    content = json.loads(response.body)
    assert response.status == 409
    assert (content["error"], content["outcome"], content["key"]) == ("yielded", "yielded", "k")
    assert (content["revision"], content["beaten_by"]) == (7, "a.1.1.0")
    assert content["message"].endswith("send it again.")


@pytest.mark.parametrize("query", ["?merge=first", "?merge=", "?merge=LAST", "?merge=last&merge=last"])
def test_an_unknown_policy_is_refused(node: Node, key: str, query: str) -> None:
    for refused in (node.put(key, "x", query), node.delete(key, query)):
        assert (refused.status, refused.error) == (400, "invalid_parameter")
    assert node.get(key).status == 404


@pytest.mark.parametrize("policy", ["first", "", None, 1, ["last"]])
def test_an_unknown_policy_of_a_transaction_is_refused(node: Node, key: str, policy: object) -> None:
    refused = node.txn({"then": [{"put": {"key": key, "value": "x"}}], "merge": policy})
    assert (refused.status, refused.error) == (400, "invalid_txn")


@pytest.mark.parametrize("policy", ["last", "keep_green"])
def test_a_patch_takes_no_policy_and_says_why(node: Node, key: str, policy: str) -> None:
    refused = node.patch(key, {"increment": 1}, f"?merge={policy}")
    assert (refused.status, refused.error) == (400, "invalid_parameter")
    assert "merge by themselves" in refused.json["message"]


def test_an_idempotency_key_makes_patches_and_transactions_apply_once(cluster: Cluster, key: str) -> None:
    first = cluster["a"].patch(key, {"append": "x"}, Idempotency_Key=f"{key}/patch").json
    again = cluster["b"].patch(key, {"append": "x"}, Idempotency_Key=f"{key}/patch").json
    assert (again["outcome"], again["duplicate_of"]) == ("duplicate", first["id"])
    content = {"then": [{"append": {"key": key, "value": "y"}}], "merge": "keep_green"}
    first = cluster["a"].txn(content, Idempotency_Key=f"{key}/txn").json
    again = cluster["c"].txn(content, Idempotency_Key=f"{key}/txn").json
    assert (again["outcome"], again["duplicate_of"]) == ("duplicate", first["id"])
    assert cluster["c"].get(key).body == b"xy"
    other = cluster["c"].txn({**content, "merge": "last"}, Idempotency_Key=f"{key}/txn")
    assert (other.status, other.error) == (422, "idempotency_key_reused")
