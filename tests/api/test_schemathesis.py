"""The OpenAPI document against what the nodes do: Schemathesis makes valid and invalid requests of every call, and
checks that the answers are as documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode

from tests.api.cluster import Cluster, Node

EXAMPLES = 30
TIMEOUT_MS_MAX = 50
"""No request waits longer than this, whatever was drawn."""

CONFIG: dict[str, Any] = {
    "checks": {
        "not_a_server_error": {"expected-statuses": ["2XX", "3XX", "4XX", "503", "504"]},  # they say: not now
        "positive_data_acceptance": {
            "expected-statuses": ["2XX", "304", "404", "409", "410", "412", "422", "503", "504"]
        },
        "negative_data_rejection": {"expected-statuses": ["400", "404", "405", "413"]},
    }
}

UNSAYABLE = (
    *("contradictory_conditions", "contradictory_parameters", "key_too_large", "number_too_large"),
    "invalid_cursor",
)
"""Errors that OpenAPI cannot express: headers and parameters that exclude each other, lengths in bytes, integers
that are not exact as floats, and texts that only a node can make."""

MODES = pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
KEYS = "/v1/kv/{key}"
CALLS = [
    *[(method, KEYS) for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE")],
    *[("POST", "/v1/txn"), ("GET", "/v1/writes/{write_id}"), ("GET", "/v1/log")],
    *[("GET", path) for path in ("/v1/kv", "/v1/history", "/v1/conflicts", "/v1/conflicts/preview", "/readyz")],
]
PARTS = [("GET", f"/v1/snapshots/{path}") for path in ("log", "{snapshot}/tail", "{snapshot}/{table}")]
CALLS += [*PARTS, ("DELETE", "/v1/snapshots/{snapshot}")]
PLAIN = [("GET", path) for path in ("/v1/status", "/v1/cluster", "/livez", "/metrics")]
PLAIN += [("HEAD", "/metrics"), ("POST", "/v1/snapshots")]
"""Calls without parameters, so no request of them can be invalid."""
PLAIN_CHAOS = [("GET", "/v1/chaos"), ("DELETE", "/v1/chaos")]
SPOIL = [("PUT", "/v1/chaos"), ("PATCH", "/v1/chaos")]
STREAMS = [("GET", "/v1/watch"), ("GET", "/v1/status/stream")]
"""Calls that do not end by themselves: `test_watch` and `test_status_stream` try them."""
LAB = ("POST", "/v1/lab/nodes/{name}")


def schema_of(node: Node) -> Any:
    config = SchemathesisConfig.from_dict(CONFIG)
    return schemathesis.openapi.from_url(f"{node.url}/openapi.json", config=config)


@pytest.fixture(scope="module")
def schema(cluster: Cluster) -> Any:
    return schema_of(cluster["a"])


def check(schema: Any, node: Node, method: str, path: str, mode: GenerationMode) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    def is_as_documented(case: Any) -> None:
        be_brief(case)
        if mode is GenerationMode.POSITIVE:
            be_consistent(case)
        response = case.call(base_url=node.url)
        if not any(f'"{code}"'.encode() in response.content for code in UNSAYABLE):
            case.validate_response(response)

    is_as_documented()


def be_brief(case: Any) -> None:
    timeout_ms = case.query.get("timeout_ms")
    if timeout_ms is None and any(parameter.name == "timeout_ms" for parameter in case.operation.query):
        case.query = {**case.query, "timeout_ms": TIMEOUT_MS_MAX}
    elif isinstance(timeout_ms, int) and timeout_ms > TIMEOUT_MS_MAX:
        case.query["timeout_ms"] = timeout_ms % TIMEOUT_MS_MAX


def be_consistent(case: Any) -> None:
    """Leaves out what parameters exclude: the answer to HEAD has no body to say so."""
    if case.method == "HEAD":
        excluded = {"read"} if {"revision", "wait_revision"} & set(case.query) else set()
        excluded |= {"wait_revision"} if "revision" in case.query else set()
        case.query = {name: value for name, value in case.query.items() if name not in excluded}


def test_every_call_of_the_document_is_tried(schema: Any) -> None:
    found = {(method.upper(), path) for path, item in schema.raw_schema["paths"].items() for method in item}
    assert found == {*CALLS, *PLAIN, *PLAIN_CHAOS, *SPOIL, LAB, *STREAMS}


@MODES
@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_call_is_as_documented(
    schema: Any, cluster: Cluster, method: str, path: str, mode: GenerationMode
) -> None:
    check(schema, cluster["b"], method, path, mode)


@pytest.mark.parametrize(("method", "path"), PLAIN)
def test_a_plain_call_is_as_documented(schema: Any, cluster: Cluster, method: str, path: str) -> None:
    check(schema, cluster["b"], method, path, GenerationMode.POSITIVE)


@pytest.fixture
def spoilt(alone: Node) -> Iterator[Node]:
    """The node of a cluster of one: chaos cannot cut it off from any other."""
    yield alone
    alone.call("DELETE", "/v1/chaos")
    alone.await_ready()


@MODES
@pytest.mark.parametrize(("method", "path"), SPOIL)
def test_to_spoil_the_network_is_as_documented(spoilt: Node, method: str, path: str, mode: GenerationMode) -> None:
    check(schema_of(spoilt), spoilt, method, path, mode)


@MODES
def test_to_kill_and_start_nodes_is_as_documented(schema: Any, cluster: Cluster, mode: GenerationMode) -> None:
    check(schema, cluster["b"], *LAB, mode)  # nobody watches these nodes: 404 at most


@pytest.mark.parametrize(("method", "path"), PLAIN_CHAOS)
def test_to_mend_the_network_is_as_documented(schema: Any, spoilt: Node, method: str, path: str) -> None:
    check(schema, spoilt, method, path, GenerationMode.POSITIVE)
