"""What the membership asks its driver to do, and tells the layer above, besides the transport's effects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from membership.messages import Progress
from transport import Datagram, Machine, Service, TransportEffect, View


class MembershipEvent(StrEnum):
    """The events of the membership that are journaled."""

    STAGE = "membership_stage"
    CONTROL_SENT = "control_sent"
    CONTROL_RESENT = "control_resent"
    SUSPECTED = "suspected"
    PROBED = "probed"
    VIEW = "view"
    BACKED_OFF = "backed_off"


@dataclass(frozen=True, slots=True)
class Unicast:
    """Send this to one machine, at its own address."""

    target: Machine
    datagram: Datagram


@dataclass(frozen=True, slots=True)
class ChangeStarted:
    """The view is ending: nothing more is sent in it. What is accepted from now on waits for the next one."""

    view: View


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """All messages of the old view have been delivered; what follows is of this one."""

    view: View


@dataclass(frozen=True, slots=True)
class Refused:
    """These messages were bound to the old view and were not sent in it. They will not be sent."""

    messages: tuple[tuple[Service, bytes], ...]


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """This machine is too far behind a foreign one to join it, as heartbeats say. If there are several such
    machines, it is the one that has got furthest. Repeated every `presence_ms` while it is so."""

    machine: Machine
    progress: Progress


MembershipEffect: TypeAlias = TransportEffect | Unicast | ChangeStarted | ViewChanged | Refused | LeftBehind
