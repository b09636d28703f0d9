"""P.1: whoever installs a view agrees with all others who do on its members, and on who came the same way."""

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
        others = self._installs.setdefault(view.id, {})
        if new.machine in others:
            raise Violation(f"{new.machine} installs {view.id} twice")
        for other in others.values():
            self._compare(new, other)
        others[new.machine] = new

    def _compare(self, new: Period, other: Period) -> None:
        if other.view.members != new.view.members:
            raise Violation(f"{new.machine} has {new.view}, {other.machine} has {other.view}")
        came_together = new.before is not None and other.before is not None and new.before.id == other.before.id
        for one, another in ((new, other), (other, new)):
            if (another.machine in one.view.transitional) != came_together:
                raise Violation(
                    f"{one.machine} (from {one.before and one.before.id}) has transitional "
                    f"{one.view.transitional} in {one.view.id}; {another.machine} came from "
                    f"{another.before and another.before.id}"
                )
