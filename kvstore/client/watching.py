"""A watch, as steps: it emits every revision once, in order, from whichever node can serve it.

The resume point is the last revision that was emitted, or that a node said the watch has passed (an `id:` without
data, with which every stream begins). `from` is asked for until the first of them arrives, and `Last-Event-ID`
after that. What a node sends at or before the resume point has been emitted already, and is dropped: so it does
not matter whether two nodes agree on where a stream was cut. Nodes keep different parts of the past; a watch is
too late only when every node that answers says so."""

from __future__ import annotations

import json
from typing import Any, TypeAlias, TypedDict

from kvstore.client.calls import Calls
from kvstore.client.decoding import event_of, tentative_of
from kvstore.client.errors import ClientError, Unavailable, Unreachable
from kvstore.client.replies import Failure
from kvstore.client.requests import Request, query_of
from kvstore.client.results import Decided, Event, Recolored, Reconnected, Tentative
from kvstore.client.session import Attempts
from kvstore.client.sse import Message, Parser, StreamError
from kvstore.client.steps import Answer, Close, Emit, Feed, Pause, Steps, read_stream

SILENCE_SECONDS = 45.0
"""A stream on which nothing arrives for this long is given up, and the watch goes on at another. Nodes send
heartbeats more often."""

WatchEvent: TypeAlias = Event | Tentative | Recolored | Decided | Reconnected


class WatchOptions(TypedDict, total=False):
    """What to watch. Without a prefix or key, everything."""

    prefix: str | list[str]
    """Keys that begin with this, or with one of these."""
    key: str
    """This key only."""
    from_revision: int
    """The first revision that is wanted. By default, the watch begins with what becomes green at its node after
    that has begun to serve it."""
    previous: bool
    """Whether changes have what they replaced."""
    silence: float
    """A stream on which nothing arrives for so many seconds is replaced (45 by default)."""


class Watch:
    """One watch. `is_tentative` asks for writes that are not green yet, too."""

    def __init__(self, calls: Calls, options: WatchOptions, is_tentative: bool) -> None:
        self._session = calls.session
        self._options = options
        self._is_tentative = is_tentative
        self._next = options.get("from_revision")
        self._last: int | None = None
        self._is_connected_before = False
        self._fruitless = 0
        """How many streams in a row ended without anything new."""

    def green(self) -> Feed[Event]:
        """As `run`, for a watch that is not tentative."""
        answer: Answer = None
        steps = self.run()
        while True:
            step = steps.send(answer)
            if not isinstance(step, Emit):
                answer = yield step
            elif isinstance(step.item, Event):
                answer = yield Emit(step.item)
            else:
                answer = None

    def run(self) -> Feed[WatchEvent]:
        while True:
            url = yield from self._open()
            if self._is_connected_before and self._is_tentative:
                yield Emit(Reconnected(url))
            self._is_connected_before = True
            yield from self._stream(url)
            yield Close()
            self._fruitless += 1
            self._session.roster.avoid(url, self._session.clock() + 1.0)
            if self._fruitless > 1:
                yield Pause(self._session.policy.wait(self._fruitless - 1, self._session.rng))

    def _open(self) -> Steps[str]:
        """Opens the stream. The first time, what the retry policy allows is tried; after that, a watch does not
        give up: it waits for a node to come back."""
        failed = 0
        while True:
            request = self._request()
            attempts = Attempts(request, self._session.policy, self._session.clock())
            try:
                return (yield from self._session.open(request, attempts)).url
            except (Unreachable, Unavailable):
                if not self._is_connected_before:
                    raise
                failed += 1
                yield Pause(self._session.policy.wait(failed + 5, self._session.rng))

    def _request(self) -> Request:
        prefix = self._options.get("prefix", ())
        query = query_of(
            prefix=[prefix] if isinstance(prefix, str) else list(prefix) or None,
            key=self._options.get("key"),
            from_=None if self._last is not None else self._next,
            prev=self._options.get("previous"),
            colors="red,yellow,green" if self._is_tentative else None,
        )
        headers = {"Accept": "text/event-stream"}
        if self._last is not None:
            headers["Last-Event-ID"] = str(self._last)
        silence = self._options.get("silence", SILENCE_SECONDS)
        return Request("GET", "/v1/watch", query, headers, answer_seconds=silence)

    def _stream(self, url: str) -> Feed[WatchEvent]:
        """Emits what the stream says until it ends, for whatever reason."""
        parser = Parser()
        while True:
            data = yield from read_stream()
            if isinstance(data, Failure) or not data:
                return
            try:
                for message in parser.feed(data):
                    if message.name in ("resume", "compacted"):  # another node may keep more: if not, it says so
                        return
                    event = self._event(message)
                    if event is not None:
                        self._fruitless = 0
                        yield Emit(event)
            except (StreamError, ValueError, KeyError, TypeError) as error:
                raise ClientError(f"{url} sent an event that cannot be understood: {error}") from None

    def _event(self, message: Message) -> WatchEvent | None:
        """Returns what a message says, or `None` if there is nothing new in it."""
        if message.id is not None:
            revision = int(message.id)
            is_new = self._last is None or revision > self._last
            if self._last is None and self._next is not None and revision < self._next:
                is_new = False
            if not is_new:
                return None
            self._last = revision
            return event_of(_fields(message)) if message.data else None
        content = _fields(message)
        if message.name == "tentative":
            return tentative_of(content)
        if message.name == "recolored":
            return Recolored(content["write"], content["color"])
        if message.name == "outcome":
            return Decided(content["write"], content["outcome"], content.get("reason"), content.get("key"))
        return None  # what later versions may add


def _fields(message: Message) -> dict[str, Any]:
    content = json.loads(message.data)
    if not isinstance(content, dict):
        raise TypeError("it is not an object")
    return content
