"""View ids ascend at every node, across restarts too: none comes twice."""

from __future__ import annotations

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.membership import MembershipChecker, Period
from transport.messages import ViewId


class AscendingViews(MembershipChecker):
    def __init__(self) -> None:
        self._last: dict[str, ViewId] = {}

    def installed(self, old: Period | None, new: Period) -> None:
        name = new.machine.name
        last = self._last.get(name)
        if last is not None and new.view.id <= last:
            raise Violation(f"{new.machine} installs {new.view.id} after {last}")
        self._last[name] = new.view.id
