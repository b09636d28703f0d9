"""`GET /v1/history`: the revisions of one key, as far as they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response as StarletteResponse

from api import openapi, schemas
from api.answers import text_or_base64
from api.cursors import Cursor, Kind, decode_cursor, encode_cursor
from api.kv_openapi import TimeoutQuery
from api.lists_openapi import CursorQuery
from api.pages import LIMIT, LIMIT_MAX, Items
from api.reads import Read, wait_for
from api.requests import TIMEOUT_MS, number, parameters, timeout_ms
from api.slices import Turns
from kvstore.node import Node
from kvstore.store import NUMBER_MAX, Item, check_key

VERSIONS_AT_ONCE = 8
"""How many versions are read in a turn of the event loop: each may have a value of a mebibyte."""


def add_history(app: FastAPI, node: Node, turns: Turns) -> None:
    @app.get("/v1/history", response_model=None, tags=["keys"], responses=openapi.past_responses(schemas.History))
    async def history(
        request: Request,
        key: Annotated[str, Query(min_length=1, description="Up to 480 bytes of UTF-8")],
        limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Most revisions of a page")] = LIMIT,
        cursor: CursorQuery = None,
        timeout_ms: TimeoutQuery = TIMEOUT_MS,
    ) -> StarletteResponse:
        """The revisions that changed a key, newest first: what it held from each of them on. Those before `oldest`
        are no longer kept."""
        found = parameters(request.scope["query_string"], ("key", "limit", "cursor", "timeout_ms"))
        return await _page(node, turns, found)


async def _page(node: Node, turns: Turns, found: Mapping[str, str]) -> StarletteResponse:
    key = found["key"]
    check_key(key)
    items = Items(number(found, "limit", LIMIT, 1, LIMIT_MAX))
    reached, before = node.revision, NUMBER_MAX
    if "cursor" in found:
        cursor = decode_cursor(found["cursor"], Kind.HISTORY, (key,), node.generation)
        reached, before = cursor.revision, int(cursor.place[0])
        await wait_for(node, Read.GREEN, reached, timeout_ms(found))
    while versions := node.versions(key, before, VERSIONS_AT_ONCE):
        for revision, write, item in versions:
            if items.is_full:
                break
            items.add(_version_json(revision, write, item))
            before = revision
        if items.is_full:
            break
        await turns.rest()
    following = None
    if node.versions(key, before, 1):
        made = Cursor(Kind.HISTORY, reached, (before,))
        following = encode_cursor(made, (key,), node.generation)
    return items.response({"key": key, "cursor": following, "oldest": node.oldest_revision()})


def _version_json(revision: int, write: str, item: Item | None) -> dict[str, object]:
    if item is None:
        return {"revision": revision, "write": write, "deleted": True}
    return {
        "revision": revision,
        "write": write,
        "value": text_or_base64(item.value),
        "content_type": item.content_type,
    }
