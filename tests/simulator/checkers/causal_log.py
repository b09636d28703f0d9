"""Causal: before every message, in every queue, is everything that its sender had in its queue when it sent it,
and every earlier message of its sender."""

from __future__ import annotations

from corel.corel import Corel
from corel.messages import MessageId, Stream
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.log import History, LogChecker


class CausalLog(LogChecker):
    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._seen: dict[str, object] = {}

    def started(self, node: str, log: Corel) -> None:
        self._look(node, log)

    def stepped(self, node: str, log: Corel) -> None:
        queue = log.queue
        shape = (queue.green, len(queue.yellow), len(queue.red), id(queue.yellow), id(queue.red), log.me)
        if self._seen.get(node) != shape:  # else nothing has been added or moved since
            self._seen[node] = shape
            self._look(node, log)

    def _look(self, node: str, log: Corel) -> None:
        history, positions = self.history, self.history.positions
        beyond = len(history.order)
        green = log.queue.green
        last: dict[Stream, int] = {}
        for entry in log.queue:
            stream, sequence = entry.id
            for other, needed in {**history.pasts.get(entry.id, {}), stream: sequence - 1}.items():
                if needed > last.get(other, 0) and positions.get(MessageId(other, needed), beyond) >= green:
                    raise Violation(f"{node} has {entry.id} without {other}.{needed} before it")
            last[stream] = sequence
