"""Primary components are totally ordered: one per number, and each has a member of the one before it, which knows
it by more than the green messages that it took over from another node."""

from __future__ import annotations

from corel.corel import Corel
from corel.stages import Stage
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.log import History, LogChecker
from transport.messages import View


class Primaries(LogChecker):
    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.established: dict[int, View] = {}

    def stepped(self, node: str, log: Corel) -> None:
        if log.stage is Stage.ESTABLISHING and log.is_learned:
            raise Violation(f"{node} attempts a primary component, and nobody in its view was in the last one")
        if log.stage is not Stage.PRIMARY:
            return
        known = self.established.get(log.committed)
        if known is not None:
            if known.id != log.view.id:
                raise Violation(f"primary {log.committed} was established in {known.id} and in {log.view.id}")
            return
        members = {machine.name for machine in log.view.members}
        if not log.roster.is_majority(members):
            raise Violation(f"primary {log.committed} of {sorted(members)} is no majority")
        for number, other in self.established.items():
            if not members & {machine.name for machine in other.members}:
                raise Violation(f"primaries {number} and {log.committed} have no member in common")
        self.established[log.committed] = log.view
