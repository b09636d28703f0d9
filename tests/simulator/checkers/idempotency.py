"""Of all copies of a write with one idempotency key one is applied, wherever they were sent: the others are
duplicates of it, or, if they are another write, rejected."""

from __future__ import annotations

from collections.abc import Mapping

from kvstore.store.state import Verdict, Why
from kvstore.store.store import Store
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import StoreChecker


class Idempotency(StoreChecker):
    def finished(self, stores: Mapping[str, Store]) -> None:
        for key, copies in self.history.replay.copies.items():
            first = copies[0]
            for node, store in stores.items():
                for copy in copies:
                    fate = store.green.fate(self.history.log.order[copy.position])
                    if fate is None:
                        raise Violation(f"{node} does not know what became of {copy.write_id}")
                    outcome = fate.outcomes[copy.place]
                    is_new = outcome.verdict is not Verdict.DUPLICATE
                    is_reused = outcome.why is Why.IDEMPOTENCY_KEY_REUSED
                    if copy is first:
                        if not is_new or is_reused:
                            raise Violation(f"{node} has no first copy of {key}: {copy.write_id} is {outcome}")
                    elif copy.data != first.data:
                        if not is_reused:
                            raise Violation(f"{node} accepts another write with {key}: {copy.write_id}")
                    elif is_new or outcome.first_id != first.write_id:
                        raise Violation(
                            f"{node} has {copy.write_id} as {outcome}, a duplicate of {first.write_id} ({key})"
                        )
