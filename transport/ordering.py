"""When the place of an ordered message is known: the agreed criterion, behind a small interface.

`LamportOrder` orders by timestamp `(clock, sender, incarnation)` and releases a message when every member has
been heard past its clock. Its index of synchrony is n. The paper's ToTo criterion (index n/2 + 1) would be
another implementation: it sees the same packets, with their acknowledgements.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Protocol

from transport.messages import Machine, Message, Packet

_clock_of = itemgetter(0)


class OrderCriterion(Protocol):
    """Decides the places of messages in the one order of the view."""

    def insert(self, packet: Packet, messages: Sequence[Message]) -> None:
        """Notes that the packet has entered the DAG and completes these ordered messages."""

    def heard(self, machine: Machine, clock: int) -> None:
        """Notes that everything the machine has sent with a clock up to this one is in the DAG."""

    def release(self) -> list[Message]:
        """Returns the next messages of the order, as far as it is now decided."""

    def drain(self) -> list[Message]:
        """Returns everything not released, in order: nothing more will be heard from any member."""

    def first(self) -> Message | None:
        """Returns the first, as far as is known, of the messages not released."""

    def awaited(self) -> list[Machine]:
        """Returns the members that must be heard before the next message can be released."""


class LamportOrder:
    """Orders messages by their timestamps."""

    def __init__(self, members: Iterable[Machine]) -> None:
        self._heard = dict.fromkeys(members, 0)
        self._waiting: dict[Machine, list[Message]] = {machine: [] for machine in self._heard}
        self._horizon = 0

    def insert(self, packet: Packet, messages: Sequence[Message]) -> None:
        self._waiting[packet.sender].extend(messages)

    def heard(self, machine: Machine, clock: int) -> None:
        self._heard[machine] = clock

    def release(self) -> list[Message]:
        horizon = min(self._heard.values())
        if horizon <= self._horizon:
            return []
        self._horizon = horizon
        released: list[Message] = []
        for waiting in self._waiting.values():
            if waiting and waiting[0].clock <= horizon:
                count = bisect_right(waiting, horizon, key=_clock_of)
                released += waiting[:count]
                del waiting[:count]
        released.sort()
        return released

    def drain(self) -> list[Message]:
        left = sorted(message for waiting in self._waiting.values() for message in waiting)
        for waiting in self._waiting.values():
            waiting.clear()
        return left

    def first(self) -> Message | None:
        return min((waiting[0] for waiting in self._waiting.values() if waiting), default=None)

    def awaited(self) -> list[Machine]:
        first = self.first()
        if first is None:
            return []
        return [machine for machine, clock in self._heard.items() if clock < first.clock]
