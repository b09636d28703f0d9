"""`GET /v1/conflicts`: writes whose outcome or effect a merge changed, with what beat them.
`/v1/conflicts/preview`: what the writes that are not green would do if they merged now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response as StarletteResponse

from api import openapi, schemas
from api.answers import outcome_json, text_or_base64
from api.cursors import Cursor, Kind, decode_cursor, encode_cursor
from api.kv_openapi import TimeoutQuery
from api.lists_openapi import CursorQuery, PrefixQuery
from api.pages import LIMIT, LIMIT_MAX, Items
from api.problems import Problem
from api.reads import Read, wait_for
from api.requests import TIMEOUT_MS, number, parameters, timeout_ms
from api.slices import Turns
from kvstore.node import Node
from kvstore.store import (
    NUMBER_MAX,
    Append,
    Compacted,
    ConflictKind,
    ConflictPlace,
    FoundConflict,
    Get,
    Increment,
    Item,
    Operation,
    Preview,
    Put,
    Write,
    decode_batch,
    decode_write,
)

CONFLICTS_AT_ONCE = 16
"""How many conflicts are looked at in a turn of the event loop: each may have two values of a mebibyte."""


def add_conflicts(app: FastAPI, node: Node, turns: Turns) -> None:
    @app.get(
        "/v1/conflicts", response_model=None, tags=["merges"], responses=openapi.past_responses(schemas.Conflicts)
    )
    async def conflicts(
        request: Request,
        first: Annotated[
            int, Query(alias="from", ge=0, le=NUMBER_MAX, description="The first revision; 0: as far as is kept")
        ] = 0,
        prefix: PrefixQuery = "",
        limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Most conflicts of a page")] = LIMIT,
        cursor: CursorQuery = None,
        timeout_ms: TimeoutQuery = TIMEOUT_MS,
    ) -> StarletteResponse:
        """Red writes that met, when they merged, a change of the same key which their node did not know: they
        overwrote it, were rejected or yielded because of it, or did their `else`. Oldest first."""
        names = ("from", "prefix", "limit", "cursor", "timeout_ms")
        return await _conflicts(node, turns, parameters(request.scope["query_string"], names))

    @app.get(
        "/v1/conflicts/preview",
        response_model=None,
        tags=["merges"],
        responses=openapi.preview_responses(),
    )
    async def preview(
        request: Request,
        prefix: PrefixQuery = "",
        limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Most writes of a page")] = LIMIT,
        cursor: CursorQuery = None,
    ) -> StarletteResponse:
        """What each write of this component that is not green would do if it merged onto the green state as this
        node knows it, in their present order."""
        return _preview(node, parameters(request.scope["query_string"], ("prefix", "limit", "cursor")))


# What merges changed


async def _conflicts(node: Node, turns: Turns, found: Mapping[str, str]) -> StarletteResponse:
    items = Items(number(found, "limit", LIMIT, 1, LIMIT_MAX))
    first, prefix = number(found, "from", 0, 0, NUMBER_MAX), found.get("prefix", "")
    query = (str(first), prefix)
    reached, place, is_limited = node.revision, ConflictPlace(first, -1, 0, 0), first > 0
    if "cursor" in found:
        cursor = decode_cursor(found["cursor"], Kind.CONFLICTS, query, node.generation)
        reached, place, is_limited = cursor.revision, ConflictPlace(*map(int, cursor.place)), True
        await wait_for(node, Read.GREEN, reached, timeout_ms(found))
    oldest = node.oldest_revision()
    if is_limited and place.revision <= oldest > 0:
        raise Compacted(oldest)
    reader = _Values(node)
    is_more = False
    while not is_more and (met := node.conflicts(place, CONFLICTS_AT_ONCE)):
        for one in met:
            if one.conflict.key.startswith(prefix):
                if items.is_full:
                    is_more = True
                    break
                items.add(_conflict_json(one, reader))
            place = one.place
        await turns.rest()
    following = None
    if is_more:
        following = encode_cursor(Cursor(Kind.CONFLICTS, reached, place), query, node.generation)
    return items.response({"cursor": following})


def _conflict_json(found: FoundConflict, values: _Values) -> dict[str, object]:
    kind, key, other = found.conflict
    other_json: dict[str, object] = {
        "write": other.write_id,
        "node": _node_of(other.write_id),
        "revision": other.revision,
        "value": None,
    }
    content: dict[str, object] = {
        "kind": str(kind),
        "key": key,
        "write": found.write_id,
        "node": _node_of(found.write_id),
        "accepted_ms": found.accepted_ms,
        "position": found.place.position,
        "revision": found.revision,
        "value": None,
        "other": other_json,
    }
    try:
        content["value"] = values.written(found)
    except Compacted:
        content["compacted"] = True
    try:
        other_json["value"] = values.met(found)
    except Compacted:
        other_json["compacted"] = True
    return content


def _node_of(write_id: str) -> str:
    return write_id.rsplit(".", 3)[0]


class _Values:
    """The values of both sides of conflicts."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._position = -1
        self._writes: list[bytes] = []
        """Those of the message at this position, which may have met many conflicts."""

    def met(self, found: FoundConflict) -> object:
        """Returns what the write found in place of what its node knew. Raises `Compacted`."""
        before = found.place.revision if found.revision is None else found.revision - 1
        return _value_json(self._node.find_at(found.conflict.key, before))

    def written(self, found: FoundConflict) -> object:
        """Returns what the write made of the key, or was to make of it. Raises `Compacted`."""
        key = found.conflict.key
        if found.revision is not None:
            item = self._node.find_at(key, found.revision)
            return _value_json(item if item is not None and item.write_id == found.write_id else None)
        if found.conflict.kind is ConflictKind.OTHERWISE:
            return None  # its `else` changed nothing
        write = self._write(found)
        for branch in (write.then, write.otherwise or ()):
            for operation in reversed(branch):
                if operation.key == key and not isinstance(operation, Get):
                    return _operation_json(operation)
        return None

    def _write(self, found: FoundConflict) -> Write:
        position = found.place.position
        if position != self._position:
            entries = self._node.read_log(position, 1).entries
            if not entries or not found.write_id.startswith(f"{entries[0].inspected.id}."):
                raise Compacted(self._node.oldest_revision())
            self._position, self._writes = position, decode_batch(entries[0].body).writes
        return decode_write(self._writes[found.place.write_index])


