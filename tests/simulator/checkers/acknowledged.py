"""Nothing that was said to be on disk, or green, is ever lost: in the end it is green everywhere, once."""

from __future__ import annotations

from collections.abc import Mapping

from corel.corel import Corel
from corel.effects import Logged
from corel.messages import MessageId
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.log import History, LogChecker


class Acknowledged(LogChecker):
    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.promised: dict[MessageId, set[str]] = {}
        """The acknowledged messages, and the nodes on whose disks they are known to be."""

    def logged(self, node: str, log: Corel, logged: Logged) -> None:
        for entry in logged.entries:
            self.promised.setdefault(entry.id, set()).add(node)

    def disk_replaced(self, node: str) -> None:
        """Drops what was only on that disk."""
        for message_id, disks in list(self.promised.items()):
            disks.discard(node)
            if not disks and message_id not in self.history.positions:
                del self.promised[message_id]

    def finished(self, logs: Mapping[str, Corel]) -> None:
        lost = [str(message_id) for message_id in self.promised if message_id not in self.history.positions]
        if lost:
            raise Violation(f"{len(lost)} messages were acknowledged and lost: {lost[:5]}")
