"""Whose pages may use a node: the consoles of the roster's nodes, and no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.origins import Origins, origin_of
from tests.api.cluster import Answer, Cluster, Node
from tests.ports import HOST

FRIEND = "http://friend.example:8002"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("http://a.example:80/base", "http://a.example"),
        ("https://A.example:443", "https://a.example"),
        ("https://a.example:80", "https://a.example:80"),
        ("http://[::1]:8001/", "http://[::1]:8001"),
    ],
)
def test_an_origin_is_written_as_browsers_write_it(url: str, origin: str) -> None:
    assert origin_of(url) == origin


def test_requests_without_an_origin_and_of_the_same_origin_pass() -> None:
    origins = Origins(["http://a:1"])
    for headers in ([], [(b"host", b"x:9"), (b"origin", b"http://x:9")]):
        assert origins.answer({"method": "PUT", "headers": headers}) == (None, None)


@pytest.fixture(scope="module")
def befriended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose roster has another one, at a URL of its own."""
    flags = ("--urls", f"b={FRIEND}")
    with Cluster("a", tmp_path_factory.mktemp("friend"), flags, roster="ab") as cluster:
        cluster["a"].start("--bootstrap")
        cluster["a"].await_ready("")
        yield cluster["a"]


def ask(node: Node, method: str, origin: str, path: str = "/v1/kv/k", body: bytes | None = b"x") -> Answer:
    return node.call(method, path, body, {"Origin": origin})


def test_a_console_of_the_roster_may_read_and_write(befriended: Node) -> None:
    for answer in (ask(befriended, "PUT", FRIEND), ask(befriended, "GET", FRIEND, "/v1/status", None)):
        assert answer.status in (200, 202)
        assert answer.headers["access-control-allow-origin"] == FRIEND
        assert answer.headers["vary"] == "origin"
        assert "corel-color" in answer.headers["access-control-expose-headers"]


def test_a_preflight_of_the_roster_is_answered(befriended: Node) -> None:
    answer = ask(befriended, "OPTIONS", FRIEND, "/v1/chaos", None)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == FRIEND
    assert "DELETE" in answer.headers["access-control-allow-methods"]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://friend.example", f"{FRIEND}.evil"])
def test_pages_of_other_origins_read_nothing_and_change_nothing(befriended: Node, origin: str) -> None:
    before = befriended.get_path("/v1/kv").json["items"]
    for method, path in (("PUT", "/v1/kv/stolen"), ("POST", "/v1/txn"), ("POST", "/v1/lab/nodes/a")):
        refused = ask(befriended, method, origin, path)
        assert (refused.status, refused.error) == (403, "foreign_origin")
    assert befriended.get_path("/v1/kv").json["items"] == before
    for method in ("GET", "OPTIONS"):
        answer = ask(befriended, method, origin, "/v1/status", None)
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_page_of_the_node_itself_is_served_under_any_of_its_names(befriended: Node) -> None:
    host = f"localhost:{befriended.port}"
    answer = befriended.call("PUT", "/v1/kv/k", b"x", {"Origin": f"http://{host}", "Host": host})
    assert answer.status == 202
    assert ask(befriended, "PUT", f"http://{HOST}:{befriended.port}").status == 202
