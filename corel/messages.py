"""The payloads that members of a view exchange about the log, and the entries that the log is made of.

A message of the log is identified by its sender (each incarnation of a node is a sender of its own) and a dense
counter of that sender. Each incarnation is its own stream: a node that multicast a message, crashed before logging
it and came back goes on in another stream, so that no node can have a message of a stream without all before it
(trap 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from corel.participation import Participants
from transport import Machine, Timestamp, ViewId

Stream: TypeAlias = Machine
"""All messages of one incarnation of one node."""

Vector: TypeAlias = tuple[tuple[Stream, int], ...]
"""The last sequence of each stream. Everything before it in the stream is there too."""

NOT_LOGGED = -1
"""The arrival of a message that has not been handed to the log, or never will be."""

DIGEST_BYTES = 32
EMPTY_DIGEST = bytes(DIGEST_BYTES)
"""The digest of an order without messages."""

IDENTITY_BYTES = 16
NO_IDENTITY = bytes(IDENTITY_BYTES)
"""The generation of a node that knows of none."""

NO_VIEW = ViewId(0, "", 0)
"""The view of an attempt that was never made, or that no longer matters, because the node is bound to a
generation."""


def is_bound(committed: int, generation: bytes, attempted_view: ViewId) -> bool:
    """Returns whether a node is bound to its generation of the cluster: by a commitment, or because it has met a
    node that is bound. Otherwise the generation is that of an attempt in `attempted_view`, and may change."""
    return committed > 0 or (attempted_view == NO_VIEW and generation != NO_IDENTITY)


def identity_of(content: bytes) -> bytes:
    """Returns a short name for a disk, or for a generation of the cluster."""
    return hashlib.blake2b(content, digest_size=IDENTITY_BYTES).digest()


class Color(StrEnum):
    """What is known of a message's place in the total order."""

    RED = "red"
    YELLOW = "yellow"
    GREEN = "green"


def is_folded(stream: Stream, folded: Mapping[str, int]) -> bool:
    """Whether a stream is folded away, if those of these nodes are up to these incarnations."""
    return stream.incarnation <= folded.get(stream.name, -1)


class MessageId(NamedTuple):
    """The paper's <sender, counter>."""

    stream: Stream
    sequence: int

    def __str__(self) -> str:
        return f"{self.stream}.{self.sequence}"


class Entry:
    """A message in the queue: its id, its timestamp, where it is on disk, and, as long as memory allows, its
    body."""

    __slots__ = ("id", "timestamp", "view", "size", "body", "body_digest", "arrival", "primary", "carrier")

    def __init__(
        self, message_id: MessageId, clock: int, view: ViewId, body: bytes | None, size: int = -1
    ) -> None:
        self.id = message_id
        self.timestamp = Timestamp(clock, *message_id.stream)
        """The timestamp of its original transmission, which it keeps (trap 5)."""
        self.view = view
        """The view in which it was first sent."""
        self.body = body
        self.body_digest = EMPTY_DIGEST if body is None else hashlib.sha256(body).digest()
        """What the digests of the order say of the body, also when it is no longer in memory."""
        self.size = size if body is None else len(body)
        self.arrival = NOT_LOGGED
        """Its number in the log of this node, which counts in the order of writing."""
        self.primary = 0
        """The primary component in which this node received and logged it, which made it yellow; 0 for none."""
        self.carrier = 0
        """The sequence of the transport's message that brought it, in the view in which it is being ordered; 0 for
        none."""

    def __repr__(self) -> str:
        return f"Entry({self.id} @{self.timestamp.clock})"


# The payloads. All but `Regular` belong to one view. A `Regular` that has not left when its view ends is sent in
# the next one.


@dataclass(frozen=True, slots=True)
class Regular:
    """A new message. Its sender and timestamp are those of the transport's message that carries it."""

    sequence: int
    body: bytes


