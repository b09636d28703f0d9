"""Yellow: what any node made green in a primary component is yellow or green, at the same place, at every node
that knows of that component. One that has only learned of it knows all of the component before it."""

from __future__ import annotations

from corel.corel import Corel
from corel.effects import Greened
from corel.message_queue import MessageQueue
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.log import History, LogChecker


class YellowKept(LogChecker):
    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._reached: dict[int, int] = {}
        """How far any node has made green that knew of no later primary component than this one."""
        self._known: dict[int, int] = {}
        """How far any node has made green that knew of this primary component, or of an earlier one: computed when
        it is asked for, and kept until a node makes more green."""

    def greened(self, node: str, log: Corel, greened: Greened) -> None:
        if not log.committed:
            return  # what a restored cluster begins with
        line = greened.position + len(greened.entries)
        self._reached[log.committed] = max(line, self._reached.get(log.committed, 0))
        self._known.clear()

    def started(self, node: str, log: Corel) -> None:
        self.stepped(node, log)

    def stepped(self, node: str, log: Corel) -> None:
        self.check(node, log.committed - log.is_learned, log.queue)

    def check(self, node: str, committed: int, queue: MessageQueue) -> None:
        line = self._known.get(committed)
        if line is None:
            reached = [line for number, line in self._reached.items() if number <= committed]
            line = self._known[committed] = max(reached, default=0)
        if queue.yellow_line < line:
            raise Violation(
                f"{node} knows of primary {committed}, but is yellow to {queue.yellow_line} only, not {line}"
            )
        for position, entry in enumerate(queue.yellow[: max(0, line - queue.green)], queue.green):
            if self.history.order[position] != entry.id:
                raise Violation(
                    f"{node} has {entry.id} at {position}, where {self.history.order[position]} is green"
                )
