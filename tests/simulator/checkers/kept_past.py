"""The past is kept for as long as it is promised: a node that no longer has what it is asked for is at least
`history_revisions` beyond it, and ten times as many if somebody was reading it."""

from __future__ import annotations

from kvstore.store.history import HISTORY_PINNED_FACTOR
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import NoLongerKept, StoreChecker


class KeptPast(StoreChecker):
    def compacted(self, refusal: NoLongerKept) -> None:
        if refusal.asked >= refusal.oldest:
            raise Violation(f"{refusal.node} keeps revision {refusal.oldest}, and refuses {refusal.asked}")
        must_keep = self.history.history_revisions * (HISTORY_PINNED_FACTOR if refusal.is_pinned else 1)
        if refusal.oldest > max(0, refusal.revision - must_keep):
            raise Violation(
                f"{refusal.node} at revision {refusal.revision} has forgotten all before {refusal.oldest}, "
                f"and must keep {must_keep} revisions"
            )
