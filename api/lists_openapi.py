"""Describes the call of `lists` for the OpenAPI document. FastAPI only documents it; `lists` answers it."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query

from api import openapi
from api.kv_openapi import MinRevisionQuery, RevisionQuery, TimeoutQuery
from api.lists import PATH
from api.pages import LIMIT, LIMIT_MAX
from api.reads import Read
from api.requests import TIMEOUT_MS

PrefixQuery = Annotated[str, Query(description="Only keys that begin with it")]
CursorQuery = Annotated[str | None, Query(description="What the page before gave, to go on where it ended")]


def describe_lists(app: FastAPI) -> None:
    """Adds the call to the document. Its function is never called."""

    @app.get(PATH, response_model=None, tags=["keys"], responses=openapi.list_responses())
    async def list_keys(
        prefix: PrefixQuery = "",
        start: Annotated[str, Query(description="Only keys from this one on")] = "",
        end: Annotated[str, Query(description="Only keys before this one")] = "",
        reverse: Annotated[bool, Query(description="From the last key to the first")] = False,
        limit: Annotated[
            int, Query(ge=1, le=LIMIT_MAX, description="Most keys of a page; a stream may have any number")
        ] = LIMIT,
        cursor: CursorQuery = None,
        keys_only: Annotated[bool, Query(description="Without the values")] = False,
        count_only: Annotated[bool, Query(description="Only how many keys there are")] = False,
        read: Annotated[Read, Query(description="As for a key")] = Read.GREEN,
        revision: RevisionQuery = None,
        min_revision: MinRevisionQuery = 0,
        timeout_ms: TimeoutQuery = TIMEOUT_MS,
    ) -> None:
        """The keys of a range in order, a page at a time. All pages are of one revision. With
        `Accept: application/x-ndjson`, all of them as a stream, an item in each line."""
