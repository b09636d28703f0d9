"""What a node reports about itself: status, log, cluster, probes and documents."""

from __future__ import annotations

import time

import pytest

from tests.api.cluster import Cluster, Node, eventually


def test_the_status_has_everything_the_contract_names(cluster: Cluster, key: str) -> None:
    revision = cluster["a"].put(key, "x").json["revision"]
    status = cluster["a"].status()
    assert (status["node"], status["roster"]) == ("a", ["a", "b", "c"])
    assert 0.0 <= time.time() - status["incarnation"] / 1_000.0 < 3_600.0, (
        "counted from the time of the first start"
    )
    assert sorted(status["view"]["members"]) == ["a", "b", "c"]
    assert (status["state"], status["primary"], status["voter"]) == ("primary", True, True)
    assert status["green"]["revision"] >= revision
    assert status["green"]["line"] <= status["yellow"]["line"]
    assert status["red"] >= 0
    assert status["last_committed_primary"] >= 1
    assert status["last_attempted_primary"] >= status["last_committed_primary"]
    assert (status["disk"], status["chaos"], status["learning"]) == ("ok", False, None)
    used = status["disk_used"]
    assert 0 < used["used_bytes"] < used["map_bytes"] == 64 * 1024**3
    assert 0 < used["free_bytes"] <= used["file_system_bytes"]
    assert all(" " in warning for warning in status["warnings"])
    views = {node.status()["view"]["id"] for node in cluster}
    assert views == {status["view"]["id"]}


def test_a_write_moves_the_green_line_of_every_node(cluster: Cluster, key: str) -> None:
    before = cluster["b"].status()["green"]
    revision = cluster["a"].put(key, "x").json["revision"]
    eventually(lambda: all(node.status()["green"]["revision"] >= revision for node in cluster))
    assert cluster["b"].status()["green"]["line"] > before["line"]


def test_the_log_is_the_same_on_every_node(cluster: Cluster, key: str) -> None:
    cluster["a"].put(key, "secret value", "?ack=green")
    line = cluster["a"].status()["green"]["line"]
    eventually(lambda: all(node.status()["green"]["line"] >= line for node in cluster))
    first = max(0, line - 20)
    pages = [node.get_path(f"/v1/log?from={first}&limit=20").json["entries"][: line - first] for node in cluster]
    brief = [[(entry["position"], entry["id"], entry["operations"]) for entry in page] for page in pages]
    assert brief[0] == brief[1] == brief[2]
    assert [entry["position"] for entry in pages[0]] == list(range(first, line))
    assert {"position", "id", "color", "timestamp", "sender", "view", "operations"} <= set(pages[0][0])
    stamps = [entry["timestamp"] for entry in pages[0]]
    assert stamps == sorted(stamps)


def test_an_entry_of_the_log_names_its_writes_but_not_their_values(node: Node, key: str) -> None:
    operations = [
        {"put": {"key": key, "value": "secret"}},
        {"increment": {"key": f"{key}/n", "by": 2}},
        {"append": {"key": key, "value": "!"}},
        {"delete": {"key": key}},
        {"get": {"key": key}},
    ]
    write_id = node.txn({"then": operations}).json["id"]
    line = node.status()["green"]["line"]
    page = node.get_path(f"/v1/log?from={max(0, line - 50)}").json
    assert "secret" not in str(page)
    [entry] = [entry for entry in page["entries"] if write_id.startswith(f"{entry['id']}.")]
    assert (entry["sender"], entry["color"]) == ("a", "green")
    assert [operation for operation in entry["operations"] if operation["write"] == write_id] == [
        {"write": write_id, "put": {"key": key, "bytes": 6}},
        {"write": write_id, "increment": {"key": f"{key}/n", "by": 2}},
        {"write": write_id, "append": {"key": key, "bytes": 1}},
        {"write": write_id, "delete": {"key": key}},
        {"write": write_id, "get": {"key": key}},
    ]


