"""`GET /v1/status/stream`: the status of this node as Server-Sent Events, whenever it changes.

All streams of a node share one timer, which runs only while there is a stream, and one encoding of the status.
Nothing is queued for a stream: one that is slow gets the newest status when it has taken the last, and all
milestones and samples that it lacks, of which the node keeps a bounded number. A sample comes each second, so a
reader can tell a node at rest from a stream that is broken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping

from api.answers import problem_response, to_json
from api.chaos import chaos_json
from api.figures import Figures
from api.problems import Problem
from api.requests import Receive, Scope, Send, parameters
from api.status import members_json, milestone_json, status_json
from corel.disk_errors import DiskError
from kvstore.node import Node

PATH = "/v1/status/stream"
STREAMS_MAX = 64
"""Most streams of a node: the rest of its connections is for requests."""
TICK_SECONDS = 0.4
"""At most one status in this time. Under load each tick has one for every stream, and half of this cost twice as
much; people see no difference, because the page moves its bars evenly from one status to the next."""
RETRY_MS = 1_000

_HEAD = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_MOMENTARY = ("uptime_s", "disk_used", "log", "dropped_datagrams", "watchers")
"""What changes all the time, or says little: `/v1/status` has it."""


class StatusStreamApp:
    """An ASGI application for `/v1/status/stream`."""

    def __init__(self, node: Node, urls: Mapping[str, str], figures: Figures) -> None:
        self._feed = StatusFeed(node, urls, figures)

    @property
    def streams(self) -> int:
        """How many are open."""
        return self._feed.streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] != "GET":
                raise Problem(405, "method_not_allowed", "A stream takes GET.", headers={"Allow": "GET"})
            parameters(scope["query_string"], ())
            if self._feed.streams >= STREAMS_MAX:
                raise Problem(
                    503,
                    "too_many_streams",
                    f"This node has {STREAMS_MAX} streams of its status already. Open the console of another "
                    "node, or close one here.",
                    headers={"Retry-After": "5"},
                )
        except Problem as problem:
            await problem_response(problem).send(send)
            return
        with self._feed.open() as stream:
            await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
            await send(_part(f"retry: {RETRY_MS}\n\n".encode()))
            async for chunk in stream.chunks():
                await send(_part(chunk))
        await send({"type": "http.response.body", "body": b""})


def _part(body: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": body, "more_body": True}


class StatusFeed:
    """The status as its streams share it."""

    def __init__(self, node: Node, urls: Mapping[str, str], figures: Figures) -> None:
        self.node = node
        self.figures = figures
        self.status_event = b""
        self.statuses = 0
        """How many different ones there have been."""
        self._urls = urls
        self._status = ""
        self._streams: set[Stream] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def streams(self) -> int:
        return len(self._streams)

    def open(self) -> Stream:
        return Stream(self)

    def add(self, stream: Stream) -> None:
        self._streams.add(stream)
        if self._timer is None:
            self._tick()

    def remove(self, stream: Stream) -> None:
        self._streams.discard(stream)
        if not self._streams and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        try:
            status = to_json(self._content())
        except DiskError:
            return  # a log that is being opened again: the next tick will tell
        if status != self._status:
            self._status = status
            self.statuses += 1
            time_ms = round(time.time() * 1_000.0)
            self.status_event = f'event: status\ndata: {{"time_ms":{time_ms},{status[1:]}\n\n'.encode()
        for stream in self._streams:
            stream.wake_if_news()

    def _content(self) -> dict[str, object]:
        status, chaos = self.node.status(), self.node.chaos
        content = status_json(status)
        for name in _MOMENTARY:
            del content[name]
        return {
            **content,
            "started_ms": round(self.node.started_at * 1_000.0),
            "cluster": self.node.config.cluster,
            "nodes": members_json(status, self._urls),
            "lab": {
                "chaos": None if chaos is None else chaos_json(chaos),
                "supervised": chaos is not None and self.node.config.supervisor is not None,
            },
        }


class Stream:
    """One reader of the feed. Use it as a context manager."""

    def __init__(self, feed: StatusFeed) -> None:
        self._feed = feed
        self._woken = asyncio.Event()
        self._statuses = self._milestones = self._samples = -1

    def __enter__(self) -> Stream:
        self._feed.add(self)
        return self

    def __exit__(self, *problem: object) -> None:
        self._feed.remove(self)

    def wake_if_news(self) -> None:
        """Wakes the stream if there is something that it has not sent."""
        feed = self._feed
        if (
            self._statuses != feed.statuses
            or self._milestones != feed.node.milestones.count
            or self._samples != feed.figures.count
            or feed.node.has_ended_feeds
        ):
            self._woken.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields events as they come, until the node stops."""
        while not self._feed.node.has_ended_feeds:
            if chunk := b"".join(self._news()):
                yield chunk
            self._woken.clear()
            self.wake_if_news()
            await self._woken.wait()

    def _news(self) -> Iterator[bytes]:
        feed = self._feed
        if self._milestones != feed.node.milestones.count:
            new = feed.node.milestones.after(max(self._milestones, 0))
            self._milestones = feed.node.milestones.count
            yield _event("milestones", to_json([milestone_json(one) for one in new]))
        if self._samples != feed.figures.count:
            samples = feed.figures.after(max(self._samples, 0))
            self._samples = feed.figures.count
            yield _event("figures", samples)
        if self._statuses != feed.statuses:
            self._statuses = feed.statuses
            yield feed.status_event


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode()
