"""Describes `/v1/watch` and `/v1/status/stream` for the OpenAPI document. FastAPI only documents them; `watch` and
`status_stream` answer them."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Header, Query

from api import openapi


def describe_streams(app: FastAPI) -> None:
    """Adds the calls to the document. Their functions are never called."""

    @app.get("/v1/status/stream", response_model=None, tags=["node"], responses=openapi.stream_responses())
    async def status_stream() -> None:
        """This node's status as Server-Sent Events, whenever it changes: `status`, `milestones` (views, stages and
        phases) and `figures` (one sample each second, and first those of the last minutes). The console is made of
        it."""

    @app.get("/v1/watch", response_model=None, tags=["feeds"], responses=openapi.stream_responses())
    async def watch(
        prefix: Annotated[list[str] | None, Query(description="Keys that begin with it; repeatable")] = None,
        key: Annotated[list[str] | None, Query(description="This key; repeatable")] = None,
        first: Annotated[
            int | None, Query(alias="from", ge=0, le=2**63 - 1, description="The first revision wanted")
        ] = None,
        prev: Annotated[bool, Query(description="What each key held before, too")] = False,
        colors: Annotated[
            str, Query(description="With red or yellow: also writes that are not green, without an id")
        ] = "green",
        last_event_id: Annotated[
            str | None,
            Header(alias="Last-Event-ID", pattern="^[0-9]{1,19}$", description="The last revision seen"),
        ] = None,
    ) -> None:
        """Changes as Server-Sent Events: one for each revision, in order, exactly once. A watch resumes on any
        node with the id of its last event."""
