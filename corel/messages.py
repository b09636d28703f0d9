"""What members of a view say to each other about the log, and what the log is made of.

A message of the log is known by its sender (an incarnation is a sender of its own), and a dense counter of that
sender's. Each incarnation is its own stream: a node that broadcast a message, crashed before logging it and came
back goes on in another stream, so that nobody can have a message of a stream without all before it (trap 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from transport.messages import Machine, Timestamp, ViewId

Stream: TypeAlias = Machine
"""All messages of one incarnation of one node."""

Vector: TypeAlias = tuple[tuple[Stream, int], ...]
"""The last sequence of each stream, of which everything before is there too."""

NOT_LOGGED = -1
"""The arrival of what has not been written, or will not be."""

DIGEST_BYTES = 16
EMPTY_DIGEST = bytes(DIGEST_BYTES)


class Color(StrEnum):
    """What is known of a message's place in the one order."""

    RED = "red"
    YELLOW = "yellow"
    GREEN = "green"


class MessageId(NamedTuple):
    """The paper's <sender, counter>."""

    stream: Stream
    sequence: int

    def __str__(self) -> str:
        return f"{self.stream}.{self.sequence}"


class Entry:
    """A message in the queue: who sent it, its place by timestamp, where it is on disk, and, as long as there is
    room in memory, its body."""

    __slots__ = ("id", "timestamp", "view", "size", "body", "arrival", "primary", "carrier")

    def __init__(
        self, message_id: MessageId, clock: int, view: ViewId, body: bytes | None, size: int = -1
    ) -> None:
        self.id = message_id
        self.timestamp = Timestamp(clock, *message_id.stream)
        """Of its original transmission, for ever."""
        self.view = view
        """In which it was first sent."""
        self.body = body
        self.size = size if body is None else len(body)
        self.arrival = NOT_LOGGED
        """Its number in the log of this node, which counts in the order of writing."""
        self.primary = 0
        """The primary component in which this node received and logged it, which made it yellow; 0 for none."""
        self.carrier = 0
        """The transport's sequence of the message that brought it, in the view in which it is being ordered."""

    def __repr__(self) -> str:
        return f"Entry({self.id} @{self.timestamp.clock})"


# What is multicast. All but `Regular` belong to one view, and are refused in any other.


@dataclass(frozen=True, slots=True)
class Regular:
    """A new message. Its sender and timestamp are those of the transport's message that carries it."""

    sequence: int
    body: bytes


@dataclass(frozen=True, slots=True)
class State:
    """Step 1 of the recovery: what its sender has, and how it is coloured. Positions are counted from the start of
    the queue, so a line is the number of messages before it."""

    committed: int
    """Last_Committed_Primary."""
    attempted: int
    """Last_Attempted_Primary."""
    green: int
    """The green line. Green prefixes are compatible, so the number says which messages these are."""
    green_digest: bytes
    base: int
    """How long the queue was when `committed` was committed to: everything before is equal at everybody whose last
    committed primary that is."""
    base_digest: bytes
    tail: tuple[MessageId, ...]
    """The yellow messages from max(`green`, `base`) on: what was received in the primary since, in order. The
    paper's yellow line does not tell whether two zones have the same order; this does (trap 4)."""
    have: Vector
    """Of each stream that has messages here that are not green, the last."""
    is_voter: bool
    roster: bytes
    """A digest of the roster: nodes that were told of different ones must not agree on anything."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Phase one of the establishment: `attempted` is on the sender's disk."""

    number: int
    digest: bytes
    """Of the order of the sender's whole queue."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Phase two: the commitment, with everything marked yellow, is on the sender's disk."""

    number: int


class Copy(NamedTuple):
    """A message retransmitted. Without a body where everybody has it."""

    id: MessageId
    clock: int
    view: ViewId
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Priority:
    """Step 5: a part of the representative's green and yellow messages, in its order."""

    position: int
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class Reds:
    """Step 7: messages that not everybody has, in the order of their timestamps."""

    copies: tuple[Copy, ...]
    is_last: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks whether everybody is still in this view. It is not logged: that all have it is the answer."""

    number: int


Letter: TypeAlias = Regular | State | Attempt | Commit | Priority | Reds | Probe
