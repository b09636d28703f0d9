"""`GET /v1/watch`: changes as Server-Sent Events, one for each revision, in order and exactly once.

A watcher reads changes at the pace at which its client takes them, from memory or from disk; nothing is queued for
it. While there is nothing to read, it waits in the store's feed, and costs nothing but its connection. A client
that takes nothing for `READ_SECONDS` is disconnected (`http_protocol`), and one that falls behind what is kept is
told so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from api.answers import operation_json, outcome_json, problem_response, text_or_base64
from api.problems import Problem, problem_of, trouble
from api.requests import Receive, Scope, Send, flag, headers_of, number, repeated_parameters
from api.slices import Turns
from corel import Color
from kvstore.node import Node
from kvstore.store import (
    EVERYTHING,
    NUMBER_MAX,
    Change,
    Compacted,
    Interest,
    InvalidWrite,
    Item,
    Recolored,
    Store,
    TentativeEvent,
    TentativeWatcher,
    TentativeWrite,
    Trouble,
    check_key,
)

PATH = "/v1/watch"
WATCHERS_MAX = 3_072
"""Most watchers of a node: the rest of its connections is for requests."""
HEARTBEAT_SECONDS = 15.0
"""How often a watcher is told that nothing has changed, so that proxies keep its connection open."""
CHUNK_CHANGES_MAX = 256
CHUNK_BYTES_MAX = 65_536
"""Most changes, and about the most bytes of values, that are read for a watcher at a time."""
RETRY_MS = 1_000
"""How long a client is to wait before it connects again."""
PREFIXES_MAX = 64
SHARED_EVENTS_MAX = 1_024
SHARED_EVENT_BYTES_MAX = 4_096
"""Most events that are kept encoded for other watchers, and the most bytes of one that is kept."""

_SINGLE = ("from", "prev", "colors")
_REPEATED = ("prefix", "key")
_HEAD = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class Wanted(NamedTuple):
    """What a watcher asked for."""

    interest: Interest
    first: int | None
    """The first revision that it wants; None for the next."""
    with_previous: bool
    colors: frozenset[Color]


class WatchApp:
    """An ASGI application for `/v1/watch`."""

    def __init__(self, node: Node, turns: Turns) -> None:
        self._node = node
        self._shared = SharedEvents()
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] != "GET":
                raise Problem(405, "method_not_allowed", "A watch takes GET.", headers={"Allow": "GET"})
            wanted = wanted_of(scope)
            store = self._node.feed_store
            if store is None:
                raise trouble(Trouble.AWAY)
            if self._node.watchers >= WATCHERS_MAX:
                raise Problem(
                    503,
                    "too_many_watchers",
                    f"This node has {WATCHERS_MAX:,} watchers already. Watch another node.",
                    headers={"Retry-After": "1"},
                )
            first = self._first(wanted)
        except (Problem, InvalidWrite) as error:
            await problem_response(problem_of(error)).send(send)
            return
        self._node.watchers += 1
        try:
            await _Stream(self._node, store, self._turns, self._shared, wanted, first, send).run()
        finally:
            self._node.watchers -= 1

    def _first(self, wanted: Wanted) -> int:
        """Returns the first revision to send. Raises `Problem` if it is no longer kept."""
        if wanted.first is None:
            return self._node.revision + 1
        oldest = self._node.oldest_revision() + 1
        if wanted.first < oldest:
            raise Problem(
                410,
                "compacted",
                f"Changes are kept from revision {oldest} on. Begin there, or read the keys and watch from the "
                "revision after theirs.",
                {"oldest": oldest, "revision": self._node.revision},
            )
        return wanted.first


def wanted_of(scope: Scope) -> Wanted:
    """Returns what a request asks for. Raises `Problem`."""
    single, repeated = repeated_parameters(scope["query_string"], _SINGLE, _REPEATED)
    if sum(map(len, repeated.values())) > PREFIXES_MAX:
        raise Problem(400, "invalid_parameter", f"A watch takes at most {PREFIXES_MAX} prefixes and keys.")
    for key in repeated["key"]:
        check_key(key)
    interest = Interest(frozenset(repeated["key"]), tuple(sorted(set(repeated["prefix"]))))
    if interest == Interest() or "" in interest.prefixes:
        interest = EVERYTHING
    return Wanted(interest, _first_of(scope, single), flag(single, "prev"), _colors(single.get("colors", "green")))


def _first_of(scope: Scope, single: Mapping[str, str]) -> int | None:
    first = number(single, "from", 0, 0, NUMBER_MAX) if "from" in single else None
    last_id = headers_of(scope, (b"last-event-id",)).get(b"last-event-id")
    if last_id is None or (last_id == "" and first is not None):
        return None if first is None else max(1, first)
    if first is not None:
        raise Problem(
            400,
            "contradictory_parameters",
            "Last-Event-ID says where to resume, and `from` where to begin. Send one of them.",
        )
    if not (last_id.isascii() and last_id.isdigit() and len(last_id) < 20):
        raise Problem(
            400, "invalid_header", "Last-Event-ID is the id of the last event: the number of a revision."
        )
    return int(last_id) + 1


def _colors(text: str) -> frozenset[Color]:
    try:
        colors = frozenset(Color(part) for part in text.split(","))
    except ValueError:
        raise Problem(
            400, "invalid_parameter", f"colors is one or more of red, yellow and green, with commas; not {text!r}."
        ) from None
    return colors


class SharedEvents:
    """The newest events as bytes, so that what many watchers get is encoded once. What a revision changed is
    final, so an event never becomes wrong."""

    def __init__(self) -> None:
        self._events: dict[int, bytes] = {}
        """In the order in which they were encoded."""

    def event(self, change: Change) -> bytes:
        """Returns the event of all that a revision changed."""
        found = self._events.get(change.revision)
        if found is None:
            found = _change_event(change, [{"key": key, **_content(item)} for key, item in change.items])
            if len(found) <= SHARED_EVENT_BYTES_MAX:
                self._events[change.revision] = found
                if len(self._events) > SHARED_EVENTS_MAX:
                    del self._events[next(iter(self._events))]
        return found


class _Stream:
    """One watcher's stream of events."""

    def __init__(
        self, node: Node, store: Store, turns: Turns, shared: SharedEvents, wanted: Wanted, first: int, send: Send
    ) -> None:
        self._node = node
        self._store = store
        self._turns = turns
        self._shared = shared
        self._wanted = wanted
        self._next = first
        """The next revision to read."""
        self._send = send
        self._woken = asyncio.Event()
        self._tentative: TentativeWatcher | None = None

    async def run(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEAD})
        await self._write(f"retry: {RETRY_MS}\nid: {self._next - 1}\n\n".encode())  # so that it can resume at once
        with ExitStack() as stack:
            if self._wanted.colors != {Color.GREEN}:
                feed = self._store.tentative_feed
                reads_changes = Color.GREEN in self._wanted.colors
                self._tentative = feed.add(self._wanted.interest, self._woken.set, reads_changes)
                stack.callback(feed.remove, self._tentative)
            last = await self._follow()
        await self._send({"type": "http.response.body", "body": last})

    async def _follow(self) -> bytes:
        """Sends events until there can be no more, and returns the last one."""
        while True:
            if self._node.feed_store is not self._store:
                return _event("resume", {"reason": "This node is stopping or has left the others: watch another."})
            if self._tentative is not None and self._tentative.is_behind:
                return _event("resume", {"reason": "You did not keep up with the writes that are not green."})
            try:
                chunk = b"".join([*self._tentative_events(), *self._changes()])
            except Compacted as compacted:
                return _event("compacted", {"oldest": compacted.oldest + 1})
            if chunk:
                await self._write(chunk)
            if self._has_changes or self._has_tentative:
                await self._turns.rest()  # writing does not pause as long as buffers take it
            elif not chunk:
                await self._wait()

    async def _wait(self) -> None:
        """Waits until there may be something to read, or tells the client that there is nothing."""
        waiting = None
        self._woken.clear()
        if Color.GREEN in self._wanted.colors:
            waiting = self._store.feed.wait(self._wanted.interest, self._on_change)
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._woken.wait()
                return
        except TimeoutError:
            pass
        finally:
            if waiting is not None:
                self._store.feed.cancel(waiting)
        if not self._woken.is_set():
            self._next = max(self._next, self._node.revision + 1)  # a change of interest would have woken it
            await self._write(f": nothing has changed\nid: {self._next - 1}\n\n".encode())

    def _on_change(self, revision: int) -> None:
        self._next = max(self._next, revision)  # none of those before it is of interest
        self._woken.set()

    @property
    def _has_changes(self) -> bool:
        return Color.GREEN in self._wanted.colors and self._next <= self._node.revision

    @property
    def _has_tentative(self) -> bool:
        return self._tentative is not None and self._tentative.has_events

    def _changes(self) -> list[bytes]:
        if self._has_tentative or not self._has_changes:
            return []
        found = self._node.changes(self._next, CHUNK_CHANGES_MAX, CHUNK_BYTES_MAX)
        self._next = found[-1].revision + 1
        interest = self._wanted.interest
        return [self._event(each, change) for each in found if (change := interest.of(each)) is not None]

    def _event(self, whole: Change, change: Change) -> bytes:
        """Returns the event of the part of a change that is of interest."""
        if change is whole and not self._wanted.with_previous:
            return self._shared.event(change)
        return _change_event(change, [self._changed(change.revision, key, item) for key, item in change.items])

    def _changed(self, revision: int, key: str, item: Item | None) -> dict[str, object]:
        content: dict[str, object] = {"key": key, **_content(item)}
        if self._wanted.with_previous:
            before = self._node.find_at(key, revision - 1)
            content["prev"] = None if before is None else {**_content(before), "revision": before.revision}
        return content

    def _tentative_events(self) -> Iterable[bytes]:
        if self._tentative is None:
            return
        yield from map(_tentative_event, self._tentative.take(CHUNK_CHANGES_MAX))

    async def _write(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


def _change_event(change: Change, changes: list[dict[str, object]]) -> bytes:
    content = {"revision": change.revision, "write": change.write_id, "changes": changes}
    return f"id: {change.revision}\ndata: {_to_json(content)}\n\n".encode()


def _content(item: Item | None) -> dict[str, object]:
    if item is None:
        return {"deleted": True}
    return {"value": text_or_base64(item.value), "content_type": item.content_type}


def _tentative_event(event: TentativeEvent) -> bytes:
    if isinstance(event, TentativeWrite):
        operations = [operation_json(operation) for operation in event.operations]
        return _event("tentative", {"write": event.write_id, "color": str(event.color), "operations": operations})
    if isinstance(event, Recolored):
        return _event("recolored", {"write": event.write_id, "color": str(event.color)})
    return _event("outcome", {"write": event.write_id, **outcome_json(Color.GREEN, event.outcome)})


def _event(kind: str, content: Mapping[str, object]) -> bytes:
    return f"event: {kind}\ndata: {_to_json(content)}\n\n".encode()
