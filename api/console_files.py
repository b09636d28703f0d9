"""The console at `/`: a page of static files, which shows what the calls of the API return.

The files are read once, when the node starts. Browsers ask with an ETag whether they have changed. The content
security policy lets the page load nothing but these files, run no inline script, and talk only to the nodes of the
roster: keys and values are chosen by clients, and must never become more than text."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from importlib.resources import files
from typing import NamedTuple

from api.answers import Response, problem_response
from api.origins import origin_of
from api.problems import Problem
from api.requests import Receive, Scope, Send, headers_of, matches

PREFIX = "/console/"
_TYPES = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
}


class _File(NamedTuple):
    content: bytes
    tag: str
    kind: bytes


class ConsoleApp:
    """An ASGI application for `/` and `/console/…`."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._files = _read_files()
        origins = " ".join(sorted({origin_of(url) for url in urls}))
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            f"connect-src 'self' {origins}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        )
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cache-control", b"no-cache"),  # the browser keeps it, and asks whether it has changed
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._response(scope).send(send, with_body=scope["method"] != "HEAD")

    def _response(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return problem_response(
                Problem(405, "method_not_allowed", "The console takes GET.", headers={"Allow": "GET, HEAD"})
            )
        file = self._files.get(scope["path"])
        if file is None:
            return problem_response(
                Problem(404, "no_such_path", f"The console has no file {scope['path']}. It begins at /.")
            )
        headers = [*self._headers, (b"etag", file.tag.encode())]
        if matches(headers_of(scope, (b"if-none-match",)).get(b"if-none-match", ""), file.tag):
            return Response(304, b"", headers)
        headers += [(b"content-type", file.kind), (b"content-length", b"%d" % len(file.content))]
        return Response(200, file.content, headers)


def _read_files() -> dict[str, _File]:
    """Returns the files of the console by their path."""
    found = {}
    for entry in files("api").joinpath("console").iterdir():
        kind = _TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None:
            content = entry.read_bytes()
            tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
            found["/" if entry.name == "index.html" else PREFIX + entry.name] = _File(content, tag, kind)
    return found
