"""Conflicts are those that follow from the one order and from what the senders of its messages knew when they sent
them: every node shows all of them that it still has to keep, in order, and no others."""

from __future__ import annotations

from collections.abc import Mapping

from kvstore.store.history import ConflictPlace
from kvstore.store.store import Store
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import ConflictPage, StoreChecker

ALL = 1_000_000_000
FIRST = ConflictPlace(0, 0, 0, 0)


class ConflictsFound(StoreChecker):
    def conflicts_shown(self, page: ConflictPage) -> None:
        replay = self.history.replay
        replay.advance()
        last = page.found[-1].place if len(page.found) == page.count else ConflictPlace(ALL, 0, 0, 0)
        there = [
            one for one in replay.conflicts if page.after < one.place <= last and one.place.position < page.line
        ]
        kept = [one for one in there if one.place.revision > page.oldest]
        if invented := [one for one in page.found if one not in there]:
            raise Violation(f"{page.node} shows {invented[0]}, which is no conflict")
        if missing := [one for one in kept if one not in page.found]:
            raise Violation(f"{page.node} does not show {missing[0]}")
        places = [one.place for one in page.found]
        if places != sorted(set(places)):
            raise Violation(f"{page.node} shows conflicts twice or in another order: {places}")

    def finished(self, stores: Mapping[str, Store]) -> None:
        for node, store in stores.items():
            green = store.green
            found = tuple(green.conflicts(FIRST, ALL))
            self.conflicts_shown(ConflictPage(node, FIRST, ALL, green.oldest(), green.line, found))
