"""A feed of everything, read as it comes from the nodes, and checked while it is read: every revision once, in
order.

It does not use `kvstore.client`, whose watch leaves out what a node repeats: here a repetition is a fault."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import httpx

from loadtest.record import FeedDigest, FeedLine

STRETCH = 1_000
"""How many revisions one line of the record tells of."""
_SILENCE_SECONDS = 30.0
"""A node says something every 15 seconds."""


class FeedEvent(NamedTuple):
    revision: int
    write_id: str
    key: str
    """The first key that it changed."""
    value: str
    """Its value, if it is text."""


class Lost(Exception):
    """What the feed would have to go on with is no longer kept."""


def follow(
    urls: Sequence[str], first: int | None, wait: Callable[[float], None] = time.sleep
) -> Iterator[FeedEvent]:
    """Returns all events from a revision on (from now on without one), for ever: it goes on at the next node
    whenever a stream ends. Raises `Lost`. An event without a write id says only how far the feed is."""
    last = None if first is None else first - 1
    turn = 0
    with httpx.Client(timeout=_SILENCE_SECONDS, trust_env=False) as client:
        while True:
            url = urls[turn % len(urls)]
            turn += 1
            try:
                for event in _stream(client, url, last):
                    last = event.revision
                    yield event
            except httpx.HTTPError:
                wait(0.2)


def _stream(client: httpx.Client, url: str, last: int | None) -> Iterator[FeedEvent]:
    """Returns the events of one connection, heartbeats too."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with client.stream("GET", f"{url}/v1/watch", headers=headers) as answer:
        if answer.status_code == 410:
            raise Lost(f"{url} no longer keeps revision {(last or 0) + 1}")
        answer.raise_for_status()
        event_id, data, name = "", "", ""
        for line in answer.iter_lines():
            if line.startswith("id: "):
                event_id = line[4:]
            elif line.startswith("data: "):
                data = line[6:]
            elif line.startswith("event: "):
                name = line[7:]
            elif not line:
                if name == "compacted":
                    raise Lost(f"{url} no longer keeps what comes after revision {last}")
                if name == "resume":
                    return
                if event_id:
                    yield _event(int(event_id), data)
                event_id, data, name = "", "", ""


def _event(revision: int, data: str) -> FeedEvent:
    if not data:
        return FeedEvent(revision, "", "", "")
    content = json.loads(data)
    change = content["changes"][0]
    value = change.get("value")
    return FeedEvent(
        int(content["revision"]), content["write"], change["key"], value if isinstance(value, str) else ""
    )


class FeedCheck:
    """Checks the events that one watcher sees, and tells in lines of the record what they were."""

    def __init__(self, watcher: str, tell: Callable[[FeedLine], None]) -> None:
        self._watcher = watcher
        self._tell = tell
        self._first: int | None = None
        self._last: int | None = None
        self._digest = FeedDigest()

    def take(self, event: FeedEvent) -> None:
        if self._last is None:
            self._last = event.revision - 1 if event.write_id else event.revision
        expected = self._last + 1 if event.write_id else self._last
        if event.revision != expected:
            self.fail(f"revision {event.revision} came where {expected} was expected")
            self._last = event.revision - 1 if event.write_id else event.revision
        if not event.write_id:
            return
        if self._first is None:
            self._first = event.revision
        self._digest.add(event.revision, event.write_id)
        self._last = event.revision
        if self._last - self._first + 1 >= STRETCH:
            self.end()

    def end(self) -> None:
        """Tells of what has not been told yet."""
        if self._first is not None and self._last is not None:
            self._tell(FeedLine(self._watcher, self._first, self._last, self._digest.text))
        self._first, self._digest = None, FeedDigest()

    def fail(self, fault: str) -> None:
        """Tells that something is wrong with the feed."""
        self.end()
        place = self._last or 0
        self._tell(FeedLine(self._watcher, place, place, "", fault))
