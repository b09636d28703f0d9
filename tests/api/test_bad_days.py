"""Clients that send invalid requests, disconnect, are slow or are many: the node copes, and serves the others."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.api.cluster import Cluster, Node, received

MIB = 1_048_576
HASTE = """
import api.http_protocol, api.requests, api.server
api.http_protocol.BODY_SECONDS = 0.5
api.requests.BodyBudget.__init__.__defaults__ = (1_200_000,)
api.http_protocol.HEADER_SECONDS = 0.5
api.http_protocol.IDLE_SECONDS = api.server.IDLE_SECONDS = 1.0
"""
SLOW_SECONDS = 5.0
"""More than a node with short timeouts takes to close the connection of a slow client."""


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with short timeouts and a small budget for bodies."""
    with Cluster("a", tmp_path_factory.mktemp("hasty"), prelude=HASTE) as cluster:
        yield cluster.start()["a"]


def head_of(key: str, *headers: str, method: str = "PUT") -> bytes:
    return "\r\n".join([f"{method} /v1/kv/{key} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def status_of(answer: bytes) -> int:
    return int(answer.split()[1]) if answer else 0


def first_status(client: socket.socket) -> int:
    """Returns the status of the first answer, or 0 if there is none; what follows is not read."""
    client.settimeout(SLOW_SECONDS)
    with contextlib.suppress(ConnectionError):
        return status_of(client.recv(65_536))
    return 0


# Requests that make no sense


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("path", "code"),
    [
        *[("/v1/kv/", "empty_key"), ("/v1/kv/?read=green", "empty_key")],
        *[(f"/v1/kv/{key}", "invalid_percent_encoding") for key in ("%", "a%2", "%zz", "%%41", "%-1")],
        *[(f"/v1/kv/{key}", "invalid_key") for key in ("%ff", "%c3", "%ed%a0%80", "%c0%af", "%f5%80%80%80")],
        ("/v1/kv/" + "k" * 481, "key_too_large"),
        ("/v1/kv/" + "%41" * 481, "key_too_large"),
    ],
    ids=lambda part: part[:24],
)
def test_a_key_that_is_none_is_refused(node: Node, method: str, path: str, code: str) -> None:
    refused = node.call(method, path, b"x" if method == "PUT" else None)
    assert refused.status == 400
    if method != "HEAD":
        assert refused.error == code


@pytest.mark.parametrize(
    "query",
    [
        *(
            "x=1",
            "ACK=green",
            "ack=",
            "ack=blue",
            "ack=green&ack=green",
            "timeout_ms=",
            "timeout_ms=-1",
            "read=green",
        ),
        *(
            "timeout_ms=1.5",
            "timeout_ms=600001",
            "timeout_ms=1_0",
            "timeout_ms=٣",
            "timeout_ms=%201",
            "%",
            "a%ff=1",
        ),
        *("timeout_ms=99999999999999999999999", "ack=green%00", "=", "ack"),
    ],
)
def test_a_write_with_parameters_that_make_no_sense_is_refused(node: Node, key: str, query: str) -> None:
    encoded = query.replace("٣", "%D9%A3")
    for refused in (node.put(key, "x", f"?{encoded}"), node.delete(key, f"?{encoded}")):
        assert refused.status == 400
        assert refused.error in ("unknown_parameter", "invalid_parameter", "invalid_percent_encoding")
    assert node.get(key, "?read=red").status == 404


@pytest.mark.parametrize(
    "query",
    [
        "read=blue",
        "read=",
        "read=red&read=red",
        "min_revision=-1",
        "min_revision=9223372036854775808",
        "ack=green",
    ],
)
def test_a_read_with_parameters_that_make_no_sense_is_refused(node: Node, key: str, query: str) -> None:
    node.put(key, "x")
    refused = node.get(key, f"?{query}")
    assert refused.status == 400
    assert refused.error in ("unknown_parameter", "invalid_parameter")
    assert node.head(key, f"?{query}").status == 400


@pytest.mark.parametrize(
    "request_bytes",
    [
        *(b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n"),
        *(b"GET /v1/kv/a b HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n"),
        *(
            b"PUT /v1/kv/k HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"PUT /v1/kv/k HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        ),
        b"PUT /v1/kv/k HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PUT /v1/kv/k HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        b"PUT /v1/kv/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_refused(node: Node, request_bytes: bytes) -> None:
    answer = node.raw(request_bytes)
    assert status_of(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b'"error": "invalid_http"' in answer
    assert node.get_path("/livez").status == 200


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "Idempotency-Key", "Content-Type"])
def test_a_header_given_twice_is_refused(node: Node, key: str, header: str) -> None:
    answer = node.raw(head_of(key, f"{header}: *", f"{header}: *", "Content-Length: 0", "Connection: close"))
    assert status_of(answer) == 400
    assert node.get(key).status == 404


def test_an_idempotency_key_given_twice_to_a_transaction_is_refused(node: Node) -> None:
    lines = ("Idempotency-Key: one", "Idempotency-Key: two", "Content-Length: 11", "Connection: close", "", "")
    answer = node.raw("\r\n".join(["POST /v1/txn HTTP/1.1", "Host: x", *lines]).encode() + b'{"then":[]}')
    assert status_of(answer) == 400


def test_headers_are_bounded(node: Node, key: str) -> None:
    assert status_of(node.raw(head_of(key, "X: " + "x" * 60_000, "Connection: close", method="GET"))) == 404
    with node.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                client.sendall(b"X: " + b"x" * 10_000 + b"\r\n")
        assert status_of(received(client)) in (0, 431)  # 0 if it hung up while we were sending
    assert node.get_path("/livez").status == 200


def test_headers_after_a_chunked_body_are_bounded_too(node: Node, key: str) -> None:
    with node.connect() as client:
        client.settimeout(SLOW_SECONDS)
        client.sendall(head_of(key, "Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                client.sendall(b"X: " + b"x" * 10_000 + b"\r\n")
        assert status_of(received(client)) in (0, 400, 413, 431)  # 0 if it hung up while we were sending
    assert node.get(key, "?read=red").status == 404


def test_a_target_may_be_absolute_and_requests_may_follow_each_other_at_once(node: Node, key: str) -> None:
    one = head_of(key, "Content-Length: 3") + b"one"
    two = f"GET http://x/v1/kv/{key}?read=linearizable HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    three = head_of(key, "Connection: close", method="DELETE")
    answers = node.raw(one + two + three).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200"] * 3
    assert answers[1].endswith(b"one")
    assert node.get(key).status == 404


def test_a_client_that_waits_for_leave_to_send_gets_it(node: Node, key: str) -> None:
    with node.connect() as client:
        client.sendall(head_of(key, "Content-Length: 2", "Expect: 100-continue", "Connection: close"))
        assert client.recv(1_000).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"ok")
        assert status_of(received(client)) == 200
    assert node.get(key).body == b"ok"


# Clients that hang up


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (("Content-Length: 100",), b"x" * 50),
        (("Content-Length: 100",), b""),
        (("Transfer-Encoding: chunked",), b"3\r\nabc\r\n"),
    ],
)
def test_a_body_that_ends_too_soon_is_not_accepted(
    node: Node, key: str, headers: tuple[str, ...], body: bytes
) -> None:
    for method in ("PUT", "PATCH", "DELETE"):
        with node.connect() as client:
            client.sendall(head_of(key, *headers, method=method) + body)
            time.sleep(0.05)
    time.sleep(0.2)
    assert node.get(key, "?read=linearizable").status == 404
    assert node.get(key, "?read=red").status == 404


def test_who_does_not_wait_for_the_answer_has_written_nevertheless(node: Node, key: str) -> None:
    with node.connect() as client:
        client.sendall(head_of(key, "Content-Length: 1") + b"x")
        time.sleep(0.05)
    with node.connect() as client:
        client.sendall(head_of(key, method="GET") + b"")
    assert node.get(key, "?read=linearizable").body == b"x"


def test_who_does_not_read_holds_up_nobody(node: Node, key: str) -> None:
    node.put(key, bytes(1_000_000))
    with node.connect() as client:
        client.sendall(head_of(key, method="GET") * 200)
        for number in range(20):
            assert node.put(f"{key}/{number}", "x").status == 200
    assert node.get_path("/livez").status == 200


def test_those_who_wait_long_and_hang_up_are_forgotten(alone: Node) -> None:
    alone.get("k", f"?min_revision={2**60}&timeout_ms=0")
    before = memory_of(alone)
    for _ in range(2_000):
        with alone.connect() as client:
            client.sendall(head_of(f"k?min_revision={2**60}&timeout_ms=600000", method="GET"))
    assert alone.get_path("/livez").status == 200
    assert memory_of(alone) - before < 10 * MIB


def memory_of(node: Node) -> int:
    assert node.process is not None
    pages = Path(f"/proc/{node.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


# Clients that are slow


def test_headers_that_come_too_slowly_are_cut_off(hasty: Node, key: str) -> None:
    started = time.monotonic()
    answer = hasty.raw(head_of(key, method="GET")[:-2])
    assert (status_of(answer), b'"headers_timeout"' in answer) == (408, True)
    assert time.monotonic() - started < SLOW_SECONDS


def test_headers_that_come_byte_by_byte_are_cut_off(hasty: Node, key: str) -> None:
    request = head_of(key, "X: " + "x" * 1_000, method="GET")
    with hasty.connect() as client, contextlib.suppress(ConnectionError):
        started = time.monotonic()
        for place in range(len(request)):
            client.sendall(request[place : place + 1])
            time.sleep(0.05)
            assert time.monotonic() - started < SLOW_SECONDS


@pytest.mark.parametrize("body", [b"", b"x"], ids=["nothing", "a part"])
@pytest.mark.parametrize("header", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_a_body_that_comes_too_slowly_is_cut_off(hasty: Node, key: str, header: str, body: bytes) -> None:
    part = b"1\r\n" + body if "chunked" in header and body else body
    with hasty.connect() as client:
        client.settimeout(SLOW_SECONDS)
        client.sendall(head_of(key, header) + part)
        answer = received(client)
    assert (status_of(answer), b'"body_timeout"' in answer) == (408, True)
    assert hasty.get(key, "?read=red").status == 404


def test_a_body_that_comes_byte_by_byte_is_cut_off(hasty: Node, key: str) -> None:
    with hasty.connect() as client:
        client.sendall(head_of(key, "Content-Length: 1000"))
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - started < SLOW_SECONDS:
                client.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - started < SLOW_SECONDS
    assert hasty.get(key, "?read=red").status == 404


@pytest.mark.parametrize("path", ["/v1/txn", "/v1/chaos"])
def test_the_body_of_another_call_is_cut_off_too(hasty: Node, path: str) -> None:
    method = "POST" if path == "/v1/txn" else "PUT"
    with hasty.connect() as client:
        client.settimeout(SLOW_SECONDS)
        client.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert status_of(received(client)) == 408


@pytest.mark.parametrize("part", [b"", b"x"], ids=["nothing", "a part"])
def test_a_connection_whose_request_was_answered_before_its_body_came_is_closed(
    hasty: Node, key: str, part: bytes
) -> None:
    with hasty.connect() as client:
        client.sendall(head_of(f"{key}?x=1", "Content-Length: 5"))
        assert first_status(client) == 400
        client.sendall(part)
        assert b"HTTP/1.1 " not in received(client)  # what is left of the answer, and then the end


@pytest.mark.parametrize("is_first", [True, False])
def test_an_idle_connection_is_closed(hasty: Node, is_first: bool) -> None:
    with hasty.connect() as client:
        client.settimeout(SLOW_SECONDS)
        if not is_first:
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status_of(received(client)) == (0 if is_first else 200)  # nothing asked, nothing answered


# Clients that are many


def test_bodies_that_are_coming_take_no_more_than_there_is_room_for_and_give_it_back(
    hasty: Node, key: str
) -> None:
    for _ in range(3):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(hasty.connect()) for _ in range(6)]
            for client in clients:
                with contextlib.suppress(ConnectionError):
                    client.sendall(head_of(key, "Content-Length: 500000") + bytes(400_000))
            statuses = [first_status(client) for client in clients]
        assert 429 in statuses
        assert set(statuses) <= {0, 408, 429}  # 0 if it hung up while we were sending
    assert hasty.put(key, bytes(1_000_000)).status == 200


def test_a_connection_too_many_is_told_when_to_try_again(tmp_path: Path) -> None:
    few = "import api.http_protocol; api.http_protocol.CONNECTIONS_MAX = 3"
    with Cluster("a", tmp_path, prelude=few) as cluster, contextlib.ExitStack() as stack:
        node = cluster.start()["a"]
        for _ in range(10):
            client = stack.enter_context(node.connect())
        answer = received(client)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split(b"\r\n")[0] == b"HTTP/1.1 503 too_many_connections"
        assert b"retry-after: 1" in head.split(b"\r\n")
        assert json.loads(body)["error"] == "too_many_connections"
        assert int(head.lower().partition(b"content-length: ")[2].split()[0]) == len(body)


def test_a_thousand_idle_connections_hold_up_nobody(cluster: Cluster, key: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4_096)), hard))
    node = cluster["b"]
    with contextlib.ExitStack() as stack:
        idle: list[socket.socket] = [stack.enter_context(node.connect()) for _ in range(1_000)]
        assert node.put(key, "x").status == 200
        for client in idle:
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
        assert node.get(key, "?read=linearizable").body == b"x"
        for client in idle[::100]:
            client.sendall(b"Connection: close\r\n\r\n")
            assert status_of(received(client)) == 200
    assert node.put(key, "y").status == 200


def test_many_writers_of_one_counter_are_all_counted(cluster: Cluster, key: str) -> None:
    def write(number: int) -> int:
        return cluster["abc"[number % 3]].patch(key, {"increment": 1}).status

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(write, range(240))) == {200}
    assert cluster["a"].get(key, "?read=linearizable").body == b"240"
