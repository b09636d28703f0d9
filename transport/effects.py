"""What a transport machine asks the outside to do, in the order in which it must be done."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from transport.messages import Datagram, Machine, Message


class TransportEvent(StrEnum):
    """The events of the transport that are journaled."""

    PACKET_SENT = "packet_sent"
    PACKET_RECEIVED = "packet_received"
    PACKET_DELIVERED = "packet_delivered"
    PACKET_STABLE = "packet_stable"
    NACKED = "nacked"
    RETRANSMITTED = "retransmitted"
    LINKS = "links"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    STUCK = "stuck"
    DROPPED = "dropped"


class Reason(StrEnum):
    """Why a journaled event happened; for a dropped frame, which rule it broke."""

    NEW = "new"
    RETRY = "retry"
    REQUESTED = "requested"
    WINDOW_FULL = "window_full"
    SHARE_USED = "share_used"
    BACKLOG = "backlog"
    WINDOW_OPEN = "window_open"
    UNDECODABLE = "undecodable"
    FOREIGN_CLUSTER = "foreign_cluster"
    OTHER_ROSTER = "other_roster"
    OTHER_CLUSTER = "other_cluster"
    NOT_A_MEMBER = "not_a_member"
    OTHER_VIEW = "other_view"
    MY_OWN_NAME = "my_own_name"
    CLOCK_JUMP = "clock_jump"
    SEQUENCE_JUMP = "sequence_jump"
    ACKS_UNSENT = "acks_unsent"
    OUT_OF_ORDER = "out_of_order"
    OVERSIZED = "oversized"
    PENDING_FULL = "pending_full"
    UNEXPECTED = "unexpected"
    OLD_INCARNATION = "old_incarnation"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send this to every machine, once."""

    datagram: Datagram


@dataclass(frozen=True, slots=True)
class Received:
    """Ordered messages that are causally deliverable: they may be logged, but their place is not known yet."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Delivered:
    """Messages whose delivery criterion is fulfilled, in delivery order."""

    messages: tuple[Message, ...]
    is_closing: bool = False
    """Whether the end of the view settled them: their order is then that of the survivors, and members that are
    not among these may have had messages between them."""


@dataclass(frozen=True, slots=True)
class Backpressure:
    """The queue of messages to send has become full, or is well below full again."""

    full: bool


@dataclass(frozen=True, slots=True)
class Marked:
    """A member's layer above has processed each member's messages up to these sequences, in the members' order."""

    machine: Machine
    marks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowStuck:
    """Nothing moves because these members do not acknowledge, or are not heard: a communication break."""

    laggards: tuple[Machine, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """One record of the journal, of any layer; the driver that executes it adds the times. The names in `details`
    are those of the journal's schema."""

    event: StrEnum
    id: str = ""
    reason: StrEnum = Reason.NEW
    details: dict[str, object] = field(default_factory=dict)


TransportEffect: TypeAlias = Broadcast | Received | Delivered | Marked | Backpressure | WindowStuck | Journal
