"""A client of `/v1/watch` for tests: it reads the stream as an EventSource does."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.api.cluster import TIMEOUT_SECONDS, Answer, Node, answer_of
from tests.ports import HOST


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `id` is empty if it has none."""

    kind: str
    id: str
    data: Any


@dataclass
class Watch:
    """An open stream."""

    response: http.client.HTTPResponse
    last_id: str = ""
    """What a client would resume with."""
    _fields: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Event]:
        """Yields events until the stream ends."""
        while line := self.response.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name in ("id", "event", "data"):
                self._fields[name] = value
            if line != b"\n":
                continue
            fields, self._fields = self._fields, {}
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                yield Event(fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"]))

    def take(self, count: int) -> list[Event]:
        events = iter(self)
        return [next(events) for _ in range(count)]

    def values(self, count: int) -> list[tuple[str, Any]]:
        """Returns the next changes as pairs of key and value, each of a revision with one change."""
        changes = [event.data["changes"] for event in self.take(count)]
        return [(change["key"], change.get("value")) for [change] in changes]


@contextlib.contextmanager
def watch(node: Node, query: str = "", **headers: str) -> Iterator[Watch]:
    """Opens a stream, which the node must begin."""
    connection = http.client.HTTPConnection(HOST, node.port, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", f"/v1/watch{query}", headers=names)
        response = connection.getresponse()
        assert response.status == 200, answer_of(response)
        assert response.headers["content-type"] == "text/event-stream"
        with contextlib.closing(response):
            yield Watch(response)


def refused(node: Node, query: str, **headers: str) -> Answer:
    """Returns the answer to a watch that does not begin."""
    return node.call("GET", f"/v1/watch{query}", headers={n.replace("_", "-"): v for n, v in headers.items()})
