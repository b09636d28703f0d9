"""`/v1/lab`: nodes without chaos or without a supervisor refuse it; `tests/kvstore/cli/test_control.py` has the
rest."""

from __future__ import annotations

from pathlib import Path

from tests.api.cluster import Cluster, Node

KILL = b'{"action": "kill"}'


def test_a_node_that_nobody_watches_says_so(node: Node) -> None:
    refused = node.call("POST", "/v1/lab/nodes/c", KILL)
    assert (refused.status, refused.error) == (404, "no_supervisor")


def test_without_chaos_there_is_no_laboratory(tmp_path: Path) -> None:
    with Cluster("a", tmp_path, ("--no-chaos", "--supervisor", str(tmp_path / "socket"))) as cluster:
        node = cluster.start()["a"]
        refused = node.call("POST", "/v1/lab/nodes/a", KILL)
        assert (refused.status, refused.error) == (404, "chaos_disabled")
        assert node.put("k", "x").status == 200


def test_a_supervisor_that_has_gone_is_an_answer(tmp_path: Path) -> None:
    with Cluster("a", tmp_path, ("--supervisor", str(tmp_path / "gone"))) as cluster:
        node = cluster.start()["a"]
        refused = node.call("POST", "/v1/lab/nodes/a", KILL)
        assert (refused.status, refused.error) == (503, "supervisor_unreachable")
        assert node.call("POST", "/v1/lab/nodes/z", KILL).error == "no_such_node"
        for body in (b"", b"[]", b'{"action": "stop"}', b'{"action": "kill", "x": 1}', b'{"action": ["kill"]}'):
            assert node.call("POST", "/v1/lab/nodes/a", body).status == 400
