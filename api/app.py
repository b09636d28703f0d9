"""The whole API as one ASGI application: the hot calls as plain ASGI, everything else by FastAPI."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from api.answers import problem_response
from api.console_files import PREFIX as CONSOLE
from api.console_files import ConsoleApp
from api.figures import Figures
from api.http_protocol import DISCONNECTED
from api.kv import KeyValueApp
from api.lists import PATH as LISTS
from api.lists import STREAMS_MAX, ListApp
from api.measuring import KEYS, UNTIMED, Measuring, NotedStatus
from api.origins import Origins, readable_by
from api.problems import problem_of, trouble
from api.requests import BodyBudget, ClientDisconnected, Receive, Scope, Send
from api.routes import make_app
from api.slices import Turns
from api.status_stream import PATH as STATUS_STREAM
from api.status_stream import STREAMS_MAX as STATUS_STREAMS_MAX
from api.status_stream import StatusStreamApp
from api.watch import PATH as WATCH
from api.watch import WATCHERS_MAX, WatchApp
from corel.disk_errors import DiskError
from kvstore.node import CLIENT_CLOSED, Node
from kvstore.store import Trouble

_BROKEN = 500
"""What uvicorn answers to a request that ends with an exception which nobody expected."""


class App:
    """The ASGI application of a node. It also answers requests that end with an exception, and counts all of
    them."""

    def __init__(self, node: Node, urls: Mapping[str, str], figures: Figures) -> None:
        budget = BodyBudget()
        self._keys = KeyValueApp(node, budget)
        turns = Turns()
        self._lists = ListApp(node, turns)
        self._watch = WatchApp(node, turns)
        self._status_stream = StatusStreamApp(node, urls, figures)
        self._console = ConsoleApp(urls.values())
        self._origins = Origins(urls.values())
        self._measuring = Measuring(node.metrics.http)
        node.metrics.http.queues.update(
            watchers=(lambda: node.watchers, WATCHERS_MAX),
            status_streams=(lambda: self._status_stream.streams, STATUS_STREAMS_MAX),
            list_streams=(lambda: self._lists.streams, STREAMS_MAX),
            snapshots=(lambda: len(node.snapshots), node.config.snapshots.open_max),
            body_bytes=(lambda: budget.bytes_taken, budget.bytes_max),
        )
        self.documented = make_app(node, budget, turns, urls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun_at = perf_counter()
        answer, reader = self._origins.answer(scope)
        if answer is not None:
            await answer.send(send)
            self._measuring.served(None, scope, answer.status, perf_counter() - begun_at)
            return
        if reader is not None:
            send = readable_by(reader, send)
        status: int | None = _BROKEN
        template: str | None = KEYS
        try:
            if scope["path"].startswith("/v1/kv/"):
                status = await self._serve(self._keys, scope, receive, send)
            else:
                template, app = self._app_of(scope)
                noted = NotedStatus(send)
                await self._serve(app, scope, receive, noted)
                status = noted.status
        finally:
            self._measuring.served(template, scope, status or CLIENT_CLOSED, perf_counter() - begun_at)

    def refused(self, code: str) -> None:
        """Counts what the HTTP protocol refused before it became a request."""
        self._measuring.refused(code)

    async def _serve(self, app: Any, scope: Scope, receive: Receive, send: Any) -> int | None:
        """Has the request served, and returns the status if it is known: that of a response to a key is."""
        try:
            status: int | None = await app(scope, receive, send)
            return status
        except ClientDisconnected:
            return None  # no answer can be sent
        except DiskError as error:
            response = problem_response(problem_of(error))
            await response.send(send)
            return response.status
        except asyncio.CancelledError:
            if scope["state"].get(DISCONNECTED):
                return None
            is_read = scope["method"] in ("GET", "HEAD")  # the node stops, and this waited too long
            response = problem_response(trouble(Trouble.AWAY if is_read else Trouble.UNDECIDED))
            with contextlib.suppress(RuntimeError, TimeoutError):  # the answer has been started already
                async with asyncio.timeout(1.0):
                    await response.send(send)
            return response.status

    def _app_of(self, scope: Scope) -> tuple[str | None, Any]:
        """Returns the application for a path, and the template of the path if it has one that is known here."""
        if scope["path"] == LISTS:
            return LISTS, self._lists
        if scope["path"] == WATCH:
            scope["state"][UNTIMED] = True
            return WATCH, self._watch
        if scope["path"] == STATUS_STREAM:
            scope["state"][UNTIMED] = True
            return STATUS_STREAM, self._status_stream
        if scope["path"] == "/" or scope["path"].startswith(CONSOLE):
            return CONSOLE, self._console
        return None, self.documented
