"""Causal order: no message is delivered before one that its sender had delivered or sent before it.

Holds among the causal, agreed and safe services. A basic message takes no part: it may be delivered before its
own causes, so it cannot be a dependable cause either. The others of one sender are delivered in the order they
were sent, so what a node has delivered is one count per sender, and so is a message's past.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulator.checkers.base import Checker, Violation
from transport.messages import Message, Service


class CausalOrder(Checker):
    def __init__(self, nodes: Iterable[str]) -> None:
        nodes = list(nodes)
        self._sent = dict.fromkeys(nodes, 0)
        self._delivered = {node: dict.fromkeys(nodes, 0) for node in nodes}
        self._past: dict[tuple[str, int], dict[str, int]] = {}

    def sent(self, node: str, number: int, service: Service) -> None:
        if service is not Service.BASIC:
            self._past[node, number] = {**self._delivered[node], node: self._sent[node]}
            self._sent[node] += 1

    def delivered(self, node: str, sender: str, number: int, message: Message) -> None:
        if message.service is Service.BASIC:
            return
        delivered = self._delivered[node]
        for cause, count in self._past[sender, number].items():
            if delivered[cause] < count:
                raise Violation(
                    f"{node} delivered {sender}:{number} having {delivered[cause]} messages of {cause}, "
                    f"but its past has {count}"
                )
        delivered[sender] += 1
