"""All calls but the hot ones (`kv`), as FastAPI routes. The application's OpenAPI document describes the whole
API, including the hot calls (`kv_openapi`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.responses import Response as StarletteResponse
from starlette.exceptions import HTTPException

from api import openapi, schemas
from api.answers import outcome_json, problem_response, write_response
from api.chaos import add_chaos
from api.conflicts import add_conflicts
from api.history import add_history
from api.kv_openapi import AckQuery, IdempotencyKey, TimeoutQuery, describe_keys
from api.lab import add_lab
from api.lists_openapi import describe_lists
from api.measuring import UNTIMED
from api.metrics import add_metrics
from api.pages import starlette
from api.problems import Problem, problem_of, trouble
from api.requests import (
    TIMEOUT_MS,
    BodyBudget,
    body_of,
    choice,
    headers_of,
    number,
    parameters,
)
from api.slices import Turns
from api.snapshots import add_snapshots
from api.status import cluster_json, log_json, status_json
from api.transactions import transaction_of
from api.watch_openapi import describe_streams
from corel import Color, MessageId, Stage
from corel.disk_errors import DiskError
from kvstore.node import Node
from kvstore.store import Ack, Compacted, FateForgotten, InvalidWrite, Overloaded, Trouble
from transport import SEQUENCE_MAX, Machine

TXN_BODY_BYTES_MAX = 8 * 1_048_576
LOG_LIMIT = 100
LOG_LIMIT_MAX = 1_000

_DESCRIPTION = """
A replicated key-value store that keeps accepting writes on both sides of a network partition and always says what
each write is worth: **green** (its place in the one order of all writes is final), **yellow** (about to be),
**red** (durable here, order still open; it merges when the network heals).
"""


def make_app(node: Node, budget: BodyBudget, turns: Turns, urls: Mapping[str, str]) -> FastAPI:
    app = FastAPI(
        title="corelkv", version="0.1.0", description=_DESCRIPTION, redoc_url=None, redirect_slashes=False
    )
    _handle_errors(app, node)
    describe_keys(app)
    describe_streams(app)
    describe_lists(app)
    add_history(app, node, turns)
    add_conflicts(app, node, turns)
    _add_writes(app, node, budget)
    _add_status(app, node, urls)
    _add_probes(app, node)
    add_snapshots(app, node, turns)
    add_metrics(app, node)
    add_chaos(app, node, budget)
    add_lab(app, node, budget)
    openapi.complete(app.openapi(), node.config.roster.weights)
    return app


def _handle_errors(app: FastAPI, node: Node) -> None:
    @app.exception_handler(Problem)
    @app.exception_handler(InvalidWrite)
    @app.exception_handler(Overloaded)
    @app.exception_handler(DiskError)
    @app.exception_handler(Compacted)
    @app.exception_handler(FateForgotten)
    async def on_problem(request: Request, error: Exception) -> StarletteResponse:
        return starlette(problem_response(problem_of(error, node.revision)))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        code = {404: "no_such_path", 405: "method_not_allowed"}.get(error.status_code, "error")
        message = f"{request.method} {request.url.path}: {error.detail}. See /docs."
        return JSONResponse({"error": code, "message": message}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][1:])
        message = f"The parameter {name} is wrong: {first['msg']}. See /docs."
        if first["type"] == "missing":
            message = f"The parameter {name} is missing. See /docs."
        return JSONResponse({"error": "invalid_parameter", "message": message}, 400)


def _add_writes(app: FastAPI, node: Node, budget: BodyBudget) -> None:
    @app.post(
        "/v1/txn",
        response_model=None,
        tags=["keys"],
        responses=openapi.write_responses(),
        openapi_extra=openapi.body_of(schemas.Txn),
    )
    async def transaction(
        request: Request,
        ack: AckQuery = Ack.AUTO,
        timeout_ms: TimeoutQuery = TIMEOUT_MS,
        idempotency_key: IdempotencyKey = None,
    ) -> StarletteResponse:
        """Several operations at one place in the order: all of them, or, if a condition fails, those of `else`. A
        failed condition without an `else` is a 412."""
        parameters(request.scope["query_string"], ("ack", "timeout_ms"))
        if headers_of(request.scope, (b"if-match", b"if-none-match", b"idempotency-key")).keys() - {
            b"idempotency-key"
        }:
            raise Problem(400, "invalid_header", "A transaction has its conditions in `if`, not in headers.")
        body = await body_of(request.scope, request.receive, TXN_BODY_BYTES_MAX, budget)
        write = transaction_of(body, idempotency_key)
        answer = await node.write(write, ack, timeout_ms)
        return starlette(write_response(answer, write))

    @app.get("/v1/writes/{write_id}", response_model=None, tags=["writes"], responses=openapi.fate_responses())
    async def write_fate(
        request: Request,
        write_id: Annotated[str, Path(description="As the write's answer gave it")],
        wait: Annotated[schemas.Wait | None, Query(description="green: answer when it is final")] = None,
        timeout_ms: TimeoutQuery = TIMEOUT_MS,
    ) -> dict[str, Any]:
        """What became of a write. Every node can tell, for as long as that is kept."""
        parameters(request.scope["query_string"], ("wait", "timeout_ms"))
        message_id, index = _parse_write_id(write_id)
        known = node.outcome(message_id, index)
        if wait is not None and (known is None or known[0] is not Color.GREEN):
            request.scope["state"][UNTIMED] = True
            await node.until_green(message_id, timeout_ms)
            known = node.outcome(message_id, index)
        if known is None:
            raise Problem(
                404,
                "unknown_write",
                f"This node does not know of a write {write_id}. If it was accepted by a node that this one has "
                "not met since, ask that node, or ask again when they are connected.",
            )
        return {"id": write_id, **outcome_json(*known)}


def _parse_write_id(text: str) -> tuple[MessageId, int]:
    name, *numbers = text.rsplit(".", 3)
    if not name or len(numbers) != 3 or not all(n.isascii() and n.isdigit() and len(n) < 19 for n in numbers):
        raise Problem(
            400, "invalid_write_id", "A write id is what a write was answered with, such as a.1794953000123.17.0."
        )
    incarnation, sequence, index = map(int, numbers)
    if sequence > SEQUENCE_MAX:
        raise Problem(400, "invalid_write_id", "There are no such write ids.")
    return MessageId(Machine(name, incarnation), sequence), index


def _add_status(app: FastAPI, node: Node, urls: Mapping[str, str]) -> None:
    @app.get("/v1/status", response_model=None, tags=["node"], responses=openapi.plain_responses(schemas.Status))
    async def status(request: Request) -> dict[str, Any]:
        """This node: its view, its lines, its state."""
        parameters(request.scope["query_string"], ())
        return status_json(node.status())

    @app.get("/v1/log", response_model=None, tags=["node"], responses=openapi.log_responses())
    async def log(
        request: Request,
        first: Annotated[
            int | None,
            Query(alias="from", ge=0, le=2**53, description="Position of the first; without it, the first kept"),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=LOG_LIMIT_MAX, description="Most messages to show")] = LOG_LIMIT,
    ) -> dict[str, Any]:
        """Messages of the log in their order, whatever their colour."""
        found = parameters(request.scope["query_string"], ("from", "limit"))
        first = number(found, "from", 0, 0, 2**53) if "from" in found else None
        return log_json(node.read_log(first, number(found, "limit", LOG_LIMIT, 1, LOG_LIMIT_MAX)))

    @app.get("/v1/cluster", response_model=None, tags=["node"], responses=openapi.plain_responses(schemas.Cluster))
    async def cluster(request: Request) -> dict[str, Any]:
        """What this node knows of every node of the roster."""
        parameters(request.scope["query_string"], ())
        return cluster_json(node.status(), urls)


def _add_probes(app: FastAPI, node: Node) -> None:
    @app.get("/livez", tags=["node"], response_class=PlainTextResponse)
    async def alive() -> str:
        """Whether the process answers."""
        return "ok\n"

    @app.get("/readyz", response_model=None, tags=["node"], responses=openapi.ready_responses())
    async def ready(
        request: Request, need: Annotated[schemas.Need | None, Query(description="primary: only in one")] = None
    ) -> dict[str, Any]:
        """Whether the node takes requests; with `need=primary`, whether green writes go through."""
        choice(parameters(request.scope["query_string"], ("need",)), "need", schemas.Need, schemas.Need.PRIMARY)
        status = node.status()
        if status.trouble is not None:
            raise trouble(Trouble.AWAY, status.trouble)
        if need is not None and not status.is_primary:
            raise trouble(Trouble.NO_PRIMARY, "This node is not in a primary component.")
        if status.stage is Stage.RECOVERING and not status.is_open:
            raise trouble(Trouble.TIMEOUT, "This node is still finding out who is connected. Ask again soon.")
        return {"ready": True, "state": str(status.stage)}
