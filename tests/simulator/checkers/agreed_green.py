"""Agreed Green and No Changes in Green: there is one green order, and a node's part of it only grows, from where
it is on its disk."""

from __future__ import annotations

from collections.abc import Mapping

from corel.corel import Corel
from corel.effects import Greened
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.log import History, LogChecker, ids


class AgreedGreen(LogChecker):
    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._line: dict[str, int] = {}

    def started(self, node: str, log: Corel) -> None:
        if log.queue.green > self._line.get(node, 0):
            raise Violation(
                f"{node} begins with {log.queue.green} green messages, and had {self._line.get(node, 0)}"
            )
        self._line[node] = log.queue.green

    def disk_replaced(self, node: str) -> None:
        self._line[node] = 0

    def greened(self, node: str, log: Corel, greened: Greened) -> None:
        if greened.position != self._line[node]:
            raise Violation(f"{node} makes green from {greened.position} on, and was at {self._line[node]}")
        order = self.history.order
        for position, message_id in enumerate(ids(greened.entries), greened.position):
            if position < len(order) and order[position] != message_id:
                raise Violation(f"{node} has {message_id} at {position}, another node had {order[position]} there")
            earlier = self.history.positions.get(message_id, position)
            if earlier != position:
                raise Violation(f"{node} has {message_id} at {position}, and it was at {earlier}")
        self._line[node] += len(greened.entries)

    def finished(self, logs: Mapping[str, Corel]) -> None:
        for node, log in logs.items():
            if log.queue.green != len(self.history.order) or len(log.queue) != log.queue.green:
                raise Violation(
                    f"{node} has {log.queue.green} of {len(log.queue)} green, of {len(self.history.order)}"
                )
        if len({log.queue.green_digest for log in logs.values()}) > 1:
            raise Violation("the digests of the green order differ")
