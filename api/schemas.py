"""The data types of the API, for the OpenAPI document."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from kvstore.store import NUMBER_MAX, Merge


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


class Learning(BaseModel):
    source: Annotated[str, Field(description="the node that was asked last; empty if none can be")]
    phase: Annotated[str, Field(description="asking, state, messages or switching")]
    bytes: Annotated[int, Field(description="how much of the state has been fetched")]
    total_bytes: Annotated[int, Field(description="how large the state is, about; 0 while that is not known")]
    line: Annotated[int, Field(description="how many green messages the copy covers")]
    target: Annotated[int, Field(description="how many green messages the source has")]


class LogKept(BaseModel):
    first: Annotated[int, Field(description="the first position of the log that can be read")]
    bytes: Annotated[int, Field(description="how large the log is on disk")]


class EndedGeneration(BaseModel):
    generation: str
    line: Annotated[int, Field(description="the green line with which the next one began")]
    digest: Annotated[str, Field(description="that of the green order there")]
    ended_ms: Annotated[int, Field(description="when, by the wall clock")]
    reason: str


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
    lineage: Annotated[
        list[EndedGeneration], Field(description="generations of the cluster before this one, if it was restored")
    ]
    watchers: Annotated[int, Field(description="how many feeds of this node are open")]
    oldest_revision: Annotated[int, Field(description="the oldest revision that can be read and listed")]
    log: LogKept
    disk: Annotated[str, Field(description='"ok", or why the node is away from the others')]
    learning: Annotated[
        Learning | None,
        Field(description="how far the node is with taking over what it lacks; null if it does not"),
    ]
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


class TableSize(BaseModel):
    name: str
    records: int
    bytes: Annotated[int, Field(description="what its pages take")]


class OpenedSnapshot(BaseModel):
    id: Annotated[str, Field(description="its name in the paths of its parts")]
    header: Annotated[str, Field(description="what begins it in a file, base64")]
    cluster: str
    node: str
    revision: Annotated[int, Field(description="that of the green state in it")]
    line: Annotated[int, Field(description="how many messages are in that state; the others follow in its tail")]
    green: Annotated[int, Field(description="the green line on this node's disk, where its tail ends")]
    tables: list[TableSize]
    idle_s: Annotated[int, Field(description="it is closed if nobody reads it for so many seconds")]
