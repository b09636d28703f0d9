"""What becomes green, and what is on disk, is what was submitted."""

from __future__ import annotations

from collections.abc import Mapping

from corel.corel import Corel
from corel.effects import Greened
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.log import LogChecker


class Bodies(LogChecker):
    def greened(self, node: str, log: Corel, greened: Greened) -> None:
        for entry in greened.entries:
            if entry.body is not None and entry.body != self.history.bodies[entry.id]:
                raise Violation(f"{node} has another body of {entry.id} than was submitted")

    def finished(self, logs: Mapping[str, Corel]) -> None:
        for node, log in logs.items():
            for entry in log.read_green(log.cut, log.queue.green - log.cut):
                if entry.body != self.history.bodies[entry.id]:
                    raise Violation(f"{node} has another body of {entry.id} on disk than was submitted")
