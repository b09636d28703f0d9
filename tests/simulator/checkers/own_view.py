"""Every message is delivered in the view it was sent in, by members of it, or nowhere; and once.

A message may wait for the view after the one it was multicast in, but is never of one before."""

from __future__ import annotations

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.membership import MembershipChecker, Period
from transport.messages import Machine, Message, Service, ViewId


class OwnView(MembershipChecker):
    def __init__(self) -> None:
        self._multicast_in: dict[tuple[Machine, int], ViewId] = {}
        self._view: dict[tuple[Machine, int], ViewId] = {}
        self._delivered: set[tuple[Machine, Machine, int]] = set()

    def multicast(self, number: int, period: Period, service: Service) -> None:
        self._multicast_in[(period.machine, number)] = period.view.id

    def delivered(self, number: int, period: Period, message: Message) -> None:
        members = period.view.members
        if message.view != period.view.id or message.sender not in members or period.machine not in members:
            raise Violation(f"{period.machine} delivers {message.id} of {message.view} in {period.view}")
        key = (message.sender, number)
        if key not in self._multicast_in:
            raise Violation(f"{period.machine} delivers {message.id}, which no machine has sent")
        if message.view < self._multicast_in[key]:
            raise Violation(f"{message.id} of {message.view} was multicast in {self._multicast_in[key]}")
        if self._view.setdefault(key, message.view) != message.view:
            raise Violation(f"{message.id} is delivered in {self._view[key]} and in {message.view}")
        if (period.machine, *key) in self._delivered:
            raise Violation(f"{period.machine} delivers message {number} of {message.sender} twice")
        self._delivered.add((period.machine, *key))
