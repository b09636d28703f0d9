"""`POST /v1/lab/nodes/{name}`: kills and starts nodes that `corelkv cluster` runs, with `--chaos` only.

A node cannot start itself when it is dead, so the process that watches the nodes does both. Every node relays to
it, through a Unix socket (decision 25)."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request

from api import openapi
from api.problems import Problem
from api.requests import BodyBudget, body_of, json_of, parameters
from api.schemas import LabAction, LabActionKind
from kvstore.node import Node

RELAY_SECONDS = 5.0
"""How long the supervisor may take to answer."""


def add_lab(app: FastAPI, node: Node, budget: BodyBudget) -> None:
    @app.post(
        "/v1/lab/nodes/{name}",
        response_model=None,
        tags=["chaos"],
        responses=openapi.lab_responses(),
        openapi_extra=openapi.body_of(LabAction),
    )
    async def act(
        request: Request, name: Annotated[str, Path(description="A node of the roster")]
    ) -> dict[str, Any]:
        """Kills a node of a dev cluster with SIGKILL, after which it stays down, or starts it again. Only where
        `corelkv cluster` runs the nodes, and not with `--no-chaos`."""
        parameters(request.scope["query_string"], ())
        body = json_of(await body_of(request.scope, request.receive, 1_024, budget))
        if node.chaos is None:
            raise Problem(
                404, "chaos_disabled", "This node was started without --chaos, so its cluster has no laboratory."
            )
        if node.config.supervisor is None:
            raise Problem(
                404,
                "no_supervisor",
                "Nobody watches this node's process who could kill or start it. Start the cluster with "
                "`corelkv cluster`, or use your own service manager.",
            )
        if name not in node.config.roster.weights:
            raise Problem(404, "no_such_node", f"There is no node {name!r} in the roster.")
        return await _relay(str(node.config.supervisor), name, lab_action_of(body))


def lab_action_of(body: object) -> LabActionKind:
    if isinstance(body, dict) and set(body) == {"action"} and body["action"] in list(LabActionKind):
        return LabActionKind(body["action"])
    raise Problem(400, "invalid_action", 'The body is {"action": "kill"} or {"action": "start"}.')


async def _relay(socket: str, name: str, action: LabActionKind) -> dict[str, Any]:
    """Returns the supervisor's answer, one JSON object on one line, to ours. Raises `Problem`."""
    try:
        async with asyncio.timeout(RELAY_SECONDS):
            reader, writer = await asyncio.open_unix_connection(socket)
            try:
                writer.write(json.dumps({"node": name, "action": str(action)}).encode() + b"\n")
                answer = json.loads(await reader.readline())
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):
        raise Problem(
            503,
            "supervisor_unreachable",
            "The process that watches this cluster's nodes does not answer. See the terminal in which "
            "`corelkv cluster` runs.",
            headers={"Retry-After": "1"},
        ) from None
    if "error" in answer:
        raise Problem(409, str(answer["error"]), str(answer.get("message", "")))
    return {"node": name, "running": bool(answer.get("running"))}
