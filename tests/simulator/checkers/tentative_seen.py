"""Who watches what is not green sees each write appear as it was sent, then every change of its colour, and then
how it ends: as a change of the green state, or as its outcome. When there is nothing left to read, the writes that
have appeared and not ended are those that the node has logged, in their present colours."""

from __future__ import annotations

from corel.messages import Color, MessageId
from kvstore.store.operations import Operation
from kvstore.store.state import Outcome
from kvstore.store.tentative_feed import Recolored, TentativeWrite
from kvstore.store.write_codec import decode_batch, decode_write
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import StoreChecker, StoreHistory, TentativeLook, message_of


class TentativeSeen(StoreChecker):
    def __init__(self, history: StoreHistory) -> None:
        super().__init__(history)
        self._open: dict[tuple[int, int], dict[str, Color]] = {}
        """For each stay of a reader, the writes that have appeared and not ended, in the colours that it knows."""
        self._operations: dict[MessageId, list[tuple[Operation, ...]]] = {}
        """What each write of a message may do."""

    def tentative_seen(self, look: TentativeLook) -> None:
        seen = self._open.setdefault(look.stay, {})
        for event in look.events:
            if isinstance(event, TentativeWrite):
                self._check_new(look, event, seen)
                seen[event.write_id] = event.color
                continue
            color = seen.pop(event.write_id, None)
            if color is None:
                raise Violation(f"{look.node} says {event} of a write that has not appeared, or has ended")
            if not isinstance(event, Recolored):
                self._check_end(look, event.write_id, event.outcome)
            elif event.color is color:
                raise Violation(f"{look.node} says that {event.write_id} is {color} now, which it was")
            else:
                seen[event.write_id] = event.color
        for change in look.changes:
            seen.pop(change.write_id, None)
        if look.is_all:
            self._check_all(look, seen)

    def _check_new(self, look: TentativeLook, event: TentativeWrite, seen: dict[str, Color]) -> None:
        if event.write_id in seen:
            raise Violation(f"{look.node} shows {event.write_id} again")
        message_id, _ = message_of(event.write_id)
        expected = self._of_interest(look, message_id).get(event.write_id)
        if event.operations != expected:
            raise Violation(f"{look.node} shows {event}, which should be {expected}")

    def _check_end(self, look: TentativeLook, name: str, outcome: Outcome) -> None:
        replay = self.history.replay
        replay.advance()
        expected = replay.by_id[name].outcome
        if outcome != expected:
            raise Violation(f"{look.node} says that {name} ended as {outcome}, not {expected}")
        changed = [] if outcome.revision is None else replay.feed[outcome.revision - 1 : outcome.revision]
        of_interest = [one for one in changed if one.write_id == name and look.interest.of(one) is not None]
        if of_interest and look.reads_changes:
            raise Violation(f"{look.node} says the outcome of {name}, which is the change {of_interest[0]}")

    def _check_all(self, look: TentativeLook, seen: dict[str, Color]) -> None:
        for message_id, color in look.now.items():
            for name in self._of_interest(look, message_id):
                if seen.get(name) is not color:
                    raise Violation(f"{look.node} has {name}, {color}; it was shown as {seen.get(name)}")
        for name in seen:
            if message_of(name)[0] in self.history.log.positions and self._has_ended(look, name):
                raise Violation(f"{look.node} has not said how {name} ended")

    def _has_ended(self, look: TentativeLook, name: str) -> bool:
        return self.history.log.positions[message_of(name)[0]] < look.line

    def _of_interest(self, look: TentativeLook, message_id: MessageId) -> dict[str, tuple[Operation, ...]]:
        """Returns the writes of a message that touch keys of interest, with the operations that do."""
        if message_id not in self._operations:
            writes = map(decode_write, decode_batch(self.history.log.bodies[message_id]).writes)
            self._operations[message_id] = [(*write.then, *(write.otherwise or ())) for write in writes]
        found = {}
        for index, operations in enumerate(self._operations[message_id]):
            if wanted := tuple([one for one in operations if look.interest.has(one.key)]):
                found[f"{message_id}.{index}"] = wanted
        return found
