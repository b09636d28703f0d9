"""A cluster in memory behind `httpx.MockTransport`: every node serves the same store, and the part of the API that
clients iterate over. It is a model of what the API says, not of how nodes agree."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx

PAGE = 3
"""How many items a page has, if the request does not say."""


@dataclass
class Fake:
    names: str = "abc"
    down: set[str] = field(default_factory=set)
    """Nodes that refuse connections."""
    deaf: dict[str, int] = field(default_factory=dict)
    """Nodes that serve so many requests without answering them."""
    cut_after: dict[str, int] = field(default_factory=dict)
    """Nodes whose streams break after so many events."""
    oldest: int = 1
    asked: list[httpx.Request] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    streams: list[Pieces] = field(default_factory=list)
    _used: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def urls(self) -> list[str]:
        return [f"http://{name}:80" for name in self.names]

    def http(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self.handle))

    def async_http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self.handle))

    # The store

    @property
    def revision(self) -> int:
        return len(self.events)

    def state(self, revision: int | None = None) -> dict[str, tuple[str, int]]:
        found: dict[str, tuple[str, int]] = {}
        for event in self.events[: self.revision if revision is None else revision]:
            for change in event["changes"]:
                if change.get("deleted"):
                    found.pop(change["key"], None)
                else:
                    found[change["key"]] = change["value"], event["revision"]
        return found

    def put(self, key: str, value: str | None) -> dict[str, Any]:
        revision = self.revision + 1
        change = {"key": key, "deleted": True} if value is None else {"key": key, "value": value}
        self.events.append({"revision": revision, "write": f"a.1.{revision}.0", "changes": [change]})
        return {"id": f"a.1.{revision}.0", "color": "green", "revision": revision, "outcome": "applied"}

    # The API

    def handle(self, request: httpx.Request) -> httpx.Response:
        name = request.url.host
        if name in self.down:
            raise httpx.ConnectError("refused")
        self.asked.append(request)
        path = request.url.raw_path.decode().partition("?")[0]
        response = self._route(name, request.method, path, request)
        if self.deaf.get(name, 0) > 0:
            self.deaf[name] -= 1
            raise httpx.ReadError("the connection broke")
        return response

    def _route(self, name: str, method: str, path: str, request: httpx.Request) -> httpx.Response:
        if path == "/v1/cluster":
            nodes = [{"name": one, "url": f"http://{one}:80", "connected": True} for one in self.names]
            return httpx.Response(200, json={"nodes": nodes, "primary": True})
        if path == "/v1/status":
            green = {"revision": self.revision}
            status = {"node": name, "state": "primary", "primary": True, "green": green, "red": 0}
            return httpx.Response(200, json=status)
        if path == "/v1/kv":
            return self._list(request)
        if path.startswith("/v1/kv/"):
            key = unquote(path.removeprefix("/v1/kv/"))
            return self._read(key, request) if method == "GET" else self._write(method, key, request)
        feeds: dict[str, Callable[[httpx.Request], httpx.Response]] = {
            "/v1/history": self._history,
            "/v1/conflicts": lambda asked: self._page(asked, self.conflicts),
            "/v1/watch": lambda asked: self._watch(name, asked),
        }
        return feeds[path](request)

    def _write(self, method: str, key: str, request: httpx.Request) -> httpx.Response:
        once = request.headers.get("idempotency-key", "")
        if once in self._used:
            first = self._used[once]
            copy = {"outcome": "duplicate", "duplicate_of": first["id"], "duplicate_outcome": "applied"}
            return httpx.Response(200, json={**first, **copy})
        there = self.state().get(key)
        wanted = request.headers.get("if-match", "").strip('"')
        if (there and "if-none-match" in request.headers) or (wanted and wanted != str(there and there[1])):
            said = {"error": "condition_failed", "message": "No.", "outcome": "rejected", "id": "a.1.9.0"}
            return httpx.Response(412, json={**said, "key": key, "revision": there[1] if there else 0})
        answer = self.put(key, None if method == "DELETE" else request.content.decode())
        if once:
            self._used[once] = answer
        return httpx.Response(200, json=answer)

    def _read(self, key: str, request: httpx.Request) -> httpx.Response:
        asked = request.url.params
        at = asked.get("revision")
        if at is not None and int(at) < self.oldest:
            return self._compacted()
        there = self.state(None if at is None else int(at)).get(key)
        after = asked.get("wait_revision")
        changed = [event["revision"] for event in self.events if event["changes"][0]["key"] == key]
        if after is not None and (not changed or changed[-1] <= int(after)):
            return httpx.Response(304)
        if there is None:
            said = {"error": "not_found", "message": "There is no such key."}
            return httpx.Response(404, json=said, headers={"corel-revision": str(self.revision)})
        headers = {"corel-color": "green", "corel-revision": str(there[1]), "etag": f'"{there[1]}"'}
        return httpx.Response(200, content=there[0].encode(), headers=headers)

    def _list(self, request: httpx.Request) -> httpx.Response:
        asked = request.url.params
        pinned = int(asked.get("revision") or _cursor(asked).get("at", self.revision))
        if pinned < self.oldest - 1:
            return self._compacted()
        found = sorted(self.state(pinned).items(), reverse="reverse" in asked)
        kept = [(key, there) for key, there in found if _is_within(key, asked)]
        if "count_only" in asked:
            return httpx.Response(200, json={"count": len(kept), "revision": pinned})
        items: list[dict[str, Any]] = [{"key": key, "revision": there[1]} for key, there in kept]
        if "keys_only" not in asked:
            for item, (_, there) in zip(items, kept, strict=True):
                item.update({"value": there[0], "content_type": "text/plain"})
        return self._page(request, items, pinned)

    def _history(self, request: httpx.Request) -> httpx.Response:
        key, items = request.url.params["key"], []
        for event in reversed(self.events):
            for change in event["changes"]:
                if change["key"] == key:
                    told = {name: value for name, value in change.items() if name != "key"}
                    items.append({"revision": event["revision"], "write": event["write"], **told})
        return self._page(request, items)

    def _page(self, request: httpx.Request, items: list[dict[str, Any]], at: int = 0) -> httpx.Response:
        asked = request.url.params
        first, size = _cursor(asked).get("next", 0), int(asked.get("limit", PAGE))
        more = first + size < len(items)
        cursor = urlsafe_b64encode(json.dumps({"next": first + size, "at": at}).encode()).decode()
        page = {"items": items[first : first + size], "cursor": cursor if more else None, "revision": at}
        return httpx.Response(200, json=page)

    def _compacted(self) -> httpx.Response:
        said = {"error": "compacted", "message": "That is not kept any more.", "oldest": self.oldest}
        return httpx.Response(410, json=said)

    def _watch(self, name: str, request: httpx.Request) -> httpx.Response:
        last = request.headers.get("last-event-id")
        first = int(request.url.params.get("from", self.revision + 1)) if last is None else int(last) + 1
        assert last is None or "from" not in request.url.params
        if first < self.oldest:
            return self._compacted()
        kept = [event for event in self.events if event["revision"] >= first]
        pieces = [f"retry: 1000\nid: {first - 1}\n\n".encode()]
        for event in kept[: self.cut_after.get(name)]:
            changes = [change for change in event["changes"] if _is_within(change["key"], request.url.params)]
            data = f"data: {json.dumps({**event, 'changes': changes})}\n" if changes else ": passed\n"
            pieces.append(f"id: {event['revision']}\n{data}\n".encode())
        self.streams.append(Pieces(pieces, name in self.cut_after))
        return httpx.Response(200, stream=self.streams[-1])


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream that ends after its pieces, or breaks."""

    def __init__(self, pieces: list[bytes], breaks: bool) -> None:
        self._pieces = pieces
        self._breaks = breaks
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        if self._breaks:
            raise httpx.ReadError("the connection broke")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


def _is_within(key: str, asked: httpx.QueryParams) -> bool:
    prefixes = asked.get_list("prefix")
    is_named = key == asked.get("key", key) and (not prefixes or any(key.startswith(one) for one in prefixes))
    return is_named and key >= asked.get("start", "") and ("end" not in asked or key < asked["end"])


def _cursor(asked: httpx.QueryParams) -> dict[str, int]:
    text = asked.get("cursor")
    return {} if text is None else dict(json.loads(urlsafe_b64decode(text)))
