"""`/v1/chaos`: a bad network on request, at nodes started with `--chaos` only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI, Request

from api import openapi
from api.problems import Problem
from api.requests import BodyBudget, body_of, json_of, parameters
from api.schemas import ChaosSettings
from kvstore.node import Node
from transport.chaos import Chaos


def add_chaos(app: FastAPI, node: Node, budget: BodyBudget) -> None:
    responses = openapi.plain_responses(ChaosSettings, may_be_missing=True)

    @app.put(
        "/v1/chaos",
        response_model=None,
        tags=["chaos"],
        responses=responses,
        openapi_extra=openapi.body_of(ChaosSettings),
    )
    async def set_chaos(request: Request) -> dict[str, Any]:
        """Makes the network of this node worse, to see what happens: only with `--chaos`."""
        parameters(request.scope["query_string"], ())
        body = json_of(await body_of(request.scope, request.receive, 65_536, budget))
        _check_chaos(node)
        node.chaos = chaos = chaos_of(body, node.config.roster.weights)
        return chaos_json(chaos)

    @app.delete("/v1/chaos", response_model=None, tags=["chaos"], responses=responses)
    async def clear_chaos(request: Request) -> dict[str, Any]:
        """Ends all disturbances of this node's network."""
        parameters(request.scope["query_string"], ())
        _check_chaos(node)
        node.chaos = chaos = Chaos()
        return chaos_json(chaos)

    @app.get("/v1/chaos", response_model=None, tags=["chaos"], responses=responses)
    async def get_chaos(request: Request) -> dict[str, Any]:
        """The disturbances of this node's network at present."""
        parameters(request.scope["query_string"], ())
        return chaos_json(_check_chaos(node))


def _check_chaos(node: Node) -> Chaos:
    """Returns the disturbances of this node's network at present. Raises `Problem` without `--chaos`."""
    chaos = node.chaos
    if chaos is None:
        raise Problem(
            404, "chaos_disabled", "This node was started without --chaos, so its network cannot be disturbed."
        )
    return chaos


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
