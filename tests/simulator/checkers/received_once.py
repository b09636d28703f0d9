"""Received: every ordered message is offered once, in its sender's order, after its causes, before its delivery.

The layer above logs what it is offered, so a message logged must not be logged again, nor before what caused it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulator.checkers.base import Checker, Violation
from transport.messages import ORDERED, Message, Service


class ReceivedOnce(Checker):
    def __init__(self, nodes: Iterable[str]) -> None:
        nodes = list(nodes)
        self._ordered: dict[str, list[int]] = {node: [] for node in nodes}
        """The numbers of each sender's ordered messages."""
        self._received = {node: dict.fromkeys(nodes, 0) for node in nodes}
        """How many messages of each sender the node has been offered."""
        self._delivered = {node: dict.fromkeys(nodes, 0) for node in nodes}
        self._past: dict[tuple[str, int], dict[str, int]] = {}

    def sent(self, node: str, number: int, service: Service) -> None:
        if service in ORDERED:
            self._past[node, number] = dict(self._delivered[node])
            self._ordered[node].append(number)

    def received(self, node: str, sender: str, number: int, message: Message) -> None:
        received = self._received[node]
        expected = self._ordered[sender][received[sender] : received[sender] + 1]
        if [number] != expected:
            raise Violation(f"{node} was offered {sender}:{number}, the next is {expected or 'none'}")
        for cause, count in self._past[sender, number].items():
            if received[cause] < count:
                raise Violation(f"{node} was offered {sender}:{number} before what {cause} sent in its past")
        received[sender] += 1

    def delivered(self, node: str, sender: str, number: int, message: Message) -> None:
        if message.service in ORDERED:
            self._delivered[node][sender] += 1
            if self._delivered[node][sender] > self._received[node][sender]:
                raise Violation(f"{node} delivered {sender}:{number}, which it was not offered before")
