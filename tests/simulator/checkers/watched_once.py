"""A watcher sees what the one order changed of its keys from its first revision on: everything, once and in order,
however often it went to another node, which may be behind or have restarted."""

from __future__ import annotations

from collections.abc import Mapping

from kvstore.store.history import Change
from kvstore.store.store import Store
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import StoreChecker, Watch


class WatchedOnce(StoreChecker):
    def finished(self, stores: Mapping[str, Store]) -> None:
        for number, watch in enumerate(self.history.watches):
            expected = self._expected(watch)
            for seen, change in zip(watch.seen, expected, strict=False):
                if seen != change:
                    raise Violation(
                        f"watcher {number} of {watch.interest} saw {seen}, and should have seen {change}"
                    )
            if len(watch.seen) != len(expected):
                counts = f"{len(watch.seen)} changes of {len(expected)}"
                raise Violation(f"watcher {number} of {watch.interest} saw {counts} from {watch.first} on")

    def _expected(self, watch: Watch) -> list[Change]:
        changes = self.history.replay.feed[max(0, watch.first - 1) :]
        if watch.has_ended:
            changes = [change for change in changes if change.revision < watch.next]
        return [part for change in changes if (part := watch.interest.of(change)) is not None]
