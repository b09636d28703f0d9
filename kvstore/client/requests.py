"""Requests to a node, as values: what is asked, and whether it may be asked twice."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypedDict
from urllib.parse import quote, urlencode, urlsplit

from kvstore.client.errors import ClientError

ANSWER_SECONDS = 15.0
"""The default timeout of an answer: more than the 5 s that a node takes by default to answer a write that does not
become green."""
ANSWER_MARGIN_SECONDS = 10.0
"""How much longer than a node's own timeout the client waits for its answer."""

Ack: TypeAlias = Literal["auto", "green", "red"]
ReadLevel: TypeAlias = Literal["green", "red", "linearizable"]
Merge: TypeAlias = Literal["last", "keep_green"]
Query: TypeAlias = Mapping[str, str | Sequence[str]]


class WriteOptions(TypedDict, total=False):
    """What every write takes."""

    ack: Ack
    """What to wait for. `auto` (the default): green in a primary component, else red; `green`: green or nothing;
    `red`: durable at the node."""
    timeout: float
    """For how many seconds the node may wait for that (5 by default). A write that was accepted stands."""
    idempotency_key: str | None
    """Copies of a write with the same key apply once. By default the client draws one. `None` sends none: such a
    write never expires, and is not sent again once it may have arrived."""


class ConditionalOptions(WriteOptions, total=False):
    """What a write of one key takes."""

    if_match: int | str
    """Write only over this revision, over the value of this write id, or (`"*"`) over any value."""
    if_absent: bool
    """Write only if the key does not exist."""


class PutOptions(ConditionalOptions, total=False):
    merge: Merge
    """What happens if another write of the key becomes green before this one does. `last` (the default): this one
    overwrites it; `keep_green`: this one yields."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """The path, percent-encoded."""
    query: Query = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    answer_seconds: float = ANSWER_SECONDS

    @property
    def is_read(self) -> bool:
        return self.method in ("GET", "HEAD")

    @property
    def may_repeat(self) -> bool:
        """Whether the request can be sent to a second node without being applied twice."""
        return self.is_read or "Idempotency-Key" in self.headers

    @property
    def target(self) -> str:
        if not self.query:
            return self.path
        return f"{self.path}?{urlencode(self.query, doseq=True, quote_via=quote, safe='')}"

    def with_query(self, **parameters: object) -> Request:
        return replace(self, query={**self.query, **query_of(**parameters)})


def query_of(**parameters: object) -> dict[str, str | Sequence[str]]:
    """Returns the parameters that are given. A trailing underscore is not a part of a name; lists are repeated."""
    found: dict[str, str | Sequence[str]] = {}
    for name, value in parameters.items():
        if value is None or value is False or value == ():
            continue
        if isinstance(value, (list, tuple)):
            found[name.rstrip("_")] = [str(one) for one in value]
        else:
            found[name.rstrip("_")] = "true" if value is True else str(value)
    return found


def key_path(key: str) -> str:
    """Returns the path of a key's value. The key is encoded completely, including `/` and `..`, so that no client
    library or proxy interprets a part of it."""
    encoded = quote(key.encode("utf-8", "surrogateescape"), safe="")
    if set(key) <= {"."}:  # `.` and `..` are steps in a path, which clients and proxies take
        encoded = encoded.replace(".", "%2E")
    return f"/v1/kv/{encoded}"


def put_request(
    key: str, value: bytes | str, content_type: str | None, options: PutOptions, drawn_key: str
) -> Request:
    usual = "text/plain; charset=utf-8" if isinstance(value, str) else "application/octet-stream"
    headers = {"Content-Type": content_type or usual}
    return _write("PUT", key_path(key), headers, _bytes(value), options, drawn_key)


def delete_request(key: str, options: PutOptions, drawn_key: str) -> Request:
    return _write("DELETE", key_path(key), {}, None, options, drawn_key)


def patch_request(key: str, change: Mapping[str, object], options: ConditionalOptions, drawn_key: str) -> Request:
    return _write("PATCH", key_path(key), _JSON, _json(change), options, drawn_key)


def txn_request(content: Mapping[str, object], options: WriteOptions, drawn_key: str) -> Request:
    return _write("POST", "/v1/txn", _JSON, _json(content), options, drawn_key)


def get_request(key: str, timeout: float | None = None, **parameters: object) -> Request:
    query = query_of(timeout_ms=milliseconds(timeout), **parameters)
    return Request("GET", key_path(key), query, answer_seconds=answer_seconds(timeout))


def write_request(write_id: str, wait_seconds: float | None) -> Request:
    """Asks what became of a write, now or as soon as it is green."""
    wait = None if wait_seconds is None else "green"
    query = query_of(wait=wait, timeout_ms=milliseconds(wait_seconds))
    path = f"/v1/writes/{quote(write_id, safe='')}"
    return Request("GET", path, query, answer_seconds=answer_seconds(wait_seconds))


def text_or_base64(value: bytes | str) -> object:
    """Returns a value as JSON bodies have it."""
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(round(seconds * 1_000), 0)


def checked_url(url: str) -> str:
    """Returns the URL without a slash at its end. Raises `ClientError` if it is not an HTTP URL."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right:
        raise ClientError(f"{url!r} is not a URL like http://127.0.0.1:8001")
    return url.rstrip("/")


_JSON = {"Content-Type": "application/json"}


def _write(
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes | None,
    options: WriteOptions | ConditionalOptions | PutOptions,
    drawn_key: str,
) -> Request:
    given: Mapping[str, Any] = options
    sent = dict(headers)
    if (tag := given.get("if_match")) is not None:
        sent["If-Match"] = tag if tag == "*" else f'"{str(tag).strip(chr(34))}"'
    if given.get("if_absent"):
        sent["If-None-Match"] = "*"
    if (key := given.get("idempotency_key", drawn_key)) is not None:
        sent["Idempotency-Key"] = key
    timeout = given.get("timeout")
    query = query_of(ack=given.get("ack"), timeout_ms=milliseconds(timeout), merge=given.get("merge"))
    return Request(method, path, query, sent, body, answer_seconds(timeout))


def answer_seconds(timeout: float | None) -> float:
    return ANSWER_SECONDS if timeout is None else timeout + ANSWER_MARGIN_SECONDS


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
