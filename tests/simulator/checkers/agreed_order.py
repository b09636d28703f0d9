"""Agreed order (COREL's Property 2.1): one order of the ordered messages, at every member, in timestamp order.

The member that has delivered most defines the order; what every other delivers must be a prefix of it.
"""

from __future__ import annotations

from tests.simulator.checkers.base import Checker, Violation
from transport.messages import ORDERED, Message, Timestamp


class AgreedOrder(Checker):
    def __init__(self) -> None:
        self._order: list[tuple[str, int, Timestamp]] = []
        self._position: dict[str, int] = {}

    def delivered(self, node: str, sender: str, number: int, message: Message) -> None:
        if message.service not in ORDERED:
            return
        entry = (sender, number, message.timestamp)
        position = self._position.get(node, 0)
        if position == len(self._order):
            if self._order and message.timestamp <= self._order[-1][2]:
                raise Violation(f"{node} delivered {entry} after {self._order[-1]}: not in timestamp order")
            self._order.append(entry)
        elif self._order[position] != entry:
            raise Violation(f"at place {position} {node} delivered {entry}, others {self._order[position]}")
        self._position[node] = position + 1
