"""The past is kept for as long as it is promised: a node that no longer has what it is asked for is at least
`history_revisions` beyond it, and ten times as many if somebody was reading it. The past of a node that has taken
over the state of another begins there."""

from __future__ import annotations

from collections.abc import Collection

from corel.messages import MessageId
from kvstore.store.history import HISTORY_PINNED_FACTOR
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import NoLongerKept, StoreChecker, StoreHistory
from tests.simulator.store.memory_tree import MemoryTree


class KeptPast(StoreChecker):
    def __init__(self, history: StoreHistory) -> None:
        super().__init__(history)
        self._begins: dict[str, int] = {}
        """The revisions with which nodes came that have taken over a state."""

    def took_over(self, node: str, tree: MemoryTree) -> None:
        self._begins[node] = tree.revision

    def disk_replaced(self, node: str, lost: Collection[MessageId]) -> None:
        self._begins.pop(node, None)

    def compacted(self, refusal: NoLongerKept) -> None:
        if refusal.asked >= refusal.oldest:
            raise Violation(f"{refusal.node} keeps revision {refusal.oldest}, and refuses {refusal.asked}")
        must_keep = self.history.history_revisions * (HISTORY_PINNED_FACTOR if refusal.is_pinned else 1)
        if refusal.oldest > max(self._begins.get(refusal.node, 0), refusal.revision - must_keep):
            raise Violation(
                f"{refusal.node} at revision {refusal.revision} has forgotten all before {refusal.oldest}, "
                f"and must keep {must_keep} revisions"
            )
