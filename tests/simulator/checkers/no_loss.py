"""No loss: in the end every live member has delivered everything every member sent, in every service.

With a fixed view, a crashed member holds up the ordered services and finally the window, until membership
removes it, and full buffers may keep packets from entering the DAG. Then the demand is on what has been received:
what one live member has, all have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tests.simulator.checkers.base import Checker, Violation
from transport.lansis import Lansis
from transport.messages import Message, Service


class NoLoss(Checker):
    def __init__(self) -> None:
        self._delivered: dict[str, set[tuple[str, int]]] = {}
        self._crashed: set[str] = set()

    def delivered(self, node: str, sender: str, number: int, message: Message) -> None:
        self._delivered.setdefault(node, set()).add((sender, number))

    def crashed(self, node: str) -> None:
        self._crashed.add(node)

    def finished(self, live: Mapping[str, Lansis], sent: Mapping[str, Sequence[Service]]) -> None:
        if self._crashed:
            self._demand_equal_receipt(live)
            return
        for node in live:
            delivered = self._delivered.get(node, set())
            for sender, services in sent.items():
                for number, service in enumerate(services):
                    if (sender, number) not in delivered:
                        raise Violation(f"{node} never delivered {service.name} {sender}:{number}")

    def _demand_equal_receipt(self, live: Mapping[str, Lansis]) -> None:
        received = {node: machine.received_through() for node, machine in live.items()}
        for node, other in pairwise(received):
            if received[node] != received[other]:
                raise Violation(f"{node} has received {received[node]}, {other} {received[other]}")
