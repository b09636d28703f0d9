"""`GET /metrics`: what Prometheus reads of a node, as text or as OpenMetrics.

The families are made anew for every request (`Node.collect`), on the event loop: nothing changes meanwhile, and no
lock is needed."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import Response as StarletteResponse
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from api import openapi
from api.requests import parameters
from kvstore.node import Node

encode_text: Callable[[CollectorRegistry], bytes] = generate_latest
encode_openmetrics: Callable[[CollectorRegistry], bytes] = openmetrics.generate_latest

_OPENMETRICS = "application/openmetrics-text"
_TEXT = ("text/plain", "text/*", "*/*")


def add_metrics(app: FastAPI, node: Node) -> None:
    registry = CollectorRegistry()
    registry.register(node)
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)

    def answer(request: Request) -> StarletteResponse:
        parameters(request.scope["query_string"], ())
        if wants_openmetrics(request.headers.get("accept", "")):
            content, kind = encode_openmetrics(registry), openmetrics.CONTENT_TYPE_LATEST
        else:
            content, kind = encode_text(registry), CONTENT_TYPE_PLAIN_0_0_4
        return StarletteResponse(content, headers={"content-type": kind})

    @app.get("/metrics", response_class=StarletteResponse, tags=["node"], responses=_responses())
    async def get_metrics(request: Request) -> StarletteResponse:
        """This node's metrics for Prometheus; as OpenMetrics, if `Accept` prefers that."""
        return answer(request)

    @app.head("/metrics", response_class=StarletteResponse, tags=["node"], responses=_responses())
    async def head_metrics(request: Request) -> StarletteResponse:
        """The same without the metrics."""
        return answer(request)


def wants_openmetrics(accept: str) -> bool:
    """Returns whether an `Accept` header prefers OpenMetrics to text. A header that makes no sense does not."""
    best: dict[str, float] = {}
    for part in accept.split(","):
        kind, *parameter_list = [piece.strip().lower() for piece in part.split(";")]
        quality = 1.0
        for parameter in parameter_list:
            if parameter.startswith("q="):
                quality = _quality(parameter[2:])
        best[kind] = max(quality, best.get(kind, 0.0))
    wanted = best.get(_OPENMETRICS, 0.0)
    return wanted > 0.0 and wanted >= max(best.get(kind, 0.0) for kind in _TEXT)


def _quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0.0 <= quality <= 1.0 else 0.0


def _responses() -> openapi.Responses:
    kinds = (CONTENT_TYPE_PLAIN_0_0_4, openmetrics.CONTENT_TYPE_LATEST)
    content = {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind in kinds}
    return {200: {"description": "As they are now", "content": content}, **openapi.metrics_errors()}
