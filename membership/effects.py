"""What the membership asks the outside to do besides what the transport asks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from transport import effects as transport
from transport.messages import Datagram, Machine, Service, View


class Event(StrEnum):
    """What the journal can say of the membership."""

    STAGE = "stage"
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
    """These were for the old view only, and were not sent in it."""

    messages: tuple[tuple[Service, bytes], ...]


Effect: TypeAlias = transport.Effect | Unicast | ChangeStarted | ViewChanged | Refused
