"""The stages of the membership protocol, the causes of its changes, and what it exchanges with its caller."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from membership.messages import Control, Machines
from transport import Acks, Machine, View


class Stage(StrEnum):
    """The stage of the protocol that a machine is in. The paper's Stage 0 takes no time: an AJ is sent, and
    Stage 1 begins."""

    IDLE = "idle"
    FAULTS = "faults"
    """The faults protocol: a machine of the CCS is faulty, and none joins."""
    GATHERING = "gathering"
    """Stage 1: collecting AJs while α runs."""
    COMMITTED = "committed"
    """Stage 2: a JOIN has been sent."""


class Cause(StrEnum):
    """Why a stage was entered, or communication with a machine counts as broken."""

    START = "start"
    SILENT = "silent"
    PORT_UNREACHABLE = "port_unreachable"
    """Its heartbeat is overdue, and its host says that no process listens at its address."""
    STUCK = "stuck"
    UNRESPONSIVE = "unresponsive"
    DEPARTED = "departed"
    ACCUSED_ME = "accused_me"
    RESTARTED = "restarted"
    NO_ROOM = "no_room"
    FOREIGN_HEARD = "foreign_heard"
    INVITED = "invited"
    ATTEMPT_RECEIVED = "attempt_received"
    JOIN_RECEIVED = "join_received"
    FAULT_RECEIVED = "fault_received"
    ALPHA_EXPIRED = "alpha_expired"
    NOBODY_ANSWERED = "nobody_answered"
    ASSENTED = "assented"


CHANGE_CAUSES = (
    *(Cause.SILENT, Cause.PORT_UNREACHABLE, Cause.STUCK, Cause.UNRESPONSIVE, Cause.DEPARTED, Cause.ACCUSED_ME),
    *(Cause.RESTARTED, Cause.NO_ROOM, Cause.FOREIGN_HEARD, Cause.INVITED),
    *(Cause.ATTEMPT_RECEIVED, Cause.JOIN_RECEIVED, Cause.FAULT_RECEIVED),
)
"""What can begin a change of the view."""


TRANSITIONS: dict[Stage, tuple[Stage, ...]] = {
    Stage.IDLE: (Stage.FAULTS, Stage.GATHERING),
    Stage.FAULTS: (Stage.IDLE, Stage.GATHERING),
    Stage.GATHERING: (Stage.IDLE, Stage.FAULTS, Stage.COMMITTED),
    Stage.COMMITTED: (Stage.IDLE,),
}
"""All changes of stage that are allowed; any other is a broken invariant. `docs/architecture.md` draws them."""


class DataPlane(Protocol):
    """What the protocol has to know about the messages of the view."""

    def next_clock(self) -> int:
        """Advances the clock and returns it: it is above every clock seen or sent so far."""

    def cover(self) -> Acks:
        """Up to which sequence each member's messages of the view are in the DAG."""

    def has(self, cover: Acks) -> bool:
        """Whether all messages of the view that the cover names are in the DAG."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """The caller is to broadcast this control message."""

    control: Control


@dataclass(frozen=True, slots=True)
class Suspected:
    """From now on the caller may take in only those messages of these machines that others have."""

    machines: Machines
    cause: Cause


@dataclass(frozen=True, slots=True)
class Entered:
    """The machine has entered another stage. `accept` are the machines whose agreement it needs."""

    stage: Stage
    cause: Cause
    accept: Machines


@dataclass(frozen=True, slots=True)
class Installed:
    """The old view is over: the caller delivers the messages of it that are `covered`, then installs this view.
    `expected` is the sequence of each member's last message before the view."""

    view: View
    covered: dict[Machine, int]
    expected: dict[Machine, int]
    electors: tuple[Control, ...]
    absent: Machines
    """The machines that were to join and did not."""


Output: TypeAlias = Emitted | Suspected | Entered | Installed
