"""The events that a checker of the log sees, and the history of the cluster that the run keeps for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from corel.corel import Corel
from corel.effects import Greened, Logged
from corel.messages import Entry, MessageId, Stream
from corel.storage import Lines
from transport.messages import ViewId


@dataclass(slots=True)
class History:
    """What has happened at any node."""

    order: list[MessageId] = field(default_factory=list)
    """The one order, as far as any node has made it green."""
    positions: dict[MessageId, int] = field(default_factory=dict)
    pasts: dict[MessageId, dict[Stream, int]] = field(default_factory=dict)
    """For each message, the last of each stream in its sender's queue when it was sent."""
    bodies: dict[MessageId, bytes] = field(default_factory=dict)
    """The bodies as they were submitted."""
    views: dict[MessageId, ViewId] = field(default_factory=dict)
    """The view in which each message left."""


class LogChecker:
    """Ignores every event: each checker overrides what it needs."""

    def __init__(self, history: History) -> None:
        self.history = history

    def started(self, node: str, log: Corel) -> None:
        """The node has read its disk."""

    def greened(self, node: str, log: Corel, greened: Greened) -> None:
        """The node has made these green. They are not in the history yet."""

    def logged(self, node: str, log: Corel, logged: Logged) -> None:
        """These are on the node's disk, and the node has acknowledged them."""

    def stepped(self, node: str, log: Corel) -> None:
        """The node has executed the effects of an input."""

    def took_over(self, node: str, lines: Lines) -> None:
        """The node's disk has taken over the green prefix of another one, and holds these lines."""

    def truncated(self, node: str, cut: int, digest: bytes) -> None:
        """The node's disk has no green messages before the cut any more, and says that this is the digest of
        those."""

    def disk_replaced(self, node: str) -> None:
        """The node's disk was replaced by an empty one."""

    def finished(self, logs: Mapping[str, Corel]) -> None:
        """The run is over: the network was healed and is quiet, and every node is up."""


def ids(entries: list[Entry] | tuple[Entry, ...]) -> list[MessageId]:
    return [entry.id for entry in entries]
