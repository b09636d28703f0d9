"""The HTTP client of the `corelkv` command, against servers made for each test."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import unquote

import pytest

from kvstore.client import Client, ClientError, Request, Unreachable, key_path


class Handler(BaseHTTPRequestHandler):
    """Answers every request with a description of it."""

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        asked = {
            "method": self.command,
            "target": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": self.rfile.read(length).decode(),
        }
        content = json.dumps(asked).encode()
        self.send_response(409 if "refuse" in self.path else 200)
        self.send_header("X-Seen", "yes")
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def rude(hold: bool) -> Iterator[str]:
    """A server that takes one request and closes the connection, or holds it open without an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []

        def accept() -> None:
            connection, _ = listener.accept()
            connection.recv(65_536)
            if hold:
                taken.append(connection)
            else:
                connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
        for connection in taken:
            connection.close()


@pytest.fixture
def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_request_arrives_as_it_was_made(url: str) -> None:
    request = Request("PUT", key_path("a/b"), {"ack": "red"}, {"If-Match": '"17"'}, b"value")
    reply = Client([url]).send(request)
    asked = reply.json()
    assert (reply.status, reply.headers["x-seen"], reply.url) == (200, "yes", url)
    assert (asked["method"], asked["target"], asked["body"]) == ("PUT", "/v1/kv/a%2Fb?ack=red", "value")
    assert asked["headers"]["if-match"] == '"17"'


@pytest.mark.parametrize("key", ["a", "a/b", "/", "..", ".", "a b", "ä?#%2F&=+", "..\n\x00", "日本語", "a/../b"])
def test_keys_are_encoded_completely(key: str) -> None:
    path = key_path(key)
    encoded = path.removeprefix("/v1/kv/")
    assert unquote(encoded) == key
    assert not set(encoded) & set("/?#&+ \n")
    assert encoded not in (".", "..")


def test_a_url_may_have_a_path(url: str) -> None:
    assert Client([f"{url}/behind/"]).send(Request("GET", "/livez")).json()["target"] == "/behind/livez"


def test_of_several_nodes_the_first_that_can_be_reached_is_asked(url: str, nobody: str) -> None:
    assert Client([nobody, url]).send(Request("PUT", "/x", body=b"")).url == url


def test_nobody_there_is_a_sentence_that_names_all(nobody: str) -> None:
    with pytest.raises(Unreachable, match=rf"cannot reach {nobody} \(Connection refused\)"):
        Client([nobody]).send(Request("GET", "/v1/status"))


def test_an_unknown_host_is_a_sentence() -> None:
    with pytest.raises(Unreachable, match=r"cannot reach http://nowhere\.invalid:1"):
        Client(["http://nowhere.invalid:1"]).send(Request("GET", "/"))


def test_a_write_that_may_have_arrived_is_not_sent_to_another_node(url: str) -> None:
    with rude(hold=False) as first, pytest.raises(Unreachable, match="whether it accepted the write is not known"):
        Client([first, url]).send(Request("PUT", "/v1/kv/a", body=b"1"))


@pytest.mark.parametrize(
    "request_", [Request("GET", "/v1/kv/a"), Request("PUT", "/v1/kv/a", {}, {"Idempotency-Key": "k"}, b"1")]
)
def test_a_read_or_an_idempotent_write_is(url: str, request_: Request) -> None:
    with rude(hold=False) as first:
        assert Client([first, url]).send(request_).url == url


def test_a_silent_node_is_not_waited_for_without_end() -> None:
    with rude(hold=True) as silent, pytest.raises(Unreachable, match="it took too long"):
        Client([silent]).send(Request("GET", "/", answer_seconds=0.05))


def test_an_answer_that_says_no_has_a_message(url: str) -> None:
    reply = Client([url]).send(Request("GET", "/refuse"))
    assert not reply.is_success
    assert reply.message.startswith(f"{url} answered 409")


def test_a_header_that_cannot_be_sent_is_explained(url: str) -> None:
    with pytest.raises(ClientError, match="cannot send that"):
        Client([url]).send(Request("PUT", "/", {}, {"Idempotency-Key": "a\nb"}))


@pytest.mark.parametrize("wrong", ["127.0.0.1:8001", "ftp://a", "http://", "http://a:99999", "http://[::1"])
def test_a_wrong_url_is_explained(wrong: str) -> None:
    with pytest.raises(ClientError, match="is not a URL like http"):
        Client([wrong])
