"""Which pages of browsers may use this node: its own console, and those of the roster's other nodes.

A console opened at one node asks the others too, which browsers allow only if these say so (CORS). Nodes say so to
the origins of the roster's URLs and to no other. A page of any other origin can read nothing here, and its
requests that could change something are refused: browsers send some of them without asking first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from api.answers import Response, problem_response
from api.problems import Problem
from api.requests import Scope, Send

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, HEAD, PUT, PATCH, POST, DELETE"),
    (
        b"access-control-allow-headers",
        b"accept, content-type, if-match, if-none-match, idempotency-key, last-event-id",
    ),
    (b"access-control-max-age", b"600"),
]
_EXPOSED = (
    b"access-control-expose-headers",
    b"etag, location, retry-after, corel-color, corel-revision",
)


def origin_of(url: str) -> str:
    """Returns the origin of a URL as browsers write it: without the path, and without a port that is the usual
    one."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    port = parts.port
    suffix = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    return f"{parts.scheme}://{host}{suffix}"


class Origins:
    """The origins whose pages may use this node."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._allowed = frozenset(origin_of(url).encode() for url in urls)

    def answer(self, scope: Scope) -> tuple[Response | None, bytes | None]:
        """Returns the response to a request that needs nothing more, and the origin that may read the response to
        any other request; None for a request that no page of another origin has made."""
        origin = host = None
        for name, value in scope.get("headers", ()):
            if name == b"origin":
                origin = value
            elif name == b"host":
                host = value
        if origin is None or origin.partition(b"://")[2] == host:
            return None, None
        if origin not in self._allowed:
            return (None if scope["method"] in _SAFE_METHODS else _refusal()), None
        if scope["method"] == "OPTIONS":
            return Response(204, b"", [*_reader(origin), *_PREFLIGHT]), None
        return None, origin


def _refusal() -> Response:
    return problem_response(
        Problem(
            403,
            "foreign_origin",
            "A page of another origin asks for this, and only consoles of this cluster's nodes may. Nothing was "
            "accepted. Open the console at a URL that the nodes know (--urls), or use another client.",
        )
    )


def _reader(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin), (b"vary", b"origin")]


def readable_by(origin: bytes, send: Send) -> Send:
    """Returns a `send` that lets pages of this origin read the response."""

    async def send_readable(message: Mapping[str, object]) -> None:
        if message["type"] == "http.response.start":
            headers = message.get("headers", ())
            assert isinstance(headers, Iterable)
            message = {**message, "headers": [*headers, *_reader(origin), _EXPOSED]}
        await send(message)

    return send_readable
