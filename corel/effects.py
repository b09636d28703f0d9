"""What the log asks of the layers around it, besides the effects of membership and transport.

An effect that depends on a `Persist` is not returned before the completion of that write has come back as an
input. So a crash between the two can be simulated, and group commit needs no reordering of effects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from corel.messages import Color, Entry
from corel.stages import Cause, Stage
from corel.storage import LogWrite
from transport import Journal, Machine, Service, ViewId


class CorelEvent(StrEnum):
    """The events of the log in the journal."""

    STAGE = "stage"
    """Another stage was entered: `StageChanged`."""
    STATES_EXCHANGED = "states_exchanged"
    RETRANSMITTING = "retransmitting"
    COPIES_SENT = "copies_sent"
    MERGED = "reds_merged"
    DEMOTED = "demoted"
    ATTEMPTED = "attempted"
    COMMITTED = "committed"
    ESTABLISHED = "established"
    ABORTED = "aborted"
    VOTER = "voter"
    VOTE_DOUBTED = "vote_doubted"
    """A member's vote does not count, because others remember more than its disk does."""
    CONTRADICTED = "contradicted"
    """The states of members contradict each other."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Multicast:
    """Send this payload in the order of the view, in this view or not at all."""

    payload: bytes
    view: ViewId
    service: Service = Service.AGREED


@dataclass(frozen=True, slots=True)
class Mark:
    """Report to the members of this view how far this node has logged each member's messages."""

    marks: tuple[int, ...]
    view: ViewId


@dataclass(frozen=True, slots=True)
class Solicit:
    """Ask these members of this view for their marks."""

    machines: tuple[Machine, ...]
    view: ViewId


@dataclass(frozen=True, slots=True)
class Persist:
    """Make this write durable, then call `persisted(token)`."""

    token: int
    write: LogWrite


@dataclass(frozen=True, slots=True)
class Queued:
    """These messages are in the queue now, and are handed to the disk. Nothing depends on this: it is for the
    journal."""

    entries: tuple[Entry, ...]
    color: Color
    view: ViewId
    length: int
    """How many messages the whole queue has."""
    is_recovered: bool = False
    """Whether they were retransmitted in the recovery of the view."""


@dataclass(frozen=True, slots=True)
class Yellowed:
    """The yellow zone was decided anew: from this position on it is these messages. The next write that has a
    yellow zone takes it to disk. Nothing depends on this: it is for the journal."""

    position: int
    entries: tuple[Entry, ...]
    view: ViewId


@dataclass(frozen=True, slots=True)
class Logged:
    """These messages are on this node's disk, and their order among the messages that are not green is settled
    within this component: yellow in a primary component, red elsewhere. They are in the order of the queue."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Greened:
    """These messages have their final places, from this position on."""

    position: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Reordered:
    """The messages that are not green have another order or other colours than before, or are more than were
    reported as logged: the queue must be read again."""


@dataclass(frozen=True, slots=True)
class PrimaryConfirmed:
    """Every member was still in this view when it received the primary check of this number: no other primary
    component can have been established before the check was sent."""

    number: int


@dataclass(frozen=True, slots=True)
class StageChanged:
    """The node is in another stage, or in the same stage of another view; or it is bound to a generation now. The
    driver journals this and reports it to the layer above."""

    stage: Stage
    cause: Cause
    view: ViewId
    green: int
    yellow: int
    length: int
    """How many messages the whole queue has."""
    committed: int
    attempted: int

    def journal(self) -> Journal:
        """Returns the journal's record of the change."""
        details: dict[str, object] = {
            "stage": str(self.stage),
            "green": self.green,
            "yellow": self.yellow,
            "length": self.length,
            "committed": self.committed,
            "attempted": self.attempted,
        }
        return Journal(CorelEvent.STAGE, str(self.view), self.cause, details)


LogReport: TypeAlias = Queued | Yellowed | Logged | Greened | Reordered | PrimaryConfirmed | StageChanged
"""What the log reports to the layer above it, and to the journal."""

CorelEffect: TypeAlias = Multicast | Mark | Solicit | Persist | LogReport | Journal
