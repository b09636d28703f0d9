"""Ids that were given to two messages, by nodes that have forgotten what they sent: digests of the green order
chain over bodies (decision 20), so after a recovery no two members of a component go on with different ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from corel.messages import Entry, MessageId
from tests.simulator.checkers.base import Violation


class ReusedIds:
    """The digests of the bodies that each id was given to, that were acknowledged, and that became green at any
    node."""

    def __init__(self) -> None:
        self._sent: dict[MessageId, set[bytes]] = defaultdict(set)
        self._acknowledged: dict[MessageId, set[bytes]] = defaultdict(set)
        self._green: dict[MessageId, set[bytes]] = defaultdict(set)

    def sent(self, entry: Entry) -> None:
        self._sent[entry.id].add(entry.body_digest)

    def acknowledged(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._acknowledged[entry.id].add(entry.body_digest)

    def greened(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._green[entry.id].add(entry.body_digest)

    def fates(self) -> Counter[str]:
        """Counts the ids that were given to several messages, by what became of these."""
        fates: Counter[str] = Counter()
        for message_id, bodies in self._sent.items():
            if len(bodies) > 1:
                green, acknowledged = self._green[message_id], self._acknowledged[message_id]
                lost = "acknowledged" if acknowledged - green else "not acknowledged"
                fates["several green" if len(green) > 1 else f"{len(green)} green, another one {lost}"] += 1
        return fates

    def check(self, components: Iterable[Mapping[str, Sequence[Entry]]]) -> None:
        """Compares the green orders of the members of each component, after a recovery of all of them."""
        for orders in components:
            longest = max(orders.values(), key=len)
            for node, order in orders.items():
                for position, (mine, other) in enumerate(zip(order, longest, strict=False)):
                    if (mine.id, mine.body_digest) != (other.id, other.body_digest):
                        what = "another body of" if mine.id == other.id else f"{mine.id}, not"
                        raise Violation(f"{node} has {what} {other.id} at {position}, and nobody has noticed")
