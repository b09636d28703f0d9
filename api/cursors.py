"""Cursors: where the next page begins. To clients they are opaque.

    cursor   base64url of [tag, msgpack [VERSION, kind, revision, place, digest of the query]]

The tag is keyed with the generation of the cluster, which all its nodes know and no other cluster has: a cursor
works on every node, and what was not made by one of them is refused."""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import msgpack

from api.problems import Problem

VERSION = 1
TAG_BYTES = 16
QUERY_DIGEST_BYTES = 8
CHARACTERS_MAX = 2_000

_FORM = re.compile(r"[A-Za-z0-9_-]*")

Place: TypeAlias = tuple[int | str, ...]
"""The last of the page before: a key, a revision, a write; each kind of cursor has its own."""
Query: TypeAlias = tuple[str | bool, ...]
"""The parameters that must be the same on all pages."""


class Kind(StrEnum):
    """What a cursor goes on with."""

    LIST = "list"
    HISTORY = "history"
    CONFLICTS = "conflicts"
    PREVIEW = "preview"


class Cursor(NamedTuple):
    kind: Kind
    revision: int
    """What the node that reads on must have reached."""
    place: Place


def encode_cursor(cursor: Cursor, query: Query, generation: bytes) -> str:
    kind, revision, place = cursor
    content: bytes = msgpack.packb([VERSION, str(kind), revision, place, _digest(query)])
    return _text(_tag(content, generation) + content)


def decode_cursor(text: str, kind: Kind, query: Query, generation: bytes) -> Cursor:
    """Raises `Problem` if this is not a cursor of this cluster, of this kind and of this query."""
    content = _verified(text, generation)
    version, known_kind, revision, place, digest = msgpack.unpackb(content, use_list=False)
    if version != VERSION:
        raise _invalid("This cursor is of another version of corelkv. Begin again without it.")
    if known_kind != kind or digest != _digest(query):
        raise _invalid(
            "This cursor belongs to another query. Repeat the parameters of the page that it is from (only limit, "
            "keys_only and timeout_ms may change), or begin again without it."
        )
    return Cursor(kind, revision, place)


def _verified(text: str, generation: bytes) -> bytes:
    if len(text) <= CHARACTERS_MAX and _FORM.fullmatch(text) and len(text) % 4 != 1:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        tag, content = data[:TAG_BYTES], data[TAG_BYTES:]
        if _text(data) == text and hmac.compare_digest(tag, _tag(content, generation)):
            return content
    raise _invalid(
        "This is not a cursor of this cluster. Send it exactly as the last page gave it, or begin again without "
        "it."
    )


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _tag(content: bytes, generation: bytes) -> bytes:
    return blake2b(content, digest_size=TAG_BYTES, key=generation[: blake2b.MAX_KEY_SIZE]).digest()


def _digest(query: Query) -> bytes:
    return blake2b(msgpack.packb(query), digest_size=QUERY_DIGEST_BYTES).digest()


def _invalid(message: str) -> Problem:
    return Problem(400, "invalid_cursor", message)
