"""What a client gets: values, receipts of writes, events, conflicts. They are frozen; values are always bytes."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """The value of a key."""

    key: str
    value: bytes
    revision: int | None
    """The revision of the change that made it; `None` while it is not green."""
    content_type: str = "application/octet-stream"
    color: str = "green"
    etag: str = ""
    """What `if_match` takes to write only over this value: the revision, or the write's id while there is none."""

    @property
    def text(self) -> str:
        return self.value.decode()


@dataclass(frozen=True, slots=True)
class KeyRevision:
    """A key without its value."""

    key: str
    revision: int | None


@dataclass(frozen=True, slots=True)
class Count:
    """How many keys there are, at one revision."""

    count: int
    revision: int


@dataclass(frozen=True, slots=True)
class Changed:
    """What a key holds after a change that was waited for."""

    key: str
    item: Item | None
    """`None`: the key was deleted."""
    revision: int
    """The revision after which to wait for the next change."""

    @property
    def text(self) -> str | None:
        return None if self.item is None else self.item.text


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a node said about a write."""

    id: str
    color: str
    """`green`: its place in the one order is final; `yellow`: about to be; `red`: durable at a node, order
    open."""
    outcome: str
    """`pending`, `applied`, `duplicate`; of a write that is asked about, also `rejected`, `yielded`, `expired`."""
    revision: int | None = None
    """The revision that it made; `None` while it is not green, or if it changed nothing."""
    succeeded: bool | None = None
    """Of a transaction: whether its conditions held."""
    results: tuple[Item | None, ...] | None = None
    """Of a transaction: what each of its operations found or left. `None` if that is not known: it is not green
    yet, or a copy of it was applied by an earlier attempt whose answer was lost."""
    duplicate_of: str | None = None
    """Of a duplicate: the write that it is a copy of."""
    duplicate_outcome: str | None = None
    """Of a duplicate: what became of that write (`applied`, `rejected` or `yielded`), and so of this one."""
    url: str = ""
    """The node that answered."""
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_green(self) -> bool:
        return self.color == "green"


@dataclass(frozen=True, slots=True)
class Version:
    """One revision of a key."""

    key: str
    revision: int
    write: str
    value: bytes | None
    """`None`: this revision deleted the key."""
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class Previous:
    """What a change replaced."""

    value: bytes
    revision: int | None
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    key: str
    value: bytes | None
    """`None`: the key was deleted."""
    content_type: str | None = None
    previous: Previous | None = None
    """What was there before, if the watch asked for it and there was something."""

    @property
    def is_deletion(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True)
class Event:
    """One revision: all that a write changed. It is final."""

    revision: int
    write: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """What a write is to do to one key. What comes of it is known when the write is green."""

    kind: str
    """`put`, `delete`, `increment` or `append`."""
    key: str
    value: bytes | None = None
    """What is put or appended."""
    content_type: str | None = None
    by: int | None = None
    """What is added."""


@dataclass(frozen=True, slots=True)
class Tentative:
    """A write that is not final yet, with those of its operations that are of keys that are watched."""

    write: str
    color: str
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Recolored:
    """A tentative write has another colour now."""

    write: str
    color: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A tentative write is green, and changed none of the keys that are watched: `outcome` says what became of
    it."""

    write: str
    outcome: str
    reason: str | None = None
    """Why it was rejected, such as `condition_failed`."""
    key: str | None = None
    """The key that was the reason."""


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The watch goes on at another connection. What tentative events said before it no longer counts: the node may
    be in another component."""

    url: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A write whose outcome or effect the merge changed."""

    kind: str
    """`overwrote`, `rejected`, `yielded` or `otherwise`."""
    key: str
    write: str
    node: str
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The whole object, as the API has it."""
    revision: int | None = None
    """The revision that it made; `None` if it changed nothing."""
    value: bytes | None = None
    """What it made of the key, or was to make of it. `None`: it deleted the key, it is an `operation`, or that is
    not kept any more (`details` says `compacted` then)."""
    other_write: str | None = None
    """The write of the other side."""
    other_value: bytes | None = None
    """What it found there. `None`: nothing, or that is not kept any more."""
    operation: Operation | None = None
    """Of an increment or append that was not applied: what it was to do."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a write that is not green yet would do if it were merged now."""

    write: str
    node: str
    color: str
    outcome: str
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the roster."""

    name: str
    url: str | None
    is_connected: bool


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a node knows of all nodes."""

    nodes: tuple[Member, ...]
    is_primary: bool
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Status:
    """One node."""

    node: str
    state: str
    is_primary: bool
    revision: int
    """The last revision that is green there."""
    red: int
    """How many messages of its log are not green yet."""
    url: str
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)


def bytes_of(value: object) -> bytes:
    """Returns a value of a JSON body. Raises `ValueError` if it is none."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        return b64decode(value["base64"], validate=True)
    raise ValueError(f"not a value: {value!r}")


def optional_bytes(value: object) -> bytes | None:
    return None if value is None else bytes_of(value)