def _value_json(item: Item | None) -> object:
    return None if item is None else text_or_base64(item.value)


def _operation_json(operation: Operation) -> object:
    if isinstance(operation, Put):
        return text_or_base64(operation.value)
    if isinstance(operation, Increment):
        return {"increment": operation.by}
    return {"append": text_or_base64(operation.value)} if isinstance(operation, Append) else None


# What a merge would do


def _preview(node: Node, found: Mapping[str, str]) -> StarletteResponse:
    items = Items(number(found, "limit", LIMIT, 1, LIMIT_MAX))
    prefix = found.get("prefix", "")
    writes = node.preview()
    if "cursor" in found:
        cursor = decode_cursor(found["cursor"], Kind.PREVIEW, (prefix,), node.generation)
        writes = _after(str(cursor.place[0]), writes)
    last, following = "", None
    for write in writes:
        if prefix and not _is_about(write, prefix):
            continue
        if items.is_full:
            following = encode_cursor(Cursor(Kind.PREVIEW, 0, (last,)), (prefix,), node.generation)
            break
        items.add(_preview_json(write, prefix))
        last = write.write_id
    return items.response({"cursor": following, "revision": node.revision})


def _after(write_id: str, writes: list[Preview]) -> list[Preview]:
    for place, write in enumerate(writes, start=1):
        if write.write_id == write_id:
            return writes[place:]
    raise Problem(
        400,
        "invalid_cursor",
        f"Write {write_id}, with which the last page ended, is final by now, or not known to this node. Begin "
        "again without the cursor.",
    )


def _is_about(write: Preview, prefix: str) -> bool:
    return write.outcome.key.startswith(prefix) or any(key.startswith(prefix) for key, _, _ in write.changes)


def _preview_json(write: Preview, prefix: str) -> dict[str, object]:
    outcome = outcome_json(write.color, write.outcome)
    del outcome["revision"]  # there is none yet
    return {
        "write": write.write_id,
        "node": _node_of(write.write_id),
        "accepted_ms": write.accepted_ms,
        **outcome,
        "changes": [
            {"key": key, "before": _value_json(before), "after": _value_json(after)}
            for key, before, after in write.changes
            if key.startswith(prefix)
        ],
    }
