"""No message is delivered twice to the same application."""

from __future__ import annotations

from tests.simulator.checkers.base import Checker, Violation
from transport.messages import Message


class NoDuplicates(Checker):
    def __init__(self) -> None:
        self._delivered: set[tuple[str, str, int]] = set()

    def delivered(self, node: str, sender: str, number: int, message: Message) -> None:
        if (node, sender, number) in self._delivered:
            raise Violation(f"{node} delivered {sender}:{number} twice")
        self._delivered.add((node, sender, number))
