"""`/v1/chaos`: a bad network on request, at nodes started with `--chaos` only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request

from api import openapi
from api.problems import Problem
from api.requests import BodyBudget, body_of, json_of, parameters
from api.schemas import ChaosSettings
from kvstore.node import Node
from transport.chaos import Chaos

BODY_BYTES_MAX = 65_536


def add_chaos(app: FastAPI, node: Node, budget: BodyBudget) -> None:
    responses = openapi.plain_responses(ChaosSettings, may_be_missing=True)

    async def changed(request: Request, base: Chaos | None) -> Chaos:
        parameters(request.scope["query_string"], ())
        body = json_of(await body_of(request.scope, request.receive, BODY_BYTES_MAX, budget))
        present = _check_chaos(node)
        node.chaos = chaos = chaos_of(body, node.config.roster.weights, base or present)
        return chaos

    @app.put(
        "/v1/chaos",
        response_model=None,
        tags=["chaos"],
        responses=responses,
        openapi_extra=openapi.body_of(ChaosSettings),
    )
    async def set_chaos(request: Request) -> dict[str, Any]:
        """Makes the network of this node worse, to see what happens: only with `--chaos`. What the body does not
        name ends."""
        return chaos_json(await changed(request, Chaos()))

    @app.patch(
        "/v1/chaos",
        response_model=None,
        tags=["chaos"],
        responses=responses,
        openapi_extra=openapi.body_of(ChaosSettings),
    )
    async def change_chaos(request: Request) -> dict[str, Any]:
        """Changes the disturbances that the body names. What it does not name stays as it is."""
        return chaos_json(await changed(request, None))

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


def chaos_of(body: object, roster: Iterable[str], base: Chaos) -> Chaos:
    """Returns `base` with what a body names. A name that is not in the roster is an error."""
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
    named = settings.model_dump(exclude_unset=True)
    for field in [name for name in ("drop_from", "drop_to") if name in named]:
        named[field] = frozenset(named[field])
    return replace(base, **named)


def chaos_json(chaos: Chaos) -> dict[str, object]:
    return {
        "drop_from": sorted(chaos.drop_from),
        "drop_to": sorted(chaos.drop_to),
        "loss": chaos.loss,
        "duplication": chaos.duplication,
        "delay_ms": chaos.delay_ms,
        "jitter_ms": chaos.jitter_ms,
    }
