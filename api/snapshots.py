"""Snapshots of a node's disk, part by part, for `corelkv backup` and for nodes that lack much (decision 28).

What a part is made of says `kvstore.node.snapshot_format`. Parts are read beside the event loop, one at a time
(`kvstore.node.open_snapshots`), and other work has a turn between two parts, however many snapshots are being
read."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64decode
from collections.abc import Awaitable
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import JSONResponse
from fastapi.responses import Response as StarletteResponse

from api import openapi, schemas
from api.problems import Problem, trouble
from api.requests import number, parameters
from api.slices import Turns
from corel import NotAhead
from corel.disk_errors import Truncated
from kvstore.node import SNAPSHOT_TABLES, Node, TooManySnapshots
from kvstore.store import NUMBER_MAX, Trouble

SNAPSHOT_NAME = "^[0-9a-f]{16}$"
TABLE = f"^({'|'.join(SNAPSHOT_TABLES)})$"
AFTER = "^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2,3})?$"
KEY_BYTES_MAX = 511
"""No key of a table is longer."""

_Content = TypeVar("_Content")

NameInPath = Annotated[str, Path(pattern=SNAPSHOT_NAME, description="As `POST /v1/snapshots` gave it")]
AfterQuery = Annotated[
    str, Query(pattern=AFTER, max_length=682, description="The key before them, base64url; none: the first")
]
FirstQuery = Annotated[int, Query(alias="from", ge=0, le=NUMBER_MAX, description="Position of the first")]


def add_snapshots(app: FastAPI, node: Node, turns: Turns) -> None:
    _add_log(app, node, turns)

    @app.post(
        "/v1/snapshots",
        status_code=201,
        response_model=None,
        tags=["snapshots"],
        responses=openapi.snapshot_responses(schemas.OpenedSnapshot),
    )
    async def open_snapshot(request: Request) -> JSONResponse:
        """Opens a snapshot of the green state on this node's disk, and of the green messages after it. While it is
        open, this node's file grows by all that is written: close it."""
        parameters(request.scope["query_string"], ())
        await turns.rest()
        return JSONResponse(await _opened_json(node), 201)

    @app.get(
        "/v1/snapshots/{snapshot}/tail",
        response_model=None,
        tags=["snapshots"],
        responses=openapi.part_responses(),
        response_class=StarletteResponse,
    )
    async def tail(request: Request, snapshot: NameInPath, first: FirstQuery) -> StarletteResponse:
        """The green messages of a snapshot from this position on, which follow its green state."""
        found = parameters(request.scope["query_string"], ("from",))
        await turns.rest()
        position = number(found, "from", 0, 0, NUMBER_MAX)
        return _part(_found(snapshot, await _batch(node.snapshots.tail(snapshot, position))))

    @app.get(
        "/v1/snapshots/{snapshot}/{table}",
        response_model=None,
        tags=["snapshots"],
        responses=openapi.part_responses(),
        response_class=StarletteResponse,
    )
    async def chunk(
        request: Request,
        snapshot: NameInPath,
        table: Annotated[str, Path(pattern=TABLE, description="A table of the green state")],
        after: AfterQuery = "",
    ) -> StarletteResponse:
        """The records of a table of the green state after this key, as they are on the disk."""
        parameters(request.scope["query_string"], ("after",))
        key = _key(after)
        await turns.rest()
        return _part(_found(snapshot, await node.snapshots.chunk(snapshot, table, key)))

    @app.delete(
        "/v1/snapshots/{snapshot}",
        status_code=204,
        response_model=None,
        tags=["snapshots"],
        responses=openapi.closed_responses(),
    )
    async def close_snapshot(request: Request, snapshot: NameInPath) -> StarletteResponse:
        """Closes a snapshot, so that its pages can be used again."""
        parameters(request.scope["query_string"], ())
        if not node.snapshots.close(snapshot):
            raise _unknown(snapshot)
        return StarletteResponse(status_code=204)


def _add_log(app: FastAPI, node: Node, turns: Turns) -> None:
    @app.get(
        "/v1/snapshots/log",
        response_model=None,
        tags=["snapshots"],
        responses=openapi.part_responses(),
        response_class=StarletteResponse,
    )
    async def log(request: Request, first: FirstQuery) -> StarletteResponse:
        """The green messages that are on this node's disk now, from this position on: what became green after a
        snapshot. None yet: an empty batch."""
        found = parameters(request.scope["query_string"], ("from",))
        await turns.rest()
        return _part(await _batch(node.snapshots.log(number(found, "from", 0, 0, NUMBER_MAX))))


async def _opened_json(node: Node) -> dict[str, Any]:
    try:
        name, source = await node.snapshots.open()
    except NotAhead as error:
        what = f"This node has no snapshot to hand out: {error}. Ask another node, or ask again soon."
        raise trouble(Trouble.NO_PRIMARY, what) from None
    except TooManySnapshots:
        bounds = node.config.snapshots
        raise Problem(
            429,
            "too_many_snapshots",
            f"{bounds.open_max} snapshots of this node are open already, which is snapshots.open_max. Try another "
            f"node, or wait until one is closed; it is after {bounds.idle_s} s in which nobody reads it, and "
            f"after {bounds.lifetime_s} s in any case.",
            headers={"Retry-After": "5"},
        ) from None
    header = source.header
    return {
        "id": name,
        "header": b64encode(source.header_bytes).decode(),
        "cluster": header.cluster,
        "node": header.node,
        "revision": header.revision,
        "line": header.line,
        "green": header.lines.green,
        "tables": [table._asdict() for table in header.tables],
        "idle_s": node.config.snapshots.idle_s,
    }


def _found(name: str, content: bytes | None) -> bytes:
    if content is None:
        raise _unknown(name)
    return content


def _unknown(name: str) -> Problem:
    return Problem(
        404,
        "unknown_snapshot",
        f"No snapshot {name} is open here: it was closed, or not read for snapshots.idle_s, or open for "
        "snapshots.lifetime_s, or this node has started since. Open another one and begin again.",
    )


async def _batch(reading: Awaitable[_Content]) -> _Content:
    try:
        return await reading
    except Truncated as error:
        raise Problem(
            410,
            "compacted",
            f"Green messages are kept from position {error.first} on. Open a snapshot, which has what those "
            "before it led to.",
            {"first": error.first},
        ) from None


def _key(after: str) -> bytes:
    try:
        key = urlsafe_b64decode(after + "=" * (-len(after) % 4))
    except ValueError:
        key = bytes(KEY_BYTES_MAX + 1)
    if len(key) > KEY_BYTES_MAX:
        raise Problem(400, "invalid_after", "`after` is the last key of the part before, base64url.")
    return key


def _part(content: bytes) -> StarletteResponse:
    return StarletteResponse(content, media_type="application/octet-stream")
