"""What the API's JSON and headers say, as results. An answer that lacks what it must have is a `ClientError`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kvstore.client.replies import Reply
from kvstore.client.results import (
    Change,
    Cluster,
    Conflict,
    Event,
    Item,
    KeyRevision,
    Member,
    Operation,
    Preview,
    Previous,
    Receipt,
    Status,
    Tentative,
    Version,
    bytes_of,
    optional_bytes,
)

T = TypeVar("T")
Fields = Mapping[str, Any]


def decoded(reply: Reply, decode: Callable[[Fields], T], content: object = None) -> T:
    """Returns what `decode` makes of the reply's JSON object, or of a part of it."""
    found = reply.fields() if content is None else content
    try:
        if not isinstance(found, dict):
            raise TypeError
        return decode(found)
    except (KeyError, TypeError, ValueError):
        raise reply.not_understood("JSON of another form than expected") from None


def item_of(key: str, reply: Reply) -> Item:
    """Returns the value that a read of one key answered."""
    return Item(
        key,
        reply.body,
        reply.revision,
        reply.headers.get("content-type", "application/octet-stream"),
        reply.headers.get("corel-color", "green"),
        reply.headers.get("etag", "").strip('"'),
    )


def list_item(content: Fields) -> Item:
    revision = _revision(content.get("revision"))
    etag = str(revision if revision is not None else content.get("write", ""))
    return Item(
        content["key"],
        bytes_of(content["value"]),
        revision,
        content.get("content_type") or "application/octet-stream",
        content.get("color", "green"),
        etag,
    )


def key_revision(content: Fields) -> KeyRevision:
    return KeyRevision(content["key"], _revision(content.get("revision")))


def receipt_of(reply: Reply) -> Receipt:
    return decoded(reply, lambda content: _receipt(content, reply.url))


def _receipt(content: Fields, url: str) -> Receipt:
    results = content.get("results")
    return Receipt(
        id=content["id"],
        color=content["color"],
        outcome=content["outcome"],
        revision=_revision(content.get("revision")),
        succeeded=content.get("succeeded"),
        results=None if results is None else tuple(None if one is None else list_item(one) for one in results),
        duplicate_of=content.get("duplicate_of"),
        duplicate_outcome=content.get("duplicate_outcome"),
        url=url,
        details=content,
    )


def version_of(key: str) -> Callable[[Fields], Version]:
    def decode(content: Fields) -> Version:
        value = None if content.get("deleted") else bytes_of(content["value"])
        return Version(key, int(content["revision"]), content["write"], value, content.get("content_type"))

    return decode


def change_of(content: Fields) -> Change:
    value = None if content.get("deleted") else bytes_of(content["value"])
    return Change(content["key"], value, content.get("content_type"), _previous(content.get("prev")))


def event_of(content: Fields) -> Event:
    changes = tuple(change_of(one) for one in content["changes"])
    return Event(int(content["revision"]), content["write"], changes)


def tentative_of(content: Fields) -> Tentative:
    operations = tuple(operation_of(one) for one in content["operations"])
    return Tentative(content["write"], content["color"], operations)


def operation_of(content: Fields) -> Operation:
    """Returns an operation in the form that transactions have: an object whose one name says what it does."""
    [(kind, what)] = content.items()
    by = what.get("by")
    return Operation(
        kind,
        what["key"],
        optional_bytes(what.get("value")),
        what.get("content_type"),
        None if by is None else int(by),
    )


def conflict_of(content: Fields) -> Conflict:
    other: Fields = content.get("other") or {}
    value, operation = content.get("value"), None
    if isinstance(value, dict) and "base64" not in value:
        operation, value = _not_applied(content["key"], value), None
    return Conflict(
        content["kind"],
        content["key"],
        content["write"],
        content["node"],
        content,
        _revision(content.get("revision")),
        optional_bytes(value),
        other.get("write"),
        optional_bytes(other.get("value")),
        operation,
    )


def _not_applied(key: str, content: Fields) -> Operation:
    if "increment" in content:
        return Operation("increment", key, by=int(content["increment"]))
    return Operation("append", key, bytes_of(content["append"]))


def preview_of(content: Fields) -> Preview:
    return Preview(content["write"], content["node"], content["color"], content["outcome"], content)


def cluster_of(content: Fields) -> Cluster:
    nodes = (Member(node["name"], node.get("url"), bool(node.get("connected"))) for node in content["nodes"])
    return Cluster(tuple(nodes), bool(content.get("primary")), content)


def status_of(reply: Reply) -> Status:
    def decode(content: Fields) -> Status:
        return Status(
            content["node"],
            content["state"],
            bool(content["primary"]),
            int(content["green"]["revision"]),
            int(content["red"]),
            reply.url,
            content,
        )

    return decoded(reply, decode)


def _previous(content: Fields | None) -> Previous | None:
    if content is None:
        return None
    return Previous(bytes_of(content["value"]), _revision(content.get("revision")), content.get("content_type"))


def _revision(value: object) -> int | None:
    if value is None or value == 0:
        return None
    if not isinstance(value, int):
        raise TypeError
    return value
