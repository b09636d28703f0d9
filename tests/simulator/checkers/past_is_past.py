"""Lists, reads of an earlier revision and the history of a key are what the one order came to at that revision,
wherever a node keeps it."""

from __future__ import annotations

from collections.abc import Mapping

from kvstore.store.history import Span
from kvstore.store.store import Store
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import Page, StoreChecker, Versions

ALL = 1_000_000_000
REVISIONS_MAX = 12
"""In the end, at most so many revisions of each node are looked at."""


class PastIsPast(StoreChecker):
    def listed(self, page: Page) -> None:
        replay = self.history.replay
        replay.advance()
        if page.revision >= len(replay.changers):
            raise Violation(f"{page.node} has a revision {page.revision}, of {len(replay.changers) - 1}")
        items = [(key, item) for key, item in replay.scan(page.revision) if page.span.has(key.encode())]
        if page.is_reverse:
            items.reverse()
        expected = tuple(items[: page.count])
        if page.items != expected:
            raise Violation(f"{page.node} lists {page.items} at revision {page.revision}, not {expected}")

    def dated(self, versions: Versions) -> None:
        replay = self.history.replay
        replay.advance()
        kept = [
            version
            for version in replay.versions(versions.key)
            if versions.oldest < version[0] <= versions.revision and version[0] < versions.before
        ]
        expected = tuple(kept[: versions.count])
        if versions.found != expected:
            raise Violation(f"{versions.node} has {versions.found} as the past of {versions.key}, not {expected}")

    def finished(self, stores: Mapping[str, Store]) -> None:
        for node, store in stores.items():
            oldest, newest = store.green.oldest(), store.green.revision
            step = max(1, (newest - oldest) // REVISIONS_MAX)
            for revision in (*range(oldest, newest, step), newest):
                found = store.green.snapshot(revision).scan(Span())
                self.listed(Page(node, revision, Span(), False, ALL, tuple(found)))
            for key in self.history.replay.keys:
                versions = tuple(store.green.versions(key, ALL, ALL))
                self.dated(Versions(node, key, ALL, ALL, oldest, newest, versions))
