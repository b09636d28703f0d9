"""Safe: a message delivered by this service has been received by every member of the view."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulator.checkers.base import Checker, Violation
from transport.messages import Message, Service


class SafeReceived(Checker):
    def __init__(self, nodes: Iterable[str]) -> None:
        self._received: dict[str, set[tuple[str, int]]] = {node: set() for node in nodes}

    def received(self, node: str, sender: str, number: int, message: Message) -> None:
        self._received[node].add((sender, number))

    def delivered(self, node: str, sender: str, number: int, message: Message) -> None:
        if message.service is Service.SAFE:
            for member, received in self._received.items():
                if (sender, number) not in received:
                    raise Violation(f"{node} delivered safe {sender}:{number}, which {member} does not have")
