"""`/v1/chaos`: a bad network on request, and only at nodes started with `--chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.cluster import Cluster, eventually

NOTHING = {"drop_from": [], "drop_to": [], "loss": 0.0, "duplication": 0.0, "delay_ms": 0.0, "jitter_ms": 0.0}


def test_what_is_spoilt_can_be_read_and_mended(three: Cluster) -> None:
    node = three["a"]
    spoilt = node.spoil(loss=0.01, delay_ms=1, jitter_ms=0.5, duplication=0.1)
    assert spoilt.json == {**NOTHING, "loss": 0.01, "delay_ms": 1.0, "jitter_ms": 0.5, "duplication": 0.1}
    assert node.get_path("/v1/chaos").json == spoilt.json
    assert node.status()["chaos"] is True
    mended = node.call("DELETE", "/v1/chaos")
    assert (mended.status, mended.json) == (200, NOTHING)
    assert node.status()["chaos"] is False


def test_a_put_replaces_what_was_before(three: Cluster) -> None:
    three["a"].spoil(loss=0.01)
    assert three["a"].spoil(delay_ms=1).json == {**NOTHING, "delay_ms": 1.0}


def test_a_patch_changes_only_what_it_names(three: Cluster) -> None:
    three["a"].spoil(drop_from=["b"], drop_to=["b"], duplication=0.1)
    changed = three["a"].call("PATCH", "/v1/chaos", b'{"loss": 0.01, "drop_to": []}')
    assert changed.json == {**NOTHING, "drop_from": ["b"], "duplication": 0.1, "loss": 0.01}
    assert three["a"].get_path("/v1/chaos").json == changed.json
    assert three["a"].call("PATCH", "/v1/chaos", b'{"loss": 0.0}').json["loss"] == 0.0


def test_writes_go_through_a_lossy_slow_network_that_doubles_things(three: Cluster, key: str) -> None:
    for node in three:
        node.spoil(loss=0.05, delay_ms=2, jitter_ms=5, duplication=0.2)
    ids = [three[name].patch(key, {"increment": 1}).json["id"] for name in "abc" * 4]
    for write_id in ids:
        assert three["a"].fate(write_id, "?wait=green&timeout_ms=20000").json["outcome"] == "applied"
    three.heal()
    three.await_agreement()
    assert [node.get(key).body for node in three] == [b"12"] * 3


def test_a_link_that_is_dropped_one_way_makes_views_in_which_all_hear_each_other(three: Cluster, key: str) -> None:
    three["c"].spoil(drop_from=["a"])
    eventually(lambda: "c" not in three["a"].status()["view"]["members"])
    write_id = three["c"].put(key, "x").json["id"]
    three.heal()
    assert three["a"].fate(write_id, "?wait=green").json["outcome"] == "applied"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"null", b'{"loss": 2}', b'{"loss": -0.1}', b'{"loss": "0.1"}', b'{"delay_ms": -1}'),
        *(
            b'{"delay_ms": 60001}',
            b'{"drop_from": "a"}',
            b'{"drop_from": ["z"]}',
            b'{"drop_to": [1]}',
            b'{"x": 1}',
        ),
        *(b'{"loss": NaN}', b'{"delay_ms": Infinity}', b'{"loss": null}', b'{"loss": true}', b"\xff"),
    ],
)
def test_chaos_that_makes_no_sense_is_refused_and_changes_nothing(three: Cluster, body: bytes) -> None:
    for method in ("PUT", "PATCH"):
        refused = three["a"].call(method, "/v1/chaos", body)
        assert refused.status == 400
        assert refused.error in ("invalid_chaos", "malformed_json")
    assert three["a"].get_path("/v1/chaos").json == NOTHING


def test_unknown_parameters_other_methods_and_large_bodies_are_refused(three: Cluster) -> None:
    node = three["a"]
    assert node.get_path("/v1/chaos?x=1").error == "unknown_parameter"
    assert node.call("DELETE", "/v1/chaos?x=1").status == 400
    assert node.call("POST", "/v1/chaos", b"{}").status == 405
    large = node.raw(b"PUT /v1/chaos HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n")
    assert large.startswith(b"HTTP/1.1 413 ")


def test_a_node_without_the_flag_cannot_be_spoilt(tmp_path: Path) -> None:
    with Cluster("a", tmp_path, ("--no-chaos",)) as cluster:
        node = cluster.start()["a"]
        for refused in (
            node.spoil(loss=1.0),
            node.call("PATCH", "/v1/chaos", b'{"loss": 1.0}'),
            node.call("DELETE", "/v1/chaos"),
            node.get_path("/v1/chaos"),
        ):
            assert (refused.status, refused.error) == (404, "chaos_disabled")
        assert node.status()["chaos"] is False
        assert node.put("k", "x").status == 200
