"""Describes the calls of `kv` for the OpenAPI document. FastAPI only documents them; `kv` answers them."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Header, Path, Query

from api import openapi, schemas
from api.reads import Read
from api.requests import TIMEOUT_MS, TIMEOUT_MS_MAX
from kvstore.store import NUMBER_MAX, Ack, Merge

WaitRevisionQuery = Annotated[
    int | None,
    Query(ge=0, le=2**63 - 1, description="Wait until the key has changed after it; 304 if it has not in time"),
]
AckQuery = Annotated[
    Ack, Query(description="What to wait for: green where there is a primary component, else red")
]
MinRevisionQuery = Annotated[int, Query(ge=0, le=NUMBER_MAX, description="Wait until this node has it")]
RevisionQuery = Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="As it was then; needs read=green")]
TimeoutQuery = Annotated[int, Query(ge=0, le=TIMEOUT_MS_MAX, description="How long to wait, in ms")]
MergeQuery = Annotated[
    Merge,
    Query(
        description="If it is red and others changed the key meanwhile: write it nevertheless, or let theirs be"
    ),
]
IfMatch = Annotated[
    str | None, Header(alias="If-Match", pattern=openapi.IF_MATCH, description='An ETag, `"17"`, or `*`')
]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", pattern=r"^\*$", description="`*`: only if the key does not exist")
]
_ONCE = "A retry with it applies once. A copy that gets its final place too late to know that has `expired`"
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=255, description=_ONCE),
]
Key = Annotated[str, Path(description="Up to 480 bytes of UTF-8, percent-encoded; may contain `/`", min_length=1)]


def describe_keys(app: FastAPI) -> None:
    """Adds the calls to the document. Their functions are never called."""
    path = "/v1/kv/{key}"
    write_responses = openapi.write_responses()

    @app.put(path, response_model=None, tags=["keys"], responses=write_responses, openapi_extra=openapi.RAW_BODY)
    async def put_value(
        key: Key,
        ack: AckQuery = Ack.AUTO,
        timeout_ms: TimeoutQuery = TIMEOUT_MS,
        merge: MergeQuery = Merge.LAST,
        if_match: IfMatch = None,
        if_none_match: IfNoneMatch = None,
        idempotency_key: IdempotencyKey = None,
    ) -> None:
        """Sets the value of a key: the body, with its Content-Type."""

    @app.patch(path, response_model=None, tags=["keys"], responses=write_responses)
    async def change_value(
        key: Key,
        change: schemas.Change,
        ack: AckQuery = Ack.AUTO,
        timeout_ms: TimeoutQuery = TIMEOUT_MS,
        if_match: IfMatch = None,
        if_none_match: IfNoneMatch = None,
        idempotency_key: IdempotencyKey = None,
    ) -> None:
        """Changes a value in a way that merges: both sides of a partition can, and all changes count."""

    @app.delete(path, response_model=None, tags=["keys"], responses=write_responses)
    async def delete_key(
        key: Key,
        ack: AckQuery = Ack.AUTO,
        timeout_ms: TimeoutQuery = TIMEOUT_MS,
        merge: MergeQuery = Merge.LAST,
        if_match: IfMatch = None,
        if_none_match: IfNoneMatch = None,
        idempotency_key: IdempotencyKey = None,
    ) -> None:
        """Removes a key. To remove one that is not there changes nothing, and is no error."""

    read_responses = openapi.read_responses()

    @app.get(path, response_model=None, tags=["keys"], responses=read_responses)
    async def get_value(
        key: Key,
        read: Annotated[
            Read, Query(description="green: final here; red: with all this node has; linearizable")
        ] = Read.GREEN,
        min_revision: MinRevisionQuery = 0,
        revision: RevisionQuery = None,
        wait_revision: WaitRevisionQuery = None,
        timeout_ms: TimeoutQuery = TIMEOUT_MS,
    ) -> None:
        """The value of a key, as it was written."""

    @app.head(path, response_model=None, tags=["keys"], responses=read_responses)
    async def head_value(
        key: Key,
        read: Annotated[Read, Query()] = Read.GREEN,
        min_revision: MinRevisionQuery = 0,
        revision: RevisionQuery = None,
        wait_revision: WaitRevisionQuery = None,
        timeout_ms: TimeoutQuery = TIMEOUT_MS,
    ) -> None:
        """The same without the value."""
