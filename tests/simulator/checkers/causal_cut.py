"""COREL's Property 2.3: if p delivers m before m' in a view, and q, having delivered m', sends m'' that p delivers
in that view, then q delivered m before m'.

Ordered deliveries of a view are in timestamp order, so it suffices to look at the last m' that q had delivered:
what p has up to it must be among what q had. p may deliver m and m' after m'', for a basic m'' does not wait for
them: so each pair is looked at again when the run is over."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.membership import MembershipChecker, Period
from transport.messages import Machine, Message, Service, ViewId


class _Cut(NamedTuple):
    """How much the sender of a message had delivered in its period when it sent it."""

    length: int
    theirs: Period


class CausalCut(MembershipChecker):
    def __init__(self) -> None:
        self._cuts: dict[tuple[Machine, int], _Cut] = {}
        self._furthest: dict[tuple[Machine, ViewId, Machine], tuple[Period, Message, _Cut]] = {}
        """The message of each sender, delivered by a machine in a view, before which the sender had delivered
        most. It stands for all of that sender."""

    def multicast(self, number: int, period: Period, service: Service) -> None:
        self._cuts[(period.machine, number)] = _Cut(len(period.ordered), period)

    def delivered(self, number: int, period: Period, message: Message) -> None:
        cut = self._cuts[(message.sender, number)]
        if cut.theirs.view.id != period.view.id or not cut.length or cut.theirs is period:
            return
        key = (period.machine, period.view.id, message.sender)
        if key not in self._furthest or self._furthest[key][2].length < cut.length:
            self._furthest[key] = (period, message, cut)
        _demand_what_it_had(period, message, cut)

    def finished(self, last: dict[str, Period], is_whole: bool) -> None:
        for period, message, cut in self._furthest.values():
            _demand_what_it_had(period, message, cut)


def _demand_what_it_had(period: Period, message: Message, cut: _Cut) -> None:
    had = cut.theirs.ordered[: cut.length]
    last = had[-1]
    ours_through = bisect_right(period.ordered, last.timestamp, key=lambda message: message.timestamp)
    if period.ordered[:ours_through] == had:
        return
    known = {m.id for m in had}
    if missed := [m.id for m in period.ordered[:ours_through] if m.id not in known]:
        raise Violation(f"{period.machine} delivers {message.id}, whose sender had {last.id} but not {missed[:3]}")
