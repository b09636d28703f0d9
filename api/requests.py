"""Strict parsing of what clients send: whatever is not understood is an error that says so, and never ignored."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote_plus, unquote_to_bytes

from api.problems import Problem, overloaded
from kvstore.store import NUMBER_MAX, Condition, Exists, RevisionIs, WrittenBy, check_key

Scope: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Send: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]
Choice = TypeVar("Choice", bound=StrEnum)

TIMEOUT_MS = 5_000
TIMEOUT_MS_MAX = 600_000
DRAINED_BYTES_MAX = 8 * 1_048_576
"""A body that is too large is still read to its end if it has at most this many bytes: a client that is still
sending would not read the answer."""
DRAIN_SECONDS = 1.0
BODIES_BYTES_MAX = 128 * 1_048_576
"""The most bytes that all bodies still being received may take together."""

_STRAY_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_TAG = re.compile(r'"([^"]*)"')


class ClientDisconnected(Exception):
    """The client has closed the connection, so no answer can be sent."""


def key_of(raw: bytes) -> str:
    """Returns the key from the percent-encoded end of a path."""
    if b"%" in raw:
        if _STRAY_PERCENT.search(raw):
            raise Problem(
                400,
                "invalid_percent_encoding",
                "The path has a % that is not followed by two hexadecimal digits. Encode a percent sign as %25.",
            )
        raw = unquote_to_bytes(raw)
    try:
        key = raw.decode()
    except UnicodeDecodeError:
        raise Problem(400, "invalid_key", "A key is valid UTF-8, percent-encoded; this is not.") from None
    check_key(key)
    return key


def parameters(query: bytes, known: Iterable[str]) -> dict[str, str]:
    """Returns the parameters of a query. One that is given twice or is not known is an error."""
    return repeated_parameters(query, known, ())[0] if query else {}


def repeated_parameters(
    query: bytes, known: Iterable[str], repeatable: Iterable[str]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Returns the parameters of a query, and those that may be given several times."""
    found: dict[str, str] = {}
    repeated: dict[str, list[str]] = {name: [] for name in repeatable}
    if _STRAY_PERCENT.search(query):
        raise Problem(400, "invalid_percent_encoding", "The query has a % without two hexadecimal digits.")
    for part in query.decode("latin-1").split("&"):
        if not part:
            continue
        name, _, value = part.partition("=")
        try:
            name, value = unquote_plus(name, errors="strict"), unquote_plus(value, errors="strict")
        except UnicodeDecodeError:
            raise Problem(400, "invalid_parameter", "The query is not UTF-8, percent-encoded.") from None
        if name in repeated:
            repeated[name].append(value)
            continue
        if name not in known:
            options = ", ".join([*repeated, *known]) or "none"
            raise Problem(400, "unknown_parameter", f"There is no parameter {name!r} here; there are: {options}.")
        if name in found:
            raise Problem(400, "invalid_parameter", f"The parameter {name} is given twice.")
        found[name] = value
    return found, repeated


def choice(found: Mapping[str, str], name: str, options: type[Choice], default: Choice) -> Choice:
    value = found.get(name)
    if value is None:
        return default
    try:
        return options(value)
    except ValueError:
        allowed = ", ".join(options)
        raise Problem(400, "invalid_parameter", f"{name} is one of {allowed}, not {value!r}.") from None


def number(found: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    value = found.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 20 and least <= int(value) <= most):
        raise Problem(400, "invalid_parameter", f"{name} is a number from {least} to {most}, not {value!r}.")
    return int(value)


def flag(found: Mapping[str, str], name: str) -> bool:
    value = found.get(name, "false")
    if value not in ("true", "false"):
        raise Problem(400, "invalid_parameter", f"{name} is true or false, not {value!r}.")
    return value == "true"


def timeout_ms(found: Mapping[str, str]) -> int:
    return number(found, "timeout_ms", TIMEOUT_MS, 0, TIMEOUT_MS_MAX)


def headers_of(scope: Scope, names: Iterable[bytes]) -> dict[bytes, str]:
    """Returns the headers of these names that were sent. One that is given twice is an error."""
    wanted = frozenset(names)
    found: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name in wanted:
            if name in found:
                raise Problem(400, "invalid_header", f"The header {name.decode()} is given twice.")
            found[name] = value.decode("latin-1")
    return found


