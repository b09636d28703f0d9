"""Every message is delivered in the view it was sent in, by members of it, or nowhere; and once."""

from __future__ import annotations

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.membership import MembershipChecker, Period
from transport.messages import Machine, Message, ViewId


class OwnView(MembershipChecker):
    def __init__(self) -> None:
        self._view: dict[tuple[Machine, int], ViewId] = {}
        self._delivered: set[tuple[Machine, Machine, int]] = set()

    def delivered(self, number: int, period: Period, message: Message) -> None:
        if message.view != period.view.id or message.sender not in period.view.members:
            raise Violation(f"{period.machine} delivers {message.id} of {message.view} in {period.view}")
        sent_in = self._view.setdefault((message.sender, number), message.view)
        if sent_in != message.view:
            raise Violation(f"{message.id} is delivered in {sent_in} and in {message.view}")
        key = (period.machine, message.sender, number)
        if key in self._delivered:
            raise Violation(f"{period.machine} delivers message {number} of {message.sender} twice")
        self._delivered.add(key)
