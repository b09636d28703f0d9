"""What the OpenAPI document says of responses and bodies, beyond what FastAPI derives from the routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

from api.schemas import (
    ChaosSettings,
    Error,
    Fate,
    KeyCount,
    LabAction,
    LabNode,
    ListPage,
    LogPage,
    MergePreview,
    Ready,
    Txn,
    WriteAnswer,
)

Responses: TypeAlias = dict[int | str, dict[str, Any]]

IF_MATCH = r'^(\*|"([1-9][0-9]{0,17}|[!#-~]*[!#-/:-~][!#-~]*)")$'
"""Matches `*`, a revision, or the id of a write, the latter two in quotes."""

WRITE_ID = r"^[A-Za-z0-9_-]+(\.[0-9]{1,15}){3}$"

RAW_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}

_ERRORS = {
    400: "Not understood; nothing was accepted",
    404: "Not there",
    405: "No such method here",
    408: "The body came too slowly",
    409: "Impossible on the value that is there; `expired`: too late to know whether its key was used before; or "
    "`yielded` to a write of the other side of a partition",
    410: "`compacted`: that far back nothing is kept",
    412: "The condition does not hold; nothing was changed",
    413: "Too large",
    422: "The Idempotency-Key was used for another write",
    429: "Too much waits already",
    503: "Not now",
    504: "Not in time",
}


def _errors(*statuses: int) -> Responses:
    return {status: {"model": Error, "description": _ERRORS[status]} for status in statuses}


def write_responses() -> Responses:
    return {
        200: {"model": WriteAnswer, "description": "Green: its place is final"},
        202: {"model": WriteAnswer, "description": "Accepted and durable here, not final yet: ask `Location`"},
        **_errors(400, 405, 408, 409, 412, 413, 422, 429, 503, 504),
    }


def read_responses() -> Responses:
    binary = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
    return {
        200: {"content": binary, "description": "The value"},
        304: {"description": "It is what If-None-Match names"},
        **_errors(400, 404, 405, 410, 429, 503, 504),
    }


def stream_responses() -> Responses:
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    return {200: {"content": stream, "description": "Events"}, **_errors(400, 405, 410, 503)}


def list_responses() -> Responses:
    lines = {"application/x-ndjson": {"schema": {"type": "string"}}}
    return {
        200: {"model": ListPage | KeyCount, "content": lines, "description": "A page, a count, or a stream"},
        **_errors(400, 405, 410, 429, 503, 504),
    }


def past_responses(model: type[BaseModel]) -> Responses:
    return {200: {"model": model, "description": "A page"}, **_errors(400, 405, 410, 503, 504)}


def preview_responses() -> Responses:
    return {200: {"model": MergePreview, "description": "A page"}, **_errors(400, 405, 429)}


def fate_responses() -> Responses:
    return {200: {"model": Fate, "description": "What became of it"}, **_errors(400, 404, 405, 410)}


def log_responses() -> Responses:
    return {200: {"model": LogPage, "description": "As it is now"}, **_errors(400, 405, 410)}


def plain_responses(model: type[BaseModel], may_be_missing: bool = False) -> Responses:
    errors = _errors(400, 404, 405, 413) if may_be_missing else _errors(400, 405)
    return {200: {"model": model, "description": "As it is now"}, **errors}


def snapshot_responses(model: type[BaseModel]) -> Responses:
    return {201: {"model": model, "description": "It is open"}, **_errors(400, 405, 429, 503)}


def part_responses() -> Responses:
    binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {200: {"content": binary, "description": "A part"}, **_errors(400, 404, 405, 410, 503)}


def closed_responses() -> Responses:
    return {204: {"description": "It is closed"}, **_errors(400, 404, 405)}


def metrics_errors() -> Responses:
    return _errors(400, 405)


def lab_responses() -> Responses:
    return {
        200: {"model": LabNode, "description": "It is done, or was so already"},
        **_errors(400, 404, 405, 409, 413, 503),
    }


def ready_responses() -> Responses:
    return {200: {"model": Ready, "description": "Yes"}, **_errors(400, 405, 503)}


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the description of a JSON body that the route parses itself."""
    schema: Mapping[str, Any] = model.model_json_schema(ref_template="#/components/schemas/{model}")
    content = {name: part for name, part in schema.items() if name != "$defs"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": content}}}}


def definitions(models: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """Returns the schemas that `body_of` refers to."""
    found: dict[str, Any] = {}
    for model in models:
        found.update(model.model_json_schema(ref_template="#/components/schemas/{model}").get("$defs", {}))
    return found


def complete(document: dict[str, Any], roster: Iterable[str]) -> None:
    """Adds what FastAPI does not know to the document: the schemas of bodies that routes parse themselves, that a
    header may be absent but is never null, and which nodes there are."""
    document["components"]["schemas"].update(definitions((Txn, ChaosSettings, LabAction)))
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                schema = parameter["schema"]
                kinds = [kind for kind in schema.pop("anyOf", ()) if kind != {"type": "null"}]
                for kind in kinds:
                    schema.update(kind)
                if parameter["name"] == "write_id":
                    schema["pattern"] = WRITE_ID
    for method in ("put", "patch"):
        body = document["paths"]["/v1/chaos"][method]["requestBody"]["content"]["application/json"]["schema"]
        for field in ("drop_from", "drop_to"):
            body["properties"][field]["items"] = {"enum": sorted(roster)}
