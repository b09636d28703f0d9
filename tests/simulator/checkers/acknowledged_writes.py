"""No acknowledged write is lost: whatever a client was told is green or on disk is in the one order, once, as the
client sent it, and every node says the same of what became of it as the client was told."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from corel.messages import Color, MessageId
from kvstore.machine import Accepted, Done, Machine
from kvstore.state import Outcome
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import Attempt, Request, StoreChecker, StoreHistory, split_write_id


class AcknowledgedWrites(StoreChecker):
    def __init__(self, history: StoreHistory) -> None:
        super().__init__(history)
        self._promised: dict[str, tuple[bytes, Outcome | None]] = {}
        """Of each acknowledged write, what it is, and what was told of its outcome."""

    def answered(self, request: Request, attempt: Attempt) -> None:
        answer = attempt.answer
        if isinstance(answer, (Done, Accepted)):
            if answer.write_id in self._promised:
                raise Violation(f"{attempt.node} calls a second write {answer.write_id}")
            outcome = answer.applied.outcome if isinstance(answer, Done) else None
            self._promised[answer.write_id] = (request.data, outcome)

    def told(self, node: str, message_id: MessageId, index: int, outcome: Outcome) -> None:
        data, known = self._promised.get(f"{message_id}.{index}", (b"", None))
        if known is not None and known != outcome:
            raise Violation(f"{node} says {outcome} of {message_id}.{index}, and somebody said {known}")
        self._promised[f"{message_id}.{index}"] = (data, outcome)

    def disk_replaced(self, node: str, lost: Collection[MessageId]) -> None:
        names = {str(message_id) for message_id in lost}
        for write_id in list(self._promised):
            if split_write_id(write_id)[0] in names:
                del self._promised[write_id]

    def finished(self, stores: Mapping[str, Machine]) -> None:
        messages = {str(message_id): message_id for message_id in self.history.log.order}
        for write_id, (data, told) in self._promised.items():
            placed = self.history.replay.by_id.get(write_id)
            if placed is None:
                raise Violation(f"{write_id} was acknowledged and lost")
            if data and placed.data != data:
                raise Violation(f"{write_id} is another write than the one that was acknowledged as it")
            name, index = split_write_id(write_id)
            for node, store in stores.items():
                fate = store.outcome(messages[name], index)
                if fate is None or fate[0] is not Color.GREEN:
                    raise Violation(f"{node} does not know {write_id} as green, but says {fate}")
                if told is not None and fate[1] != told:
                    raise Violation(f"{node} says {fate[1]} of {write_id}, and somebody was told {told}")
