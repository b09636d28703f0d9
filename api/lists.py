"""`GET /v1/kv`: lists of keys, as pages that belong together, as a count, or as a stream. Plain ASGI, like `kv`;
`lists_openapi` describes it for the OpenAPI document.

All pages of a list are of one revision, which its cursor carries to any node. A stream is one list without pages.
Lists of the red state have no revision that they could be of: a page begins after the last key of the one
before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from api.answers import Response, json_response, problem_response, quoted, text_or_base64, to_json
from api.cursors import Cursor, Kind, Query, decode_cursor, encode_cursor
from api.http_protocol import DISCONNECTED
from api.pages import LIMIT, LIMIT_MAX, PAGE_BYTES_MAX
from api.problems import Problem, problem_of, trouble
from api.reads import Read, past_revision, wait_for
from api.requests import BodyBudget, Receive, Scope, Send, choice, flag, number, parameters, timeout_ms
from api.slices import SlicedScan, Turns
from corel import Color
from corel.disk_errors import DiskError
from kvstore.node import Node
from kvstore.store import NUMBER_MAX, Compacted, Item, Overloaded, Snapshot, Span, Trouble, span_of

PATH = "/v1/kv"
PAGES_BYTES_MAX = 128 * 1_048_576
"""The most bytes that all pages being made or sent may take together."""
STREAMS_MAX = 64
"""Most streams at the same time: each keeps a part of the past from being forgotten."""
PART_BYTES = 65_536
"""How much is sent at a time, so that a client that reads slowly costs no more than it asked for."""

_PARAMETERS = (
    *("prefix", "start", "end", "reverse", "limit", "cursor", "keys_only", "count_only"),
    *("read", "revision", "min_revision", "timeout_ms"),
)
_NDJSON = "application/x-ndjson"


class ListQuery(NamedTuple):
    """What a request asks for."""

    span: Span
    is_reverse: bool
    level: Read
    revision: int | None
    """The revision that it is to be of; None for a list that begins now."""
    least: int
    """The revision that the node must have reached."""
    limit: int | None
    keys_only: bool
    is_count: bool
    is_stream: bool
    wait_ms: int
    same: Query
    """The parameters that all pages of a list share."""


class ListApp:
    """An ASGI application for the path `PATH`."""

    def __init__(self, node: Node, turns: Turns) -> None:
        self._node = node
        self._turns = turns
        self._pages = BodyBudget(PAGES_BYTES_MAX)
        self.streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] != "GET":
                raise Problem(
                    405,
                    "method_not_allowed",
                    f"A list takes GET, not {scope['method']}.",
                    headers={"Allow": "GET"},
                )
            if scope["raw_path"] != PATH.encode():
                raise Problem(404, "no_such_path", "Write /v1/kv as it is, without percent-encoding.")
            query = self._query(scope)
            if query.is_count:
                await (await self._count(query)).send(send)
            elif query.is_stream:
                await self._stream(query, scope, send)
            else:
                await self._page(query, send)
        except (Problem, Overloaded, Compacted) as error:
            await problem_response(problem_of(error, self._node.revision)).send(send)

    # What is asked for

    def _query(self, scope: Scope) -> ListQuery:
        found = parameters(scope["query_string"], _PARAMETERS)
        prefix, start, end = (found.get(name, "") for name in ("prefix", "start", "end"))
        level = choice(found, "read", Read, Read.GREEN)
        is_reverse, is_count = flag(found, "reverse"), flag(found, "count_only")
        is_stream = not is_count and accepts_ndjson(scope)
        limit = number(found, "limit", LIMIT, 1, NUMBER_MAX if is_stream else LIMIT_MAX)
        query = ListQuery(
            span_of(prefix.encode(), start.encode(), end.encode() or None),
            is_reverse,
            level,
            past_revision(found, level),
            number(found, "min_revision", 0, 0, NUMBER_MAX),
            limit if "limit" in found or not is_stream else None,
            flag(found, "keys_only"),
            is_count,
            is_stream,
            timeout_ms(found),
            (prefix, start, end, is_reverse, str(level)),
        )
        excluded = [name for name in ("cursor", "limit", "keys_only") if name in found]
        if is_count and excluded:
            raise Problem(
                400,
                "contradictory_parameters",
                f"count_only counts all keys of the list, and takes no {excluded[0]}. Leave out one of them.",
            )
        return self._after(found["cursor"], query) if "cursor" in found else query

    def _after(self, text: str, query: ListQuery) -> ListQuery:
        """Returns the part of the query that its cursor has left."""
        cursor = decode_cursor(text, Kind.LIST, query.same, self._node.generation)
        if query.revision not in (None, cursor.revision):
            raise Problem(
                400,
                "contradictory_parameters",
                f"The cursor is of revision {cursor.revision}, not {query.revision}. Leave out one of them.",
            )
        last = str(cursor.place[0]).encode()
        span = query.span.before(last) if query.is_reverse else query.span.after(last)
        return query._replace(span=span, revision=None if query.level is Read.RED else cursor.revision)

    async def _begin(self, query: ListQuery) -> tuple[Snapshot, Callable[[str], Color] | None]:
        """Waits until the list can be read. Returns the state, and the colours of a red one."""
        level = query.level if query.revision is None else Read.GREEN  # its first page was linearizable
        await wait_for(self._node, level, max(query.least, query.revision or 0), query.wait_ms)
        if level is Read.RED:
            return self._node.red_snapshot()
        return self._node.snapshot(query.revision), None

    # Answers

    async def _count(self, query: ListQuery) -> Response:
        snapshot, _ = await self._begin(query)
        count = 0

        def visit(key: str, item: Item) -> bool:
            nonlocal count
            count += 1
            return True

        with self._node.pinned(snapshot.revision):
            scan = SlicedScan(snapshot, query.span, query.is_reverse)
            while await self._turns.read_slice(scan, visit):
                pass
        return json_response(
            200, {"count": count, "revision": snapshot.revision}, {"Corel-Revision": str(snapshot.revision)}
        )

    async def _page(self, query: ListQuery, send: Send) -> None:
        snapshot, colors = await self._begin(query)
        page = _Page(query, colors, self._pages)
        try:
            with self._node.pinned(snapshot.revision):
                scan = SlicedScan(snapshot, query.span, query.is_reverse)
                while await self._turns.read_slice(scan, page.visit):
                    pass
            cursor = None
            if page.is_more:
                revision = 0 if query.level is Read.RED else snapshot.revision
                made = Cursor(Kind.LIST, revision, (page.last,))
                cursor = encode_cursor(made, query.same, self._node.generation)
            await _send_parts(page.body(cursor, snapshot.revision), snapshot.revision, send)
        finally:
            page.free()

    async def _stream(self, query: ListQuery, scope: Scope, send: Send) -> None:
        if self.streams >= STREAMS_MAX:
            raise Overloaded(f"{self.streams} lists are being streamed")
        self.streams += 1
        try:
            await self._stream_all(query, scope, send)
        finally:
            self.streams -= 1

    async def _stream_all(self, query: ListQuery, scope: Scope, send: Send) -> None:
        snapshot, colors = await self._begin(query)
        lines = _Lines(query, colors)
        with self._node.pinned(snapshot.revision):
            scan = SlicedScan(snapshot, query.span, query.is_reverse)
            is_more = await self._turns.read_slice(scan, lines.visit)  # if it cannot be read, nothing is sent yet
            headers = [
                (b"content-type", _NDJSON.encode()),
                (b"corel-revision", b"%d" % snapshot.revision),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                while is_more:
                    if lines.size >= PART_BYTES:
                        await send({"type": "http.response.body", "body": lines.take(), "more_body": True})
                    is_more = await self._turns.read_slice(scan, lines.visit)
            except (Compacted, DiskError) as error:
                lines.end(problem_of(error, self._node.revision))
            except asyncio.CancelledError:
                if scope["state"].get(DISCONNECTED):
                    raise
                lines.end(trouble(Trouble.AWAY, "This node stops. Ask another one for the rest."))
        await send({"type": "http.response.body", "body": lines.take(), "more_body": False})


def accepts_ndjson(scope: Scope) -> bool:
    """Whether the client asks for a stream, in its Accept header."""
    for name, value in scope["headers"]:
        if name == b"accept":
            for part in value.decode("latin-1").split(","):
                kind, *details = [detail.strip().lower() for detail in part.split(";")]
                if kind == _NDJSON and not any(detail in ("q=0", "q=0.0") for detail in details):
                    return True
    return False


async def _send_parts(body: bytes, revision: int, send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"corel-revision", b"%d" % revision),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for first in range(0, len(body), PART_BYTES):
        part = body[first : first + PART_BYTES]
        await send({"type": "http.response.body", "body": part, "more_body": first + PART_BYTES < len(body)})


class _Lines:
    """The items of a list as JSON, each of them a line of a stream."""

    def __init__(self, query: ListQuery, colors: Callable[[str], Color] | None) -> None:
        self._keys_only = query.keys_only
        self._colors = colors
        self._left = query.limit
        self._lines: list[bytes] = []
        self.size = 0

    def visit(self, key: str, item: Item) -> bool:
        if self._left is not None:
            if not self._left:
                return False
            self._left -= 1
        line = self._line(key, item)
        self._lines.append(line)
        self.size += len(line)
        return True

    def _line(self, key: str, item: Item) -> bytes:
        """Returns the item as JSON, put together by hand: the encoder takes longer than everything else."""
        color = "" if self._colors is None else f',"color":"{self._colors(key)}"'
        revision = "null" if item.revision is None else item.revision
        if self._keys_only:
            return f'{{"key":{quoted(key)},"revision":{revision}{color}}}'.encode()
        try:
            value = quoted(item.value.decode())
        except UnicodeDecodeError:
            value = to_json(text_or_base64(item.value))
        kind = quoted(item.content_type)
        text = f'{{"key":{quoted(key)},"value":{value},"revision":{revision},"content_type":{kind}{color}}}'
        return text.encode()

    def end(self, problem: Problem) -> None:
        """Ends the stream before the list does."""
        self._lines.append(to_json(problem.body()).encode())

    def take(self) -> bytes:
        lines, self._lines, self.size = self._lines, [], 0
        return b"".join([line + b"\n" for line in lines])


class _Page(_Lines):
    """One page of a list."""

    def __init__(self, query: ListQuery, colors: Callable[[str], Color] | None, budget: BodyBudget) -> None:
        super().__init__(query, colors)
        self._budget = budget
        self._taken = 0
        self.last = ""
        """The last key of the page."""
        self.is_more = False
        """Whether there is another key after the page."""

    def visit(self, key: str, item: Item) -> bool:
        if self.size >= PAGE_BYTES_MAX or not super().visit(key, item):
            self.is_more = True
            return False
        self._budget.take(self.size - self._taken)
        self._taken = self.size
        self.last = key
        return True

    def body(self, cursor: str | None, revision: int) -> bytes:
        end = to_json({"cursor": cursor, "revision": revision})
        return b'{"items":[' + b",".join(self._lines) + b"]," + end[1:].encode()

    def free(self) -> None:
        self._budget.give_back(self._taken)
