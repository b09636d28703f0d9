"""The whole API as one ASGI application: the hot calls as plain ASGI, everything else by FastAPI."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from api.answers import problem_response
from api.http_protocol import DISCONNECTED
from api.kv import KeyValueApp
from api.lists import ListApp
from api.problems import problem_of, trouble
from api.requests import BodyBudget, ClientDisconnected, Receive, Scope, Send
from api.routes import make_app
from api.slices import Turns
from api.watch import WatchApp
from corel.disk_errors import DiskError
from kvstore.node import Node
from kvstore.store import Trouble


class App:
    """The ASGI application of a node. It also answers requests that end with an exception."""

    def __init__(self, node: Node, urls: Mapping[str, str]) -> None:
        budget = BodyBudget()
        self._keys = KeyValueApp(node, budget)
        turns = Turns()
        self._lists = ListApp(node, turns)
        self._watch = WatchApp(node, turns)
        self.documented = make_app(node, budget, turns, urls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app_of(scope)(scope, receive, send)
        except ClientDisconnected:
            pass  # no answer can be sent
        except DiskError as error:
            await problem_response(problem_of(error)).send(send)
        except asyncio.CancelledError:
            if scope["state"].get(DISCONNECTED):
                return
            is_read = scope["method"] in ("GET", "HEAD")  # the node stops, and this waited too long
            with contextlib.suppress(RuntimeError, TimeoutError):  # the answer has been started already
                async with asyncio.timeout(1.0):
                    await problem_response(trouble(Trouble.AWAY if is_read else Trouble.UNDECIDED)).send(send)

    def _app_of(self, scope: Scope) -> Any:
        if scope["type"] == "http":
            if scope["path"].startswith("/v1/kv/"):
                return self._keys
            if scope["path"] == "/v1/kv":
                return self._lists
            if scope["path"] == "/v1/watch":
                return self._watch
        return self.documented
