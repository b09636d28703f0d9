"""What the log asks the outside to do besides what membership and transport ask.

Nothing that depends on a `Persist` is among the effects that come with or after it: it comes when its completion
has come back as an input. So a crash between the two can be simulated, and group commit needs no reordering of
effects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from corel.messages import Entry
from corel.storage import Write
from transport.effects import Journal
from transport.messages import Machine, Service, ViewId


class Event(StrEnum):
    """What the journal can say of the log."""

    STATE = "state"
    """Another state was entered."""
    STATES_EXCHANGED = "states_exchanged"
    RETRANSMITTING = "retransmitting"
    RETRANSMITTED = "retransmitted_to_log"
    DEMOTED = "demoted"
    ATTEMPTED = "attempted"
    COMMITTED = "committed"
    VOTER = "voter"
    CONTRADICTED = "contradicted"
    """A member's state cannot be true beside the others'."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Multicast:
    """Send this in order, in this view or not at all."""

    payload: bytes
    view: ViewId
    service: Service = Service.AGREED


@dataclass(frozen=True, slots=True)
class Mark:
    """Tell the members of this view how far the log on this disk goes."""

    marks: tuple[int, ...]
    view: ViewId


@dataclass(frozen=True, slots=True)
class Solicit:
    """Ask these members of this view how far theirs go."""

    machines: tuple[Machine, ...]
    view: ViewId


@dataclass(frozen=True, slots=True)
class Persist:
    """Make this write durable, then call `persisted(token)`."""

    token: int
    write: Write


@dataclass(frozen=True, slots=True)
class Logged:
    """These are on this node's disk, and their order among what is not green is settled as far as this component
    goes: yellow in a primary, else red. In the order of the queue."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Greened:
    """These have their final places, from this position on."""

    position: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Reordered:
    """What is not green has another order than before, or more in it than was logged: look at the queue again."""


@dataclass(frozen=True, slots=True)
class Proven:
    """Everybody was still in this view when they heard of the probe of this number: no other primary component can
    have been established before it was sent."""

    number: int


Effect: TypeAlias = Multicast | Mark | Solicit | Persist | Logged | Greened | Reordered | Proven | Journal
