"""A shell without a network: it performs the steps of the client's core with scripted answers, on a clock of its
own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from kvstore.client import Reply, Request, RetryPolicy
from kvstore.client.calls import Calls
from kvstore.client.replies import Failure
from kvstore.client.session import Session
from kvstore.client.steps import Answer, Emit, Exchange, Feed, Open, Pause, Read, Step, Steps

T = TypeVar("T")

A, B, C = (f"http://{name}" for name in "abc")

REFUSED = "refused"
"""No connection: nothing was sent."""
LOST = "lost"
"""The request may have arrived; there is no answer."""

Scripted = Reply | str
"""An answer of a node; `REFUSED` and `LOST` stand for failures."""


def reply(status: int, content: object = None, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply("", status, dict(headers or {}), b"" if content is None else json.dumps(content).encode())


def problem(status: int, code: str, headers: Mapping[str, str] | None = None, **details: object) -> Reply:
    return reply(status, {"error": code, "message": f"This is {code}.", **details}, headers)


GREEN = reply(200, {"id": "a.1.2.0", "color": "green", "revision": 7, "outcome": "applied"})
RED = reply(202, {"id": "c.1.2.0", "color": "red", "outcome": "pending"})
NO_PRIMARY = problem(503, "no_primary", {"retry-after": "1"})
OVERLOADED = problem(429, "overloaded", {"retry-after": "1"})
UNDECIDED = problem(504, "undecided", {"retry-after": "1"}, id="a.1.3.0")
REJECTED = problem(412, "condition_failed", id="a.1.2.0", color="green", outcome="rejected", key="k", revision=9)


@dataclass
class World:
    """Performs steps. `answer` is asked for what a node says; a list is used up, its last answer stays."""

    nodes: dict[str, list[Scripted] | Callable[[Request], Scripted]] = field(default_factory=dict)
    streams: dict[str, list[list[bytes | str]]] = field(default_factory=dict)
    """Per node, the pieces of its streams, one list for each that is opened."""
    stream_headers: dict[str, str] = field(default_factory=dict)
    now: float = 1_000.0
    asked: list[tuple[str, Request]] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    _stream: list[bytes | str] = field(default_factory=list)
    _url: str = ""

    def session(self, *urls: str, policy: RetryPolicy | None = None, **options: Any) -> Session:
        rules = {"prefer": None, "discover": False, "rng": Random(1), "clock": lambda: self.now, **options}
        return Session(urls or (A, B, C), policy=policy or RetryPolicy(), **rules)

    def calls(self, *urls: str, **options: Any) -> Calls:
        keys = iter(range(1_000))
        return Calls(self.session(*urls, **options), lambda: f"key-{next(keys)}")

    def run(self, steps: Steps[T]) -> T:
        answer: Answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = self.perform(step)

    def take(self, feed: Feed[T], count: int) -> list[T]:
        """Returns the first items of a feed; fewer if it ends before."""
        found: list[T] = []
        answer: Answer = None
        while len(found) < count:
            try:
                step = feed.send(answer)
            except StopIteration:
                break
            answer = None
            if isinstance(step, Emit):
                found.append(step.item)
            else:
                answer = self.perform(step)
        feed.close()
        return found

    def perform(self, step: Step) -> Answer:
        if isinstance(step, Exchange):
            return self._heard(step.url, step.request)
        if isinstance(step, Open):
            return self._opened(step.url, step.request)
        if isinstance(step, Pause):
            self.pauses.append(step.seconds)
            self.now += step.seconds
        elif isinstance(step, Read):
            piece = self._stream.pop(0) if self._stream else b""
            return piece if isinstance(piece, bytes) else Failure(self._url, piece, True)
        return None

    @property
    def urls(self) -> list[str]:
        return [url for url, _ in self.asked]

    def _heard(self, url: str, request: Request) -> Reply | Failure:
        self.asked.append((url, request))
        script = self.nodes[url]
        said = script(request) if callable(script) else script.pop(0) if len(script) > 1 else script[0]
        if isinstance(said, str):
            return Failure(url, said, said == LOST)
        return Reply(url, said.status, said.headers, said.body)

    def _opened(self, url: str, request: Request) -> Reply | Failure:
        streams = self.streams.get(url)
        if not streams:
            return self._heard(url, request)
        self.asked.append((url, request))
        self._stream, self._url = streams.pop(0), url
        return Reply(url, 200, self.stream_headers)
