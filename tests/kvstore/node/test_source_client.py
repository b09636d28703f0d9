"""The HTTP calls of a node that learns, to sources that answer well, badly or not at all."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kvstore.node import source_client
from kvstore.node.learning import SnapshotGone, SourceError
from kvstore.node.source_client import SourceClient


class Source:
    """An HTTP server that answers every call with the same, and remembers what it was asked."""

    def __init__(self) -> None:
        self.status, self.body = 200, b""
        self.asked: list[str] = []
        source = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                source.asked.append(f"{self.command} {self.path}")
                self.send_response(source.status)
                self.send_header("Content-Length", str(len(source.body)))
                self.end_headers()
                self.wfile.write(source.body)

            do_GET = do_POST = do_DELETE = _answer

            def log_message(self, format: str, *arguments: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def refuse(self, status: int, message: str) -> None:
        self.status, self.body = status, json.dumps({"error": "x", "message": message}).encode()


@pytest.fixture
def source() -> Iterator[Source]:
    made = Source()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def client(source: Source) -> Iterator[SourceClient]:
    made = SourceClient(source.url)
    yield made
    made.close()


def test_a_snapshot_is_opened_fetched_and_closed(source: Source, client: SourceClient) -> None:
    source.status, source.body = 201, b'{"id": "5f", "header": "AAEC"}'
    assert client.open() == ("5f", b"\0\1\2")
    source.status, source.body = 200, b"a part"
    parts = (client.chunk("5f", "items", b"\xfb\xff"), client.tail("5f", 7), client.log(9))
    assert parts == (b"a part",) * 3
    client.forget("5f")
    assert source.asked == [
        "POST /v1/snapshots",
        "GET /v1/snapshots/5f/items?after=-_8",
        "GET /v1/snapshots/5f/tail?from=7",
        "GET /v1/snapshots/log?from=9",
        "DELETE /v1/snapshots/5f",
    ]


@pytest.mark.parametrize("status", [404, 410])
def test_a_snapshot_or_messages_that_are_gone_are_said_to_be(
    source: Source, client: SourceClient, status: int
) -> None:
    source.refuse(status, "No snapshot 5f is open here.")
    with pytest.raises(SnapshotGone, match=rf"it refuses \({status}\): No snapshot 5f is open here$"):
        client.chunk("5f", "items", b"")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_refusal_is_told_in_the_words_of_the_source(source: Source, client: SourceClient, status: int) -> None:
    source.refuse(status, "4 snapshots of this node are open already.")
    with pytest.raises(SourceError, match="4 snapshots of this node are open already") as caught:
        client.open()
    assert not isinstance(caught.value, SnapshotGone)


@pytest.mark.parametrize("status", [401, 407])
def test_a_proxy_that_asks_for_a_password_is_said_to_be_one(
    source: Source, client: SourceClient, status: int
) -> None:
    source.status, source.body = status, b"<html>401 Authorization Required</html>"
    with pytest.raises(SourceError, match="asks for a password, and nodes send none: set node_urls"):
        client.open()


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"id": "5f"}', b'{"id": "5f", "header": "%"}'])
def test_an_answer_that_is_not_a_nodes_is_an_error_of_the_source(
    source: Source, client: SourceClient, body: bytes
) -> None:
    source.body = body
    with pytest.raises(SourceError, match="makes no sense"):
        client.open()


def test_an_answer_without_end_is_cut_off(
    source: Source, client: SourceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_client, "FRAME_BYTES_MAX", 10)
    source.body = bytes(11)
    with pytest.raises(SourceError, match="more than 10 bytes"):
        client.log(0)


def test_a_source_that_does_not_listen_or_hangs_up_is_an_error(source: Source) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = SourceClient(f"http://127.0.0.1:{listener.getsockname()[1]}")
        hanging_up = threading.Thread(target=lambda: listener.accept()[0].close())
        hanging_up.start()
        with pytest.raises(SourceError, match="it cannot be reached at"):
            client.open()
        hanging_up.join()
    with pytest.raises(SourceError, match="refused"):
        client.open()


def test_a_call_under_way_can_be_ended(source: Source) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = SourceClient(f"http://127.0.0.1:{listener.getsockname()[1]}")
        errors: list[str] = []

        def call() -> None:
            try:
                client.log(0)
            except SourceError as error:
                errors.append(str(error))

        calling = threading.Thread(target=call)
        calling.start()
        connection, _ = listener.accept()
        with connection:
            connection.recv(1)  # the request has left
            client.abort()
            calling.join(5.0)
    assert errors
    assert not calling.is_alive()


class Vanishing:
    """A connection that another thread closes between two looks at its socket."""

    def __init__(self, first: socket.socket) -> None:
        self._found: list[socket.socket | None] = [first]

    @property
    def sock(self) -> socket.socket | None:
        return self._found.pop() if self._found else None

    def close(self) -> None: ...


def test_a_call_that_has_just_ended_by_itself_can_be_ended(client: SourceClient) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client._connection = Vanishing(ours)  # type: ignore[assignment]
        client.abort()
        assert theirs.recv(1) == b"", "the connection is shut down"


def test_after_that_no_other_call_is_made(source: Source, client: SourceClient) -> None:
    client.abort()
    with pytest.raises(SourceError, match="the call has been ended"):
        client.log(0)
    assert source.asked == []
