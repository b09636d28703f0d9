"""The HTTP server: uvicorn on the node's own event loop, with bounds on what a connection may take."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from api.answers import problem_response
from api.kv import KeyValueApp
from api.problems import problem_of, trouble
from api.requests import Gone, Receive, Room, Scope, Send
from api.routes import make_app
from corel.store import StoreError
from kvstore.machine import Trouble
from kvstore.service import Service
from transport.udp import Address

CONNECTIONS_MAX = 4_096
HEADER_SECONDS = 10.0
"""How long a client may take to send a request's headers."""
IDLE_SECONDS = 75.0
"""How long a connection may lie idle between requests, or before the first."""
BODY_SECONDS = 30.0
"""How long a client may take to send a body."""
READ_SECONDS = 30.0
"""How long a client may leave an answer unread that does not fit the buffers."""
HEADER_BYTES_MAX = 65_536
STOP_SECONDS = 5
"""How long requests under way may go on when the node stops."""
ANSWER_SECONDS = 3.0
"""Those who still wait then are told that they wait for nothing."""
HUNG_UP = "hung_up"


class ServerError(Exception):
    """The server cannot start. The message says what to do."""


class App:
    """The whole API: the hot calls as plain ASGI, everything else by FastAPI."""

    def __init__(self, service: Service, urls: Mapping[str, str], with_chaos: bool) -> None:
        room = Room()
        self._keys = KeyValueApp(service, room)
        self.documented = make_app(service, room, urls, with_chaos)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_key = scope["type"] == "http" and scope["path"].startswith("/v1/kv/")
        app = self._keys if is_key else self.documented
        try:
            await app(scope, receive, send)  # type: ignore[arg-type]
        except Gone:
            pass  # there is nobody to answer
        except StoreError as error:
            await problem_response(problem_of(error)).send(send)
        except asyncio.CancelledError:
            if scope["state"].get(HUNG_UP):
                return
            is_read = scope["method"] in ("GET", "HEAD")  # the node stops, and this waited for too long
            with contextlib.suppress(RuntimeError, TimeoutError):  # it is being answered already
                async with asyncio.timeout(1.0):
                    await problem_response(trouble(Trouble.AWAY if is_read else Trouble.UNDECIDED)).send(send)


class PatientProtocol(HttpToolsProtocol):
    """Cuts off clients that send too slowly or too much, and stops waiting for those who have hung up."""

    _deadline: asyncio.TimerHandle | None = None
    _is_in_message = False
    _is_in_headers = False
    _header_bytes = 0
    _task: asyncio.Task[None] | None = None
    _write_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            self._refuse(503, "too_many_connections", "This node has too many connections. Try another node.")
            return
        self._expect(IDLE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        if self._write_deadline is not None:
            self._write_deadline.cancel()
        if self._task is not None and not self._task.done() and self.cycle is not None:
            self.cycle.scope["state"][HUNG_UP] = True
            self._task.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_headers = self._is_in_headers
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not self._is_in_message:
            self._expect(None)
            return
        if was_in_headers and self._is_in_headers:  # all of it, so headers that never end count too
            self._header_bytes += len(data)
        if self._header_bytes > HEADER_BYTES_MAX:
            self._refuse(431, "headers_too_large", f"Headers have at most {HEADER_BYTES_MAX:,} bytes.")
        elif self._is_in_headers:
            if not was_in_headers:
                self._expect(HEADER_SECONDS)
        elif was_in_headers or self._deadline is None:
            self._expect(BODY_SECONDS)

    def on_message_begin(self) -> None:
        self._is_in_message = self._is_in_headers = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_headers:
            super().on_header(name, value)
        else:  # what comes after the body nobody reads
            self._header_bytes += len(name) + len(value)

    def on_headers_complete(self) -> None:
        self._is_in_headers = False
        self._header_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_message = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_message and self._deadline is None:  # answered before all of it was here
            self._expect(BODY_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "invalid_http", "This is not a request of HTTP/1.1.")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["method"] != "HEAD":
            cycle.transport = _HeadWithBody(cycle)  # type: ignore[assignment]
        self._task = self.loop.create_task(cycle.run_asgi(app))
        self._task.add_done_callback(self.tasks.discard)
        self.tasks.add(self._task)

    def _expect(self, seconds: float | None) -> None:
        """Something by then, or the connection is closed."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is not None and self._is_in_message and not self._is_in_headers:
            if self.cycle.response_started:
                self.transport.close()
            else:
                self._refuse(408, "body_timeout", "The body did not arrive in time. Nothing was accepted.")
        elif self._is_in_headers:
            self._refuse(408, "headers_timeout", "The request did not arrive in time.")
        else:
            self.transport.close()  # nothing was asked

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._expect(None)
        is_body = self._is_in_message and not self._is_in_headers
        if self.pipeline or (self.cycle is not None and not self.cycle.response_complete and not is_body):
            # An earlier request is not answered yet: this would be taken for its answer.
            self.cycle.keep_alive = False
            self.flow.pause_reading()
            return
        body = json.dumps({"error": code, "message": message}).encode()
        head = f"HTTP/1.1 {status} {code}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()


class _HeadWithBody:
    """A cycle's transport that holds the head of its answer back until the body follows: every write is a system
    call, a segment and a wakening of the client."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._head: bytes | None = None
        self._has_head_left = False
        self.is_closing = cycle.transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head is not None:
            self._transport.write(self._take_head() + data)
        elif self._has_head_left or not self._cycle.response_started:
            self._transport.write(data)
        else:
            self._head = data

    def close(self) -> None:
        if self._head is not None:
            self._transport.write(self._take_head())
        self._transport.close()

    def _take_head(self) -> bytes:
        head, self._head, self._has_head_left = self._head, None, True
        return head or b""


class _Server(uvicorn.Server):
    """Signals are the node's business."""

    def capture_signals(self) -> Any:
        return contextlib.nullcontext()


def listen(http: Address) -> socket.socket:
    """The socket to serve on. Raises `ServerError`."""
    host, port = http
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1_024)
    except OSError as error:
        listener.close()
        raise ServerError(
            f"cannot serve HTTP on {host}:{port}: {error.strerror}. Choose another address with --http."
        ) from None
    return listener


async def serve(
    service: Service, listener: socket.socket, urls: Mapping[str, str], with_chaos: bool, stop: asyncio.Event
) -> None:
    """Answers requests until `stop` is set, and those under way after that."""
    config = uvicorn.Config(
        App(service, urls, with_chaos),
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(IDLE_SECONDS),
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    server = _Server(config)

    async def end() -> None:
        await stop.wait()
        server.should_exit = True
        await asyncio.sleep(ANSWER_SECONDS)
        service.leave()

    ending = asyncio.create_task(end())
    try:
        await server.serve(sockets=[listener])
    finally:
        ending.cancel()
