"""`corelkv serve`: one node from its settings until it is told to stop."""

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

from corel.store import StoreError
from kvstore.participant import ParticipantConfig
from kvstore.service import Service, ServiceConfig
from kvstore.settings import Settings
from transport.incarnation import IncarnationError
from transport.udp import UdpError

log = logging.getLogger("corelkv")


class ServeError(Exception):
    """The node cannot start, or had to stop. The message says what to do."""


def serve(settings: Settings) -> None:
    """Returns after SIGINT or SIGTERM; raises `ServeError`."""
    configure_logging(settings)
    _raise_file_limit()
    uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from api.server import ServerError, listen
    from api.server import serve as serve_http

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    failures: list[Exception] = []

    def on_failed(error: Exception) -> None:
        failures.append(error)
        stop.set()

    try:
        listener = listen(settings.http)
    except ServerError as error:
        raise ServeError(str(error)) from error
    with listener:
        service = _start(settings, on_failed)
        try:
            _calm_collector()
            log.info("node %s is up: %s, data in %s", service.me, own_url(settings), settings.data)
            await serve_http(service, listener, urls_of(settings), settings.chaos, stop)
        finally:
            await service.close()
    if failures:
        raise ServeError(f"node {settings.node} stopped, its data intact: {failures[0]}") from failures[0]
    log.info("node %s has stopped", settings.node)


def _start(settings: Settings, on_failed: Callable[[Exception], None]) -> Service:
    try:
        return Service(service_config(settings), on_failed)
    except (StoreError, IncarnationError, UdpError, OSError) as error:
        raise ServeError(f"node {settings.node} cannot start: {error}") from error


def service_config(settings: Settings) -> ServiceConfig:
    participant = ParticipantConfig(
        node=settings.node,
        roster=settings.roster,
        data=settings.data,
        mode=settings.mode,
        cluster=settings.cluster,
        is_new_cluster=settings.bootstrap,
        transport=settings.transport,
        membership=settings.membership,
        corel=settings.log,
        datagram_bytes_max=settings.datagram_bytes_max,
        with_chaos=settings.chaos,
    )
    return ServiceConfig(participant, settings.store, settings.data / "journal" if settings.journal else None)


def own_url(settings: Settings) -> str:
    host, port = settings.http
    return settings.urls.get(settings.node, f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


def urls_of(settings: Settings) -> dict[str, str]:
    """A node knows at least where it is itself."""
    return {settings.node: own_url(settings), **settings.urls}


# Logging


class JsonFormatter(logging.Formatter):
    """An object per line."""

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


def configure_logging(settings: Settings) -> None:
    handler = logging.StreamHandler()
    if settings.log_format == "json":
        handler.setFormatter(JsonFormatter(settings.node))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)-7s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)


def _calm_collector() -> None:
    """Nearly everything here dies by its reference count. To look for cycles after every 700 objects, and through
    all of them every so often, made the slowest requests half again as slow."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _raise_file_limit() -> None:
    """Every connection is a file, and the usual soft limit is a quarter of the connections that a node takes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
