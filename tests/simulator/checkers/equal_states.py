"""Equal states: every node has the state that the one order leads to, applied write by write, in the end and
whenever it starts."""

from __future__ import annotations

from collections.abc import Mapping

from kvstore.store.store import Store
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import StoreChecker
from tests.simulator.store.memory_tree import MemoryTree


class EqualStates(StoreChecker):
    def started(self, node: str, store: Store, tree: MemoryTree, log_line: int) -> None:
        if store.green.line != log_line:
            raise Violation(f"{node} begins with a state at {store.green.line}, and its log is at {log_line}")
        self._check(node, store)

    def finished(self, stores: Mapping[str, Store]) -> None:
        for node, store in stores.items():
            if store.green.line != self.history.replay.line:
                raise Violation(f"{node} is at {store.green.line}, the order at {self.history.replay.line}")
            self._check(node, store)

    def _check(self, node: str, store: Store) -> None:
        replay, green = self.history.replay, store.green
        replay.advance()
        if green.line > replay.line:
            raise Violation(f"{node} has applied {green.line} messages, of {replay.line} that are green")
        if green.revision != replay.revisions[green.line]:
            expected = replay.revisions[green.line]
            raise Violation(f"{node} is at revision {green.revision}, and should be at {expected}")
        for key in replay.keys:
            expected_item = replay.item(key, green.revision)
            if green.item(key) != expected_item:
                raise Violation(f"{node} has {green.item(key)} as {key}, and should have {expected_item}")
        for position, message_id in enumerate(self.history.log.order[: green.line]):
            fate = green.fate(message_id)
            if fate is None or fate != (position, replay.fates[message_id]):
                raise Violation(
                    f"{node} says {fate} of {message_id}, not {replay.fates[message_id]} at {position}"
                )
        for idempotency_key in replay.copies:
            decided = [one for one in replay.decided.get(idempotency_key, ()) if one.position < green.line]
            memory = green.remembered(idempotency_key)
            expected_id = decided[-1].write_id if decided else None
            if (None if memory is None else memory.write_id) != expected_id:
                raise Violation(f"{node} remembers {memory} of {idempotency_key}, not {expected_id}")
