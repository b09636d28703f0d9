"""A write that was refused (no primary component, too late, too much, the node leaves) has no effect: there are no
more copies of it in the order than were sent and not refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kvstore.store.store import Store
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import StoreChecker


class Refused(StoreChecker):
    def finished(self, stores: Mapping[str, Store]) -> None:
        allowed: Counter[bytes] = Counter()
        for request in self.history.requests:
            allowed[request.data] += sum(not attempt.is_refused for attempt in request.attempts)
        for placed in self.history.replay.writes:
            allowed[placed.data] -= 1
            if allowed[placed.data] < 0:
                raise Violation(f"{placed.write_id} was refused, or never asked for, and is in the order")
