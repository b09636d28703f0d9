"""`POST /v1/txn`: strict parsing of a transaction's JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from api.problems import Problem
from api.requests import json_of, value_of, whole_number
from kvstore.store import (
    Append,
    Condition,
    Delete,
    Exists,
    Get,
    Increment,
    Merge,
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
    WrittenBy,
)


def transaction_of(body: bytes, idempotency_key: str | None) -> Write:
    content = _fields(json_of(body), "A transaction", ("then",), ("if", "else", "merge"))
    otherwise = content.get("else")
    return Write(
        _each(content["then"], "then", _operation),
        _each(content.get("if", []), "if", _condition),
        None if otherwise is None else _each(otherwise, "else", _operation),
        idempotency_key,
        _merge(content.get("merge", Merge.LAST)),
    )


def _merge(policy: object) -> Merge:
    if not isinstance(policy, str) or policy not in tuple(Merge):
        raise _wrong(f"merge is one of {', '.join(Merge)}, not {policy!r:.100}")
    return Merge(policy)


def _each(items: object, part: str, make: Callable[[object, str], object]) -> tuple:  # type: ignore[type-arg]
    if not isinstance(items, list):
        raise _wrong(f"{part} is a list")
    return tuple([make(item, f"{part}[{place}]") for place, item in enumerate(items)])


def _operation(item: object, where: str) -> Operation:
    if not isinstance(item, dict) or len(item) != 1:
        raise _wrong(f"{where} is an object with one of put, delete, increment, append, get")
    [(kind, content)] = item.items()
    if kind == "put":
        fields = _fields(content, where, ("key", "value"), ("content_type",))
        content_type = fields.get("content_type", "application/octet-stream")
        if not isinstance(content_type, str):
            raise _wrong(f"{where}: content_type is a string")
        return Put(_key(fields, where), value_of(fields["value"]), content_type)
    if kind == "increment":
        fields = _fields(content, where, ("key", "by"))
        return Increment(_key(fields, where), whole_number(fields["by"], f"{where}: by"))
    if kind == "append":
        fields = _fields(content, where, ("key", "value"))
        return Append(_key(fields, where), value_of(fields["value"]))
    if kind == "delete":
        return Delete(_key(_fields(content, where, ("key",)), where))
    if kind == "get":
        return Get(_key(_fields(content, where, ("key",)), where))
    raise _wrong(f"{where} is one of put, delete, increment, append, get, not {kind!r}")


def _condition(item: object, where: str) -> Condition:
    if not isinstance(item, dict):
        raise _wrong(f"{where} is an object")
    fields = _fields(item, where, ("key",), ("revision", "exists", "value", "id"))
    if len(fields) != 2:
        raise _wrong(f"{where} has a key and one of revision, exists, value, id")
    key = _key(fields, where)
    if "revision" in fields:
        return RevisionIs(key, whole_number(fields["revision"], f"{where}: revision"))
    if "exists" in fields:
        if not isinstance(fields["exists"], bool):
            raise _wrong(f"{where}: exists is true or false")
        return Exists(key, fields["exists"])
    if "id" in fields:
        if not isinstance(fields["id"], str):
            raise _wrong(f"{where}: id is a string")
        return WrittenBy(key, fields["id"])
    return ValueIs(key, value_of(fields["value"]))


def _key(fields: Mapping[str, object], where: str) -> str:
    key = fields["key"]
    if not isinstance(key, str):
        raise _wrong(f"{where}: key is a string")
    return key


def _fields(
    item: object, where: str, needed: tuple[str, ...], allowed: tuple[str, ...] = ()
) -> Mapping[str, object]:
    if not isinstance(item, dict):
        raise _wrong(f"{where} is an object")
    missing = [name for name in needed if name not in item]
    if missing:
        raise _wrong(f"{where} lacks {', '.join(missing)}")
    unknown = [name for name in item if name not in (*needed, *allowed)]
    if unknown:
        raise _wrong(f"{where} has no {unknown[0]!r}; it has {', '.join((*needed, *allowed))}")
    return item


def _wrong(what: str) -> Problem:
    return Problem(400, "invalid_txn", f"{what}. See /docs for the form of a transaction.")
