"""COREL's Property 2.3: if p delivers m before m' in a view, and q, having delivered m', sends m'' that p delivers
in that view, then q delivered m before m'.

Ordered deliveries of a view are in timestamp order, so it suffices to look at the last m' that q had delivered:
what p has up to it must be among what q had."""

from __future__ import annotations

from bisect import bisect_right

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.membership import MembershipChecker, Period
from transport.messages import Machine, Message, Service


class CausalCut(MembershipChecker):
    def __init__(self) -> None:
        self._had: dict[tuple[Machine, int], tuple[Period, int]] = {}
        """When a message was multicast: its sender's period, and how much it had delivered in it."""

    def multicast(self, number: int, period: Period, service: Service) -> None:
        self._had[(period.machine, number)] = (period, len(period.ordered))

    def delivered(self, number: int, period: Period, message: Message) -> None:
        theirs, count = self._had[(message.sender, number)]
        if theirs.view.id != period.view.id or not count or theirs is period:
            return
        last = theirs.ordered[count - 1]
        place = (last.clock, last.sender)
        ours_through = bisect_right(period.ordered, place, key=lambda message: (message.clock, message.sender))
        if period.ordered[:ours_through] == theirs.ordered[:count]:
            return
        had = {m.id for m in theirs.ordered[:count]}
        missed = [m.id for m in period.ordered[:ours_through] if m.id not in had]
        if missed:
            raise Violation(
                f"{period.machine} delivers {message.id}, whose sender had {last.id} but not {missed[:3]}"
            )