@dataclass(frozen=True, slots=True)
class State:
    """Step 1 of the recovery: which messages its sender has, and how they are coloured. Positions are counted from
    the start of the queue, so a line is the number of messages before it."""

    committed: int
    """Last_Committed_Primary."""
    attempted: int
    """Last_Attempted_Primary."""
    green: int
    """The green line. Green prefixes are compatible, so the number says which messages these are."""
    green_digest: bytes
    base: int
    """How long the queue was when `committed` was committed to: up to there, all members whose last committed
    primary that is have the same queue."""
    base_digest: bytes
    tail: tuple[MessageId, ...]
    """The yellow messages from max(`green`, `base`) on: what was received in the primary since, in order. The
    paper's yellow line does not tell whether two zones have the same order; this does (trap 4)."""
    have: Vector
    """The last message of each stream of which the sender has messages that are not green."""
    is_voter: bool
    roster: bytes
    """A digest of the roster: nodes that are configured with different rosters must not agree on anything."""
    generation: bytes
    """The generation of the cluster with which `attempted` was attempted; final once the node is bound to it
    (decision 20)."""
    attempted_view: ViewId
    """The view in which `attempted` was attempted."""
    disk: bytes
    """Which disk this is: the generation of a new cluster is drawn from the disks of its first attempt."""
    participants: Participants = ()
    """Which starts of which nodes took part in primary components, as far as its sender remembers."""
    cut: int = 0
    """The first position of the green order that its sender can retransmit."""
    is_learned: bool = False
    """Whether its sender knows of `committed` only by its green messages, and not its yellow zone (`learning`)."""
    established: int = 0
    """The last primary component that its sender knows to have been established."""
    established_base: int = 0
    """How long the queue was to which the members of that committed."""
    voter_since: int = 0
    """The incarnation with which the vote was restored on its sender's disk (`participation`)."""
    folded: tuple[tuple[str, int], ...] = ()
    """Up to which incarnation its sender has folded away the streams of each node."""

    @property
    def is_bound(self) -> bool:
        return is_bound(self.committed, self.generation, self.attempted_view)

    @property
    def knowledge(self) -> tuple[int, bool, int]:
        """Orders members by what they know of primary components: those that know the yellow zone of the last one
        come before those that have only learned of it, and of these, those with more green messages do."""
        has_zone = self.committed > 0 and not self.is_learned
        return self.committed, has_zone, 0 if has_zone else self.green

    def has_zone_of(self, established: int) -> bool:
        """Whether the member has everything, green or yellow and in its order, that is green at a member which
        knows of no later primary component that was established than this one."""
        return self.committed >= established > 0 and not self.is_learned


@dataclass(frozen=True, slots=True)
class Attempt:
    """Phase one of the establishment: `attempted` is on the sender's disk."""

    number: int
    digest: bytes
    """The digest of the order of the sender's whole queue."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Phase two: the commitment, with everything marked yellow, is on the sender's disk."""

    number: int


class Copy(NamedTuple):
    """A retransmitted message. It has no body where every member has the message already."""

    id: MessageId
    clock: int
    view: ViewId
    body: bytes | None


@dataclass(frozen=True, slots=True)
class GreenDigests:
    """Step 5, before all priority messages: the digest of the representative's order at the green line of each
    member, in the members' order. Green prefixes are compared by it, bodies included, before anything is taken
    from them."""

    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Priority:
    """Step 5: a batch of the representative's green and yellow messages, in its order, from this position on."""

    position: int
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class Reds:
    """Step 7: a batch of messages that not every member has, in timestamp order."""

    copies: tuple[Copy, ...]
    is_last: bool


@dataclass(frozen=True, slots=True)
class PrimaryCheck:
    """Asks whether every member is still in this view. It is not logged: the answer is that all members have
    received it."""

    number: int


Payload: TypeAlias = Regular | State | Attempt | Commit | GreenDigests | Priority | Reds | PrimaryCheck