def test_pages_of_the_log_follow_each_other(node: Node, key: str) -> None:
    for _ in range(3):
        node.put(key, "x")
    one, two = node.get_path("/v1/log?limit=2").json, node.get_path("/v1/log?from=2&limit=1").json
    assert [entry["position"] for entry in one["entries"] + two["entries"]] == [0, 1, 2]
    assert (one["next"], two["next"]) == (2, 3)
    beyond = node.get_path("/v1/log?from=1000000000").json
    assert beyond["entries"] == []
    assert beyond["next"] <= 1_000_000_000


def test_the_cluster_as_a_node_sees_it(cluster: Cluster) -> None:
    content = cluster["b"].get_path("/v1/cluster").json
    assert content["primary"] is True
    assert content["state"] == "primary"
    assert sorted(content["view"]["members"]) == ["a", "b", "c"]
    nodes = {node["name"]: node for node in content["nodes"]}
    assert sorted(nodes) == ["a", "b", "c"]
    assert all(node["connected"] and node["weight"] == 1 for node in nodes.values())
    assert all(nodes[name]["incarnation"] == cluster[name].status()["incarnation"] for name in "abc")
    assert [name for name, node in nodes.items() if node["me"]] == ["b"]
    assert nodes["b"]["url"] == cluster["b"].url


def test_probes(node: Node) -> None:
    alive = node.get_path("/livez")
    assert (alive.status, alive.body) == (200, b"ok\n")
    for query in ("", "?need=primary"):
        ready = node.get_path(f"/readyz{query}")
        assert (ready.status, ready.json) == (200, {"ready": True, "state": "primary"})


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/status?x=1", "/v1/cluster?x=1", "/readyz?need=all", "/readyz?need=", "/readyz?needs=primary"),
        *(
            "/v1/log?from=-1",
            "/v1/log?limit=0",
            "/v1/log?limit=1001",
            "/v1/log?from=x",
            "/v1/log?x=1",
            "/v1/log?from=",
        ),
        *("/v1/log?from=1&from=2", "/v1/log?from=99999999999999999999", "/v1/log?limit=%31%", "/v1/log?from=1.0"),
    ],
)
def test_unknown_parameters_and_values_are_refused(node: Node, path: str) -> None:
    refused = node.get_path(path)
    assert refused.status == 400
    assert refused.error in ("invalid_parameter", "unknown_parameter", "invalid_percent_encoding")


def test_the_documents_describe_every_call(node: Node) -> None:
    assert b"swagger" in node.get_path("/docs").body
    assert b"/docs" in node.get_path("/").body
    document = node.get_path("/openapi.json").json
    calls = {(method, path) for path, item in document["paths"].items() for method in item}
    keys = {(method, "/v1/kv/{key}") for method in ("get", "head", "put", "patch", "delete")}
    chaos = {(method, "/v1/chaos") for method in ("get", "put", "delete")}
    others = {("post", "/v1/txn"), ("get", "/v1/writes/{write_id}")}
    reads = {("get", path) for path in ("/v1/status", "/v1/log", "/v1/cluster", "/livez", "/readyz")}
    assert keys | chaos | others | reads <= calls
    statuses = set(document["paths"]["/v1/kv/{key}"]["put"]["responses"])
    assert {"200", "202", "400", "408", "409", "412", "413", "422", "429", "503", "504"} <= statuses


@pytest.mark.parametrize(
    "path", ["/nowhere", "/v1", "/v1/", "/v2/kv/x", "/v1/writes", "/v1/writes/", "/v1/writes/a/b"]
)
def test_there_is_nothing_at_other_paths(node: Node, path: str) -> None:
    missing = node.get_path(path)
    assert (missing.status, missing.error) == (404, "no_such_path")


@pytest.mark.parametrize("path", ["/v1/status", "/v1/log", "/v1/cluster", "/readyz", "/livez", "/openapi.json"])
def test_other_methods_are_not_allowed(node: Node, path: str) -> None:
    refused = node.call("POST", path)
    assert (refused.status, refused.error) == (405, "method_not_allowed")
    assert "GET" in refused.headers["allow"]
