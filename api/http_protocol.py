"""uvicorn's HTTP/1.1 protocol, with bounds on the time and the bytes that a connection may take."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

CONNECTIONS_MAX = 4_096
HEADER_SECONDS = 10.0
"""How long a client may take to send a request's headers."""
IDLE_SECONDS = 75.0
"""How long a connection may be idle between requests, or before the first."""
BODY_SECONDS = 30.0
"""How long a client may take to send a body."""
READ_SECONDS = 30.0
"""How long a client may leave an answer unread if it does not fit into the buffers."""
HEADER_BYTES_MAX = 65_536
DISCONNECTED = "disconnected"
"""The key of a request's ASGI state that is set when its client has closed the connection."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """Closes connections that are too slow or send too much, and cancels the request of a client that
    disconnects."""

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
            self.cycle.scope["state"][DISCONNECTED] = True
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
        if was_in_headers and self._is_in_headers:  # also counts a header that never ends
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
        else:  # a trailer after the body is not used, but it counts
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
        if self._is_in_message and self._deadline is None:  # answered before the whole body arrived
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
        self._refuse(400, "invalid_http", "This is not a request in HTTP/1.1.")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["method"] != "HEAD":
            cycle.transport = _HeadWithBody(cycle)  # type: ignore[assignment]
        self._task = self.loop.create_task(cycle.run_asgi(app))
        self._task.add_done_callback(self.tasks.discard)
        self.tasks.add(self._task)

    def _expect(self, seconds: float | None) -> None:
        """Sets the deadline for what the client has to send next, after which the connection is closed; None
        removes it."""
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
            self.transport.close()  # there is no request to answer

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._expect(None)
        self.app.refused(code)
        is_body = self._is_in_message and not self._is_in_headers
        if self.pipeline or (self.cycle is not None and not self.cycle.response_complete and not is_body):
            # An earlier request is not answered yet: this would be taken for its answer.
            self.cycle.keep_alive = False
            self.flow.pause_reading()
            return
        body = json.dumps({"error": code, "message": message}).encode()
        head = f"HTTP/1.1 {status} {code}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        if status == 503:
            head += "retry-after: 1\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()


class _HeadWithBody:
    """The transport of one request, which holds the head of the response back until the body follows: every write
    is a system call, a segment and a wake-up of the client."""

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
