"""P.1: all machines that install a view agree on its members, and on which of them came from the same view.

From which view those came that never install it is not known, but all that came together must agree on them."""

from __future__ import annotations

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.membership import MembershipChecker, Period
from transport.messages import Machine, ViewId


class ViewAgreement(MembershipChecker):
    def __init__(self) -> None:
        self._installs: dict[ViewId, dict[Machine, Period]] = {}

    def installed(self, old: Period | None, new: Period) -> None:
        view = new.view
        if new.machine not in view.members:
            raise Violation(f"{new.machine} installs {view}, of which it is no member")
        before = new.before.members if new.before is not None else (new.machine,)
        if not {new.machine} <= set(view.transitional) <= set(view.members).intersection(before):
            raise Violation(f"{new.machine} comes from {new.before} and has transitional {view.transitional}")
        others = self._installs.setdefault(view.id, {})
        if new.machine in others:
            raise Violation(f"{new.machine} installs {view.id} twice")
        for other in others.values():
            _compare(new, other)
        others[new.machine] = new


def _compare(new: Period, other: Period) -> None:
    if other.view.members != new.view.members:
        raise Violation(f"{new.machine} has {new.view}, {other.machine} has {other.view}")
    came_together = new.before is not None and other.before is not None and new.before.id == other.before.id
    if came_together and new.view.transitional != other.view.transitional:
        raise Violation(
            f"{new.machine} and {other.machine} come from {new.before and new.before.id}, but have transitional "
            f"{new.view.transitional} and {other.view.transitional} in {new.view.id}"
        )
    for one, another in ((new, other), (other, new)):
        if (another.machine in one.view.transitional) != came_together:
            raise Violation(
                f"{one.machine} (from {one.before and one.before.id}) has transitional "
                f"{one.view.transitional} in {one.view.id}; {another.machine} came from "
                f"{another.before and another.before.id}"
            )
