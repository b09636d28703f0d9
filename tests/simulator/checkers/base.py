"""The events that a checker of the transport sees. It trusts only its own record of them, not the machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transport.lansis import Lansis
from transport.messages import Machine, Message, Service


class Violation(AssertionError):
    """A property does not hold; the message says where."""


class Checker:
    """Ignores every event: each checker overrides what it needs. Messages are named by (sender, number)."""

    def sent(self, node: str, number: int, service: Service) -> None:
        """The node's application has multicast its message of this number (they count from 0)."""

    def received(self, node: str, sender: str, number: int, message: Message) -> None:
        """An ordered message entered the node's DAG."""

    def delivered(self, node: str, sender: str, number: int, message: Message) -> None:
        """The node's application was given the message."""

    def crashed(self, node: str) -> None:
        """The node has crashed, and will not come back as the same machine."""

    def stuck(self, node: str, laggards: tuple[Machine, ...]) -> None:
        """The node's machine has reported that it cannot go on because of these members."""

    def stepped(self, node: str, machine: Lansis) -> None:
        """The node's machine has just handled an input."""

    def finished(self, live: Mapping[str, Lansis], sent: Mapping[str, Sequence[Service]]) -> None:
        """The run is over: the network was healed and is quiet. `live` are the members that never crashed."""
