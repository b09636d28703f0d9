"""A machine delivers its own messages: all that it sent and that were not refused, once the network is quiet. And
what is sent in the last view reaches all its members."""

from __future__ import annotations

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.membership import MembershipChecker, Period
from transport.messages import Machine, Message, Service, ViewId


class NothingLost(MembershipChecker):
    def __init__(self) -> None:
        self._unseen: dict[Machine, set[int]] = {}
        self._reached: dict[tuple[Machine, int], tuple[ViewId, Service, set[Machine]]] = {}

    def multicast(self, number: int, period: Period, service: Service) -> None:
        self._unseen.setdefault(period.machine, set()).add(number)

    def delivered(self, number: int, period: Period, message: Message) -> None:
        key = (message.sender, number)
        self._reached.setdefault(key, (message.view, message.service, set()))[2].add(period.machine)
        if message.sender == period.machine:
            self._unseen[period.machine].discard(number)

    def finished(self, last: dict[str, Period], is_whole: bool) -> None:
        for period in last.values():
            if unseen := self._unseen.get(period.machine):
                raise Violation(f"{period.machine} never delivered its own messages {sorted(unseen)[:5]}")
        views = {period.view.id: set(period.view.members) for period in last.values()}
        for (sender, number), (view, _, reached) in self._reached.items():
            if view in views and reached != views[view]:
                missing = sorted(views[view] - reached)
                raise Violation(f"message {number} of {sender}, sent in the last view, did not reach {missing}")
