"""No acknowledged write is lost: what was answered as green or on disk is in the one order, once, as the client
sent it, and every node reports the outcome that the client was answered."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from corel.messages import Color, MessageId
from kvstore.store.replies import Accepted, Done
from kvstore.store.state import Outcome
from kvstore.store.store import Store
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import Attempt, Request, StoreChecker, StoreHistory, message_of


class AcknowledgedWrites(StoreChecker):
    def __init__(self, history: StoreHistory) -> None:
        super().__init__(history)
        self._promised: dict[str, tuple[bytes, Outcome | None]] = {}
        """The data of each acknowledged write, and its outcome as far as it was answered or reported."""

    def answered(self, request: Request, attempt: Attempt) -> None:
        answer = attempt.answer
        if isinstance(answer, (Done, Accepted)):
            if answer.write_id in self._promised:
                raise Violation(f"{attempt.node} calls a second write {answer.write_id}")
            outcome = answer.applied.outcome if isinstance(answer, Done) else None
            self._promised[answer.write_id] = (request.data, outcome)

    def reported(self, node: str, message_id: MessageId, index: int, outcome: Outcome) -> None:
        data, known = self._promised.get(f"{message_id}.{index}", (b"", None))
        if known is not None and known != outcome:
            raise Violation(f"{node} reports {outcome} of {message_id}.{index}, {known} was reported before")
        self._promised[f"{message_id}.{index}"] = (data, outcome)

    def disk_replaced(self, node: str, lost: Collection[MessageId]) -> None:
        for write_id in list(self._promised):
            if message_of(write_id)[0] in lost:
                del self._promised[write_id]

    def finished(self, stores: Mapping[str, Store]) -> None:
        for write_id, (data, known) in self._promised.items():
            placed = self.history.replay.by_id.get(write_id)
            if placed is None:
                raise Violation(f"{write_id} was acknowledged and lost")
            if data and placed.data != data:
                raise Violation(f"{write_id} is another write than the one that was acknowledged as it")
            for node, store in stores.items():
                fate = store.outcome(*message_of(write_id))
                if fate is None or fate[0] is not Color.GREEN:
                    raise Violation(f"{node} does not know {write_id} as green, but says {fate}")
                if known is not None and fate[1] != known:
                    raise Violation(f"{node} reports {fate[1]} of {write_id}, {known} was reported before")
