"""What a client can ask the store to wait for, and how it can be answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from corel import Color
from kvstore.store.state import Applied


class Ack(StrEnum):
    """What a write waits for before it is answered."""

    AUTO = "auto"
    """As `GREEN` in a primary component, as `RED` in any other."""
    GREEN = "green"
    RED = "red"
    """The write waits until it is on this node's disk."""


class Trouble(StrEnum):
    """Why a request was not served."""

    NO_PRIMARY = "no_primary"
    TIMEOUT = "timeout"
    UNDECIDED = "undecided"
    """The write was sent, but is not on this node's disk: it may be accepted, or not."""
    OVERLOADED = "overloaded"
    AWAY = "away"
    """The node has left the others, because of its disk or because it stops."""


@dataclass(frozen=True, slots=True)
class Done:
    """The write is green; `applied` is what it did."""

    write_id: str
    applied: Applied


@dataclass(frozen=True, slots=True)
class Accepted:
    """The write is on this node's disk, and stands."""

    write_id: str
    color: Color


@dataclass(frozen=True, slots=True)
class Failed:
    """The write was not served. It has a `write_id` only if it may stand nevertheless."""

    trouble: Trouble
    write_id: str = ""


Answer: TypeAlias = Done | Accepted | Failed

Respond: TypeAlias = Callable[[Answer], None]
"""Takes the answer to one write, and is called once."""

Ready: TypeAlias = Callable[[Trouble | None], None]
"""Is called once: with None when what a request waits for has happened, or with the reason why it will not."""


class Overloaded(Exception):
    """The store has too much to do already. Nothing was accepted."""
