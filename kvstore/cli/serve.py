"""`corelkv serve`: runs one node until a signal stops it."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import resource
import signal
from collections.abc import Callable
from datetime import UTC, datetime

import uvloop

from api import ServerError, listen, serve_http
from corel.disk_errors import DiskError
from kvstore.node import Node, NodeConfig, SyncedNumberError
from transport.udp import UdpError

logger = logging.getLogger("corelkv")


class ServeError(Exception):
    """The node cannot start, or had to stop. The message says what to do."""


def serve(config: NodeConfig) -> None:
    """Runs the node until SIGINT or SIGTERM. Raises `ServeError`."""
    configure_logging(config)
    _raise_file_limit()
    uvloop.run(_serve(config))


async def _serve(config: NodeConfig) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    failures: list[Exception] = []

    def on_failed(error: Exception) -> None:
        failures.append(error)
        stop.set()

    try:
        listener = listen(config.http)
    except ServerError as error:
        raise ServeError(str(error)) from error
    with listener:
        node = _start(config, on_failed)
        try:
            _tune_garbage_collector()
            logger.info("node %s is up: %s, data in %s", node.me, own_url(config), config.data)
            await serve_http(node, listener, urls_of(config), stop)
        finally:
            await node.close()
    if failures:
        raise ServeError(f"node {config.node} stopped, its data intact: {failures[0]}") from failures[0]
    logger.info("node %s has stopped", config.node)


def _start(config: NodeConfig, on_failed: Callable[[Exception], None]) -> Node:
    try:
        node = Node(config, on_failed)
        node.start()
    except (DiskError, SyncedNumberError, UdpError, OSError) as error:
        raise ServeError(f"node {config.node} cannot start: {error}") from error
    return node


def own_url(config: NodeConfig) -> str:
    host, port = config.http
    return config.urls.get(config.node, f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


def urls_of(config: NodeConfig) -> dict[str, str]:
    """Returns the URLs of the nodes that this node knows, which include at least its own."""
    return {config.node: own_url(config), **config.urls}


# Logging


class JsonFormatter(logging.Formatter):
    """Formats each record as a JSON object on one line."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "node": self._node,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure_logging(config: NodeConfig) -> None:
    handler = logging.StreamHandler()
    if config.log_format == "json":
        handler.setFormatter(JsonFormatter(config.node))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)-7s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler], force=True)


def _tune_garbage_collector() -> None:
    """Makes the cyclic garbage collector run rarely, since reference counting frees nearly everything here.
    Looking for cycles after every 700 objects, and through all objects every so often, made the slowest requests
    half again as slow."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _raise_file_limit() -> None:
    """Raises the limit of open files: every connection is a file, and the usual soft limit is a quarter of the
    connections that a node accepts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