def matches(tags: str, tag: str) -> bool:
    """Returns whether an If-None-Match header names this ETag, or any."""
    return tags.strip() == "*" or tag in [part.strip().removeprefix("W/") for part in tags.split(",")]


def conditions(key: str, if_match: str | None, if_none_match: str | None) -> tuple[Condition, ...]:
    """Returns the conditions of a write from its headers."""
    if if_match is not None and if_none_match is not None:
        raise Problem(
            400,
            "contradictory_conditions",
            "If-Match asks for a key that exists, If-None-Match: * for one that does not. Send one of them.",
        )
    if if_none_match is not None:
        if if_none_match.strip() != "*":
            raise Problem(
                400,
                "invalid_condition",
                "A write takes If-None-Match: *, which means that the key must not exist.",
            )
        return (Exists(key, False),)
    if if_match is None:
        return ()
    if if_match.strip() == "*":
        return (Exists(key, True),)
    return (_tag_condition(key, if_match.strip()),)


def _tag_condition(key: str, tag: str) -> Condition:
    match = _TAG.fullmatch(tag)
    if match is None:
        raise Problem(
            400,
            "invalid_condition",
            'If-Match takes one ETag as a read gave it, in quotes, such as "17", or * for any value that exists.',
        )
    text = match[1]
    if text.isascii() and text.isdigit():
        if len(text) > 19 or not 1 <= int(text) <= NUMBER_MAX:
            raise Problem(400, "invalid_condition", f"There is no revision {text}: they count from 1.")
        return RevisionIs(key, int(text))
    return WrittenBy(key, text)


class BodyBudget:
    """Bounds the bytes of all bodies that are being received: thousands of clients may send large ones slowly."""

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._free = bytes_max

    @property
    def bytes_taken(self) -> int:
        return self.bytes_max - self._free

    def take(self, size: int) -> None:
        if size > self._free:
            raise overloaded()
        self._free -= size

    def give_back(self, size: int) -> None:
        self._free += size


async def body_of(scope: Scope, receive: Receive, bytes_max: int, budget: BodyBudget) -> bytes:
    """Returns the whole body, if it is not too large. `http_protocol` bounds how long it may take."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > bytes_max:
            await _drain(receive, int(value))
            raise _too_large(bytes_max, int(value))
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        return await _rest_of_body(body, receive, bytes_max, budget)
    if len(body) > bytes_max:
        raise _too_large(bytes_max, len(body))
    return body


async def _drain(receive: Receive, size: int) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while size <= DRAINED_BYTES_MAX:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                if not message.get("more_body", False):
                    return


async def _rest_of_body(first: bytes, receive: Receive, bytes_max: int, budget: BodyBudget) -> bytes:
    parts = [first]
    size = taken = 0
    try:
        while True:
            size += len(parts[-1])
            if size > bytes_max:
                raise _too_large(bytes_max, size)
            budget.take(len(parts[-1]))
            taken = size
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
    finally:
        budget.give_back(taken)
    if size + len(parts[-1]) > bytes_max:
        raise _too_large(bytes_max, size + len(parts[-1]))
    return b"".join(parts)


def _too_large(bytes_max: int, size: int) -> Problem:
    return Problem(
        413,
        "body_too_large",
        f"A body has at most {bytes_max:,} bytes; this has {size:,} or more. Nothing was accepted.",
        headers={"Connection": "close"},
    )


def json_of(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "malformed_json", "The body is not JSON (RFC 8259, UTF-8).") from None


def whole_number(value: object, what: str) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Problem(400, "invalid_number", f"{what} is a whole number.")
    return value


def value_of(value: object) -> bytes:
    """Returns the bytes of a value in JSON: a string, or {"base64": …} for bytes that are not text."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise Problem(400, "invalid_value", "The text has half of a surrogate pair in it.") from None
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return b64decode(value["base64"], validate=True)
        except ValueError:
            raise Problem(400, "invalid_value", "The base64 text is not valid.") from None
    raise Problem(400, "invalid_value", 'A value is a string, or {"base64": "…"} for other bytes.')
