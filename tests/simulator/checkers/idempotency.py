"""Of all copies of a write with one idempotency key at most one is applied, for ever, wherever they were sent and
however late they get their place. The others are duplicates of it, rejected if they are another write, or expired;
but none expires while its key is remembered, nor within half of that time."""

from __future__ import annotations

from collections.abc import Mapping

from kvstore.store.state import Outcome, Verdict, Why
from kvstore.store.store import Store
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import StoreChecker
from tests.simulator.store.model import Placed


class Idempotency(StoreChecker):
    def finished(self, stores: Mapping[str, Store]) -> None:
        for node, store in stores.items():
            for key, copies in self.history.replay.copies.items():
                self._check(node, key, [(copy, self._outcome(node, store, copy)) for copy in copies])

    def _outcome(self, node: str, store: Store, copy: Placed) -> Outcome:
        fate = store.green.fate(self.history.log.order[copy.position])
        if fate is None:
            raise Violation(f"{node} does not know what became of {copy.write_id}")
        return fate.outcomes[copy.place]

    def _check(self, node: str, key: str, copies: list[tuple[Placed, Outcome]]) -> None:
        first: Placed | None = None
        for copy, outcome in copies:
            if outcome.verdict is Verdict.EXPIRED:
                self._check_expired(node, key, first, copy)
            elif first is None:
                if outcome.verdict is Verdict.DUPLICATE or outcome.why is Why.IDEMPOTENCY_KEY_REUSED:
                    raise Violation(f"{node} has no first copy of {key}: {copy.write_id} is {outcome}")
                first = copy
            elif copy.data != first.data:
                if outcome.why is not Why.IDEMPOTENCY_KEY_REUSED:
                    raise Violation(f"{node} accepts another write with {key}: {copy.write_id}")
            elif outcome.verdict is not Verdict.DUPLICATE or outcome.first_id != first.write_id:
                raise Violation(
                    f"{node} has {copy.write_id} as {outcome}, a duplicate of {first.write_id} ({key})"
                )

    def _check_expired(self, node: str, key: str, first: Placed | None, copy: Placed) -> None:
        window = self.history.idempotency_positions
        if copy.position <= window // 2:
            raise Violation(f"{node} calls {copy.write_id} expired at {copy.position}, too early for any copy")
        if first is not None and copy.position - first.position <= window:
            raise Violation(f"{node} calls {copy.write_id} expired, and should remember {first.write_id} ({key})")
