"""Which call a request is counted under, and how long it took.

Requests are counted under the template of their path, never under the path itself: keys are chosen by clients, and
every other label of a metric is a series that is kept for ever."""

from __future__ import annotations

from typing import Any

from api.requests import Scope, Send
from kvstore.node import HttpFigures

UNTIMED = "untimed"
"""The key of a request's ASGI state that is set if it waits for something to happen, as long as its client likes:
its time says nothing about the node."""

KEYS = "/v1/kv/{key}"
OTHER = "other"
"""The template of paths that no call has, and the method of requests with a method of their own."""

_METHODS = frozenset({"GET", "HEAD", "PUT", "PATCH", "DELETE", "POST", "OPTIONS"})


class NotedStatus:
    """Sends what it is given, and notes the status of the response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


class Measuring:
    """Counts the requests of one node."""

    def __init__(self, figures: HttpFigures) -> None:
        self._figures = figures
        self._keys = {method: figures.route(method, KEYS) for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE")}

    def served(self, template: str | None, scope: Scope, status: int, seconds: float) -> None:
        """Counts a request. Without a template it is that of the route which FastAPI found, if it found one."""
        if template is KEYS and scope["method"] in self._keys:
            figures = self._keys[scope["method"]]
        else:
            method = scope["method"] if scope["method"] in _METHODS else OTHER
            figures = self._figures.route(method, template or str(getattr(scope.get("route"), "path", OTHER)))
        figures.statuses[status] += 1
        if UNTIMED not in scope["state"]:
            figures.seconds.observe(seconds)

    def refused(self, code: str) -> None:
        """Counts a connection or a request that reached no call."""
        self._figures.refusals[code] += 1
