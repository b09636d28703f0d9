"""The HTTP server: uvicorn on the node's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Any

import uvicorn

from api.app import App
from api.figures import Figures
from api.http_protocol import CONNECTIONS_MAX, IDLE_SECONDS, BoundedHttpProtocol
from kvstore.node import Node
from transport.udp import Address

STOP_SECONDS = 5
"""How long requests in flight may continue when the node stops."""
ANSWER_SECONDS = 3.0
"""When this time has passed after the signal to stop, the requests that still wait are answered."""


class ServerError(Exception):
    """The server cannot start. The message says what to do."""


class _Server(uvicorn.Server):
    """A server that leaves signals to the program that runs the node."""

    def capture_signals(self) -> Any:
        return contextlib.nullcontext()


def listen(http: Address) -> socket.socket:
    """Returns a socket that listens on the address. Raises `ServerError`."""
    host, port = http
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1_024)
    except OSError as error:
        listener.close()
        raise ServerError(
            f"cannot serve HTTP on {host}:{port}: {error.strerror}. Choose another address with --http."
        ) from None
    return listener


async def serve_http(node: Node, listener: socket.socket, urls: Mapping[str, str], stop: asyncio.Event) -> None:
    """Accepts requests until `stop` is set, then answers those in flight."""
    figures = Figures(node)
    config = uvicorn.Config(
        App(node, urls, figures),
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(IDLE_SECONDS),
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    server = _Server(config)
    node.metrics.http.queues["connections"] = (lambda: len(server.server_state.connections), CONNECTIONS_MAX)

    async def end() -> None:
        await stop.wait()
        server.should_exit = True
        node.end_feeds()
        await asyncio.sleep(ANSWER_SECONDS)
        node.leave()

    ending = asyncio.create_task(end())
    sampling = asyncio.create_task(figures.run())
    try:
        await server.serve(sockets=[listener])
    finally:
        ending.cancel()
        sampling.cancel()
