"""Agreed Green and No Changes in Green: there is one green order, and a node's part of it only grows, from where
it is on its disk. What is truncated, or was taken over from another node, is the same order by its digest."""

from __future__ import annotations

from collections.abc import Mapping

from corel.corel import Corel
from corel.effects import Greened
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST, NO_VIEW, Entry
from corel.storage import Lines
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.log import History, LogChecker, ids


class AgreedGreen(LogChecker):
    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._line: dict[str, int] = {}
        self._digests = [EMPTY_DIGEST]
        """The digests of the one order, by line, as far as they were asked for."""

    def started(self, node: str, log: Corel) -> None:
        if log.queue.green > self._line.get(node, 0):
            raise Violation(
                f"{node} begins with {log.queue.green} green messages, and had {self._line.get(node, 0)}"
            )
        self._line[node] = log.queue.green

    def took_over(self, node: str, lines: Lines) -> None:
        if len(self.history.order) < lines.green:
            raise Violation(f"{node} takes over {lines.green} green messages, of {len(self.history.order)}")
        if self._digest_at(lines.green) != lines.green_digest:
            raise Violation(f"{node} takes over another order than the first {lines.green} green messages")
        self._line[node] = max(lines.green, self._line.get(node, 0))

    def truncated(self, node: str, cut: int, digest: bytes) -> None:
        if self._digest_at(cut) != digest:
            raise Violation(f"{node} has another digest at its cut than that of the first {cut} green messages")

    def _digest_at(self, line: int) -> bytes:
        for one in self.history.order[len(self._digests) - 1 : line]:
            entry = Entry(one, 0, NO_VIEW, self.history.bodies[one])
            self._digests.append(chained(self._digests[-1], [entry]))
        return self._digests[line]

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
