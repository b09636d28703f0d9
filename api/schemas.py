"""The data types of the API, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from api.problems import Problem
from kvstore.store import NUMBER_MAX, Merge
from transport.chaos import Chaos

Responses: TypeAlias = dict[int | str, dict[str, Any]]


class Need(StrEnum):
    PRIMARY = "primary"


class Wait(StrEnum):
    GREEN = "green"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Error(BaseModel):
    """Why the request failed, and what to do."""

    error: str
    message: str


class WriteAnswer(BaseModel):
    id: str
    color: str
    outcome: Annotated[str, Field(description="pending, applied, rejected, duplicate, expired or yielded")]
    revision: int | None = None


class Fate(WriteAnswer):
    reason: Annotated[str | None, Field(description="why it, or the first copy, was rejected")] = None
    key: Annotated[str | None, Field(description="the key that was the reason")] = None
    succeeded: Annotated[bool | None, Field(description="false if a transaction did its `else`")] = None
    duplicate_of: str | None = None
    duplicate_outcome: str | None = None
    beaten_by: Annotated[str | None, Field(description="the write that one with `keep_green` yielded to")] = None


class Base64(_Strict):
    base64: Annotated[str, Field(pattern=r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]


class Increment(_Strict):
    increment: Annotated[int, Field(ge=-NUMBER_MAX, le=NUMBER_MAX)]


class Append(_Strict):
    append: str | Base64


Change: TypeAlias = Increment | Append

_Key = Annotated[str, Field(min_length=1, max_length=480)]


class PutContent(_Strict):
    key: _Key
    value: str | Base64
    content_type: Annotated[str, Field(pattern=r"^[ -~]+$", max_length=255)] = "application/octet-stream"


class KeyContent(_Strict):
    key: _Key


class IncrementContent(_Strict):
    key: _Key
    by: Annotated[int, Field(ge=-NUMBER_MAX, le=NUMBER_MAX)]


class AppendContent(_Strict):
    key: _Key
    value: str | Base64


class PutOperation(_Strict):
    put: PutContent


class DeleteOperation(_Strict):
    delete: KeyContent


class IncrementOperation(_Strict):
    increment: IncrementContent


class AppendOperation(_Strict):
    append: AppendContent


class GetOperation(_Strict):
    get: KeyContent


Operation: TypeAlias = PutOperation | DeleteOperation | IncrementOperation | AppendOperation | GetOperation


class RevisionCondition(_Strict):
    key: _Key
    revision: Annotated[int, Field(ge=0, le=NUMBER_MAX, description="0: the key does not exist")]


class ExistsCondition(_Strict):
    key: _Key
    exists: bool


class ValueCondition(_Strict):
    key: _Key
    value: str | Base64


class IdCondition(_Strict):
    key: _Key
    id: Annotated[
        str,
        Field(min_length=1, max_length=255, description="The write that the value comes from: a red read's ETag"),
    ]


Condition: TypeAlias = RevisionCondition | ExistsCondition | ValueCondition | IdCondition


class Txn(_Strict):
    if_: Annotated[list[Condition], Field(alias="if")] = []
    then: list[Operation]
    else_: Annotated[list[Operation] | None, Field(alias="else")] = None
    merge: Merge = Merge.LAST


class ListItem(BaseModel):
    key: str
    value: str | Base64 | None = None
    revision: int | None
    content_type: str | None = None
    color: str | None = None


class ListPage(BaseModel):
    items: list[ListItem]
    cursor: Annotated[str | None, Field(description="for the next page; null if this is the last")]
    revision: int


class KeyCount(BaseModel):
    count: int
    revision: int


class Version(BaseModel):
    revision: int
    write: str
    value: str | Base64 | None = None
    content_type: str | None = None
    deleted: bool = False


class History(BaseModel):
    key: str
    items: list[Version]
    cursor: str | None
    oldest: Annotated[int, Field(description="the revision before which nothing is kept")]


class OtherWrite(BaseModel):
    write: str
    node: str
    revision: int
    value: str | Base64 | None
    compacted: bool = False


class Conflict(BaseModel):
    kind: Annotated[str, Field(description="overwrote, rejected, yielded or otherwise")]
    key: str
    write: str
    node: str
    accepted_ms: int
    position: int
    revision: int | None
    value: str | Base64 | Increment | Append | None
    compacted: bool = False
    other: OtherWrite


class Conflicts(BaseModel):
    items: list[Conflict]
    cursor: str | None


class TentativeChange(BaseModel):
    key: str
    before: str | Base64 | None
    after: str | Base64 | None


class TentativeWrite(BaseModel):
    write: str
    node: str
    accepted_ms: int
    color: str
    outcome: str
    reason: str | None = None
    key: str | None = None
    beaten_by: str | None = None
    duplicate_of: str | None = None
    duplicate_outcome: str | None = None
    changes: list[TentativeChange]


class MergePreview(BaseModel):
    items: list[TentativeWrite]
    cursor: str | None
    revision: int


class View(BaseModel):
    id: str
    members: list[str]


class GreenLine(BaseModel):
    line: int
    revision: int


class YellowLine(BaseModel):
    line: int


class DiskUsed(BaseModel):
    used_bytes: Annotated[
        int, Field(description="the part of the map that has been used, which is the file's size")
    ]
    map_bytes: Annotated[int, Field(description="the setting log.map_bytes")]
    file_system_bytes: int
    free_bytes: Annotated[int, Field(description="what the file system has left")]


class Status(BaseModel):
    node: str
    roster: list[str]
    incarnation: int
    view: View
    state: str
    primary: bool
    green: GreenLine
    yellow: YellowLine
    red: int
    last_committed_primary: int
    last_attempted_primary: int
    watchers: Annotated[int, Field(description="how many feeds of this node are open")]
    oldest_revision: Annotated[int, Field(description="the oldest revision that can be read and listed")]
    disk: Annotated[str, Field(description='"ok", or why the node is away from the others')]
    disk_used: DiskUsed
    warnings: Annotated[list[str], Field(description="what needs attention soon, and what to do about it")]


class LogEntry(BaseModel):
    position: int
    id: str
    color: str
    timestamp: int
    sender: str
    view: str
    operations: list[dict[str, Any]]


class LogPage(BaseModel):
    entries: list[LogEntry]
    next: int


class ClusterNode(BaseModel):
    name: str
    url: str | None
    connected: bool
    incarnation: int | None
    last_heard_ms: Annotated[int | None, Field(description="when it was last heard, if it is not connected")]
    weight: int


class Cluster(BaseModel):
    view: View
    primary: bool
    nodes: list[ClusterNode]


class Ready(BaseModel):
    ready: bool
    state: str


_Share = Annotated[float, Field(ge=0, le=1)]
_Delay = Annotated[float, Field(ge=0, le=60_000)]


class ChaosSettings(_Strict):
    drop_from: list[str] = []
    drop_to: list[str] = []
    loss: _Share = 0.0
    duplication: _Share = 0.0
    delay_ms: _Delay = 0.0
    jitter_ms: _Delay = 0.0


class LabActionKind(StrEnum):
    KILL = "kill"
    START = "start"


class LabAction(_Strict):
    action: LabActionKind


class LabNode(BaseModel):
    node: str
    running: bool


def lab_action_of(body: object) -> LabActionKind:
    if isinstance(body, dict) and set(body) == {"action"} and body["action"] in list(LabActionKind):
        return LabActionKind(body["action"])
    raise Problem(400, "invalid_action", 'The body is {"action": "kill"} or {"action": "start"}.')


def chaos_of(body: object, roster: Iterable[str]) -> Chaos:
    """Returns the chaos that a body asks for. A name that is not in the roster is an error."""
    try:
        settings = ChaosSettings.model_validate(body, strict=True)
    except ValueError as error:
        first = str(error).splitlines()[1:3]
        raise Problem(
            400, "invalid_chaos", f"The chaos settings are not valid: {' '.join(map(str.strip, first))}."
        ) from None
    names = set(roster)
    strangers = [name for name in (*settings.drop_from, *settings.drop_to) if name not in names]
    if strangers:
        raise Problem(
            400, "invalid_chaos", f"There is no node {strangers[0]!r}; there are {', '.join(sorted(names))}."
        )
    return Chaos(
        frozenset(settings.drop_from),
        frozenset(settings.drop_to),
        settings.loss,
        settings.duplication,
        settings.delay_ms,
        settings.jitter_ms,
    )


def chaos_json(chaos: Chaos) -> dict[str, object]:
    return {
        "drop_from": sorted(chaos.drop_from),
        "drop_to": sorted(chaos.drop_to),
        "loss": chaos.loss,
        "duplication": chaos.duplication,
        "delay_ms": chaos.delay_ms,
        "jitter_ms": chaos.jitter_ms,
    }


# Responses

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
    return {200: {"model": Fate, "description": "What became of it"}, **_errors(400, 404, 405)}


def plain_responses(model: type[BaseModel], may_be_missing: bool = False) -> Responses:
    errors = _errors(400, 404, 405, 413) if may_be_missing else _errors(400, 405)
    return {200: {"model": model, "description": "As it is now"}, **errors}


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
    chaos = document["paths"]["/v1/chaos"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    for field in ("drop_from", "drop_to"):
        chaos["properties"][field]["items"] = {"enum": sorted(roster)}
