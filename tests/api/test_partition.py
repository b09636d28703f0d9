"""What clients see of a partition and of its healing: every answer says what a write is worth, and stays true."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from tests.api.cluster import Cluster, Node, eventually


def fates(nodes: Iterable[Node], write_id: str) -> list[str]:
    """Returns the final outcome of a write at each of these nodes, which must all agree."""
    told = [node.fate(write_id, "?wait=green&timeout_ms=20000").json for node in nodes]
    assert all(one["color"] == "green" for one in told)
    assert all(one == told[0] for one in told)
    return [one["outcome"] for one in told]


def test_a_minority_accepts_red_writes_and_the_majority_green_ones(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    red, green = three["c"].put(key, "red"), three["a"].put(key, "green")
    assert (red.status, red.json["color"], red.json["outcome"]) == (202, "red", "pending")
    assert red.headers["location"] == f"/v1/writes/{red.json['id']}"
    assert red.headers["corel-color"] == "red"
    assert "revision" not in red.json
    assert (green.status, green.json["color"]) == (200, "green")
    assert three["b"].get(key, "?read=linearizable").body == b"green"
    assert three["c"].get(key).status == 404
    assert three["a"].fate(red.json["id"]).status == 404
    three.heal()
    assert fates(three, red.json["id"]) == ["applied"] * 3
    three.await_agreement()
    assert [node.get(key).body for node in three] == [b"red"] * 3  # it came later in the order


def test_ack_green_in_a_minority_is_refused_and_leaves_nothing(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    before = three["c"].status()
    refused = three["c"].put(key, "x", "?ack=green")
    assert (refused.status, refused.error, refused.headers["retry-after"]) == (503, "no_primary", "1")
    assert three["c"].txn({"then": [{"put": {"key": key, "value": "x"}}]}, "?ack=green").status == 503
    assert three["c"].delete(key, "?ack=green").status == 503
    assert three["c"].get(key, "?read=red").status == 404
    after = three["c"].status()
    assert (after["red"], after["yellow"], after["held_writes"]) == (before["red"], before["yellow"], 0)
    three.heal()
    three.await_agreement()
    assert [node.get(key, "?read=red").status for node in three] == [404] * 3


def test_red_reads_in_a_minority_see_its_writes_with_their_ids_as_tags(three: Cluster, key: str) -> None:
    revision = three["a"].put(key, "old").json["revision"]
    three["c"].get(key, f"?min_revision={revision}")
    three.partition("ab|c")
    red = three["c"].put(key, "new", Content_Type="text/plain").json
    found = three["c"].get(key, "?read=red")
    assert (found.status, found.body, found.tag) == (200, b"new", f'"{red["id"]}"')
    assert found.headers["corel-color"] == "red"
    assert "corel-revision" not in found.headers
    assert three["c"].get(key, "?read=red", If_None_Match=found.tag).status == 304
    old = three["c"].get(key)
    assert (old.body, old.tag, old.headers["corel-color"]) == (b"old", f'"{revision}"', "green")
    three["c"].delete(key)
    gone = three["c"].get(key, "?read=red")
    assert (gone.status, gone.headers["corel-color"]) == (404, "red")


def test_a_condition_on_a_red_tag_holds_after_the_merge_if_nobody_came_between(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    three["c"].put(key, "one")
    tag = three["c"].get(key, "?read=red").tag
    good = three["c"].put(key, "two", If_Match=tag)
    stale = three["c"].put(key, "three", If_Match=tag)
    assert (good.status, stale.status) == (202, 202)
    three.heal()
    assert fates(three, good.json["id"]) == ["applied"] * 3
    assert fates(three, stale.json["id"]) == ["rejected"] * 3
    assert three["a"].get(key).body == b"two"


def test_a_red_conditional_write_is_rejected_at_the_merge_if_the_majority_was_there(
    three: Cluster, key: str
) -> None:
    tag = three["a"].put(key, "start").tag
    three.partition("ab|c")
    assert three["a"].put(key, "majority", If_Match=tag).status == 200
    late = three["c"].put(key, "minority", If_Match=tag)
    assert late.status == 202
    assert three["c"].fate(late.json["id"]).json == {"id": late.json["id"], "color": "red", "outcome": "pending"}
    three.heal()
    told = [node.fate(late.json["id"], "?wait=green").json for node in three]
    assert {(one["outcome"], one["reason"], one["key"]) for one in told} == {("rejected", "condition_failed", key)}
    assert three["c"].get(key).body == b"majority"


def test_who_waits_in_a_minority_hears_of_green_when_it_heals(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    write_id = three["c"].put(key, "x").json["id"]
    impatient = three["c"].fate(write_id, "?wait=green&timeout_ms=100")
    assert (impatient.status, impatient.json["color"], impatient.json["outcome"]) == (200, "red", "pending")
    told: list[object] = []
    waiter = threading.Thread(
        target=lambda: told.append(three["c"].fate(write_id, "?wait=green&timeout_ms=25000").json["color"])
    )
    waiter.start()
    three.heal()
    waiter.join(30.0)
    assert told == ["green"]


def test_increments_on_both_sides_all_count(three: Cluster, key: str) -> None:
    three.partition("a|bc")
    ids = [three[name].patch(key, {"increment": 1}).json["id"] for name in "abc" * 5]
    assert three["a"].get(key, "?read=red").body == b"5"
    assert three["b"].get(key, "?read=linearizable").body == b"10"
    three.heal()
    for write_id in ids:
        assert fates([three["b"]], write_id) == ["applied"]
    three.await_agreement()
    assert [node.get(key).body for node in three] == [b"15"] * 3


def test_three_alone_are_all_red_and_merge(three: Cluster, key: str) -> None:
    three.partition("a|b|c")
    ids = [three[name].put(f"{key}/{name}", name).json["id"] for name in "abc"]
    assert [node.get_path("/readyz?need=primary").status for node in three] == [503] * 3
    assert [node.get_path("/readyz").status for node in three] == [200] * 3
    assert [node.get(key, "?read=linearizable").error for node in three] == ["no_primary"] * 3
    assert three["a"].get(key, "?read=linearizable&min_revision=-1").error == "invalid_parameter"
    three.heal()
    for write_id in ids:
        assert fates(three, write_id) == ["applied"] * 3
    assert [three["a"].get(f"{key}/{name}").body for name in "abc"] == [b"a", b"b", b"c"]


def test_a_retry_on_the_other_side_of_a_cut_applies_once(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    here = three["c"].patch(key, {"increment": 1}, Idempotency_Key=key)
    there = three["a"].patch(key, {"increment": 1}, Idempotency_Key=key)
    assert (here.status, there.status) == (202, 200)
    three.heal()
    told = three["b"].fate(here.json["id"], "?wait=green").json
    assert (told["outcome"], told["duplicate_of"]) == ("duplicate", there.json["id"])
    again = three["b"].patch(key, {"increment": 1}, Idempotency_Key=key)
    assert (again.status, again.json["outcome"]) == (200, "duplicate")
    assert three["b"].get(key).body == b"1"


def test_an_idempotency_key_used_for_two_writes_across_a_cut_is_for_one(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    here = three["c"].put(key, "here", Idempotency_Key=key)
    assert three["a"].put(key, "there", Idempotency_Key=key).status == 200
    three.heal()
    told = three["c"].fate(here.json["id"], "?wait=green").json
    assert (told["outcome"], told["reason"]) == ("rejected", "idempotency_key_reused")
    assert three["c"].get(key).body == b"there"


def test_a_node_that_is_behind_waits_for_min_revision(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    revision = three["a"].put(key, "x").json["revision"]
    late = three["c"].get(key, f"?min_revision={revision}&timeout_ms=100")
    assert (late.status, late.error) == (504, "revision_not_reached")
    assert late.json["revision"] < revision
    found: list[bytes] = []
    reader = threading.Thread(
        target=lambda: found.append(three["c"].get(key, f"?min_revision={revision}&timeout_ms=25000").body)
    )
    reader.start()
    three.heal()
    reader.join(30.0)
    assert found == [b"x"]


def test_linearizable_reads_are_never_stale_under_a_cut(three: Cluster, key: str) -> None:
    three["a"].put(key, "0")
    written, stale, is_over = [0], [], threading.Event()

    def read(node: Node) -> None:
        while not is_over.is_set():
            least = written[0]
            found = node.get(key, "?read=linearizable&timeout_ms=300")
            assert found.status in (200, 503)
            if found.status == 200 and int(found.body) < least:
                stale.append((node.name, int(found.body), least))

    readers = [threading.Thread(target=read, args=(node,)) for node in three]
    for reader in readers:
        reader.start()
    for cut in ("ab|c", "a|bc", ""):
        three.partition(cut) if cut else three.heal()
        for _ in range(20):
            number = written[0] + 1
            if three["b"].put(key, str(number), "?ack=green").status == 200:
                written[0] = number
    is_over.set()
    for reader in readers:
        reader.join(30.0)
    assert written[0] >= 40
    assert stale == []


def test_a_write_under_way_when_the_cut_comes_is_answered_and_keeps_its_word(three: Cluster, key: str) -> None:
    ids: list[str] = []
    is_over = threading.Event()

    def write(node: Node) -> None:
        while not is_over.is_set():
            answer = node.patch(key, {"increment": 1}, "?timeout_ms=2000")
            assert answer.status in (200, 202)
            ids.append(answer.json["id"])

    writers = [threading.Thread(target=write, args=(node,)) for node in three]
    for writer in writers:
        writer.start()
    three.partition("ab|c")
    time.sleep(0.3)
    three.heal()
    is_over.set()
    for writer in writers:
        writer.join(30.0)
    assert len(set(ids)) == len(ids) > 0
    assert all(outcome == "applied" for write_id in ids for outcome in fates([three["a"]], write_id))
    three.await_agreement()
    assert [node.get(key).body for node in three] == [str(len(ids)).encode()] * 3


def test_the_cluster_page_shows_who_is_connected(three: Cluster) -> None:
    three.partition("ab|c")
    nodes = {node["name"]: node for node in three["a"].get_path("/v1/cluster").json["nodes"]}
    assert [nodes[name]["connected"] for name in "abc"] == [True, True, False]
    assert nodes["c"]["incarnation"] is None
    assert three["c"].get_path("/v1/cluster").json["primary"] is False


def test_five_nodes_cut_three_to_two(five: Cluster, key: str) -> None:
    five.partition("abc|de")
    green = [five[name].put(f"{key}/{name}", name) for name in "abc"]
    red = [five[name].put(f"{key}/{name}", name) for name in "de"]
    assert ([one.status for one in green], [one.status for one in red]) == ([200] * 3, [202] * 2)
    eventually(lambda: five["d"].get(f"{key}/e", "?read=red").status == 200)
    five.heal()
    for answer in green + red:
        assert fates(five, answer.json["id"]) == ["applied"] * 5
    five.await_agreement()
    for name in "abcde":
        assert {node.get(f"{key}/{name}").body for node in five} == {name.encode()}
        assert len({node.get(f"{key}/{name}").tag for node in five}) == 1


def test_a_majority_that_is_cut_again_keeps_a_primary_only_with_most_of_the_roster(
    five: Cluster, key: str
) -> None:
    five.partition("abc|de")
    assert five["a"].put(key, "three of five").status == 200
    five.partition("ab|c|de")
    assert five["a"].put(key, "two of five").status == 202
    five.partition("ab|cde")
    assert five["d"].put(key, "three others").status == 200
    assert five["e"].get(key, "?read=linearizable").body == b"three others"
    five.heal()
    five.await_agreement()
    assert len({(node.get(key).body, node.get(key).tag) for node in five}) == 1
