"""What the pages of history and of conflicts have in common."""

from __future__ import annotations

from fastapi.responses import Response as StarletteResponse

from api.answers import Response, to_json

LIMIT = 100
LIMIT_MAX = 1_000
PAGE_BYTES_MAX = 4 * 1_048_576
"""A page ends early when it has so many bytes."""


class Items:
    """The items of one page, as JSON."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: list[bytes] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        return len(self._items) >= self._limit or self._size >= PAGE_BYTES_MAX

    def add(self, content: object) -> None:
        item = to_json(content).encode()
        self._items.append(item)
        self._size += len(item)

    def response(self, content: dict[str, object]) -> StarletteResponse:
        """Returns the page, with these other parts of it."""
        body = b'{"items":[' + b",".join(self._items) + b"]," + to_json(content)[1:].encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        return starlette(Response(200, body, headers))


def starlette(response: Response) -> StarletteResponse:
    made = StarletteResponse(response.body, response.status)
    made.raw_headers = response.headers
    return made
