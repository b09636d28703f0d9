"""P.2, and COREL's Property 2.2: two machines that share two consecutive views deliver the same between them.

Ordered messages are compared in their order, causal ones as a set. Basic messages promise nothing of the kind."""

from __future__ import annotations

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.membership import MembershipChecker, Period
from transport.messages import ViewId


class VirtualSynchrony(MembershipChecker):
    def __init__(self) -> None:
        self._first: dict[tuple[ViewId, ViewId], Period] = {}

    def installed(self, old: Period | None, new: Period) -> None:
        if old is None:
            return
        first = self._first.setdefault((old.view.id, new.view.id), old)
        if first is old:
            return
        if old.ordered != first.ordered or old.causal != first.causal:
            odd = [m.id for m in sorted(set(old.ordered) ^ set(first.ordered))]
            odd += sorted(map(str, old.causal ^ first.causal))
            raise Violation(
                f"{old.machine} and {first.machine} went from {old.view.id} to {new.view.id}, but delivered "
                f"{len(old.ordered)} and {len(first.ordered)} ordered messages in it; they differ in {odd[:5]}"
            )
