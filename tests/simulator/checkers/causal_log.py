"""Causal: before every message, in every queue, is everything that its sender had in its queue when it sent it,
and every earlier message of its sender."""

from __future__ import annotations

from dataclasses import dataclass, field

from corel.corel import Corel
from corel.messages import Entry, MessageId, Stream
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.log import History, LogChecker


@dataclass(slots=True)
class _Looked:
    """What a node's queue was like when it was looked at last: nothing in it was wrong."""

    green: int = 0
    yellow: list[Entry] = field(default_factory=list)
    red: list[Entry] = field(default_factory=list)
    ids: list[MessageId] = field(default_factory=list)
    """Of everything that was not green, in order."""
    green_through: dict[Stream, int] = field(default_factory=dict)
    """For each stream, a message up to which all of them are green here."""


class CausalLog(LogChecker):
    """Looks only at messages that are new in a queue, or have others before them than when they were looked at."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._looked: dict[str, _Looked] = {}

    def started(self, node: str, log: Corel) -> None:
        self._look(node, log, _Looked())

    def stepped(self, node: str, log: Corel) -> None:
        queue, looked = log.queue, self._looked.get(node)
        if looked is None or queue.green < looked.green:
            self._look(node, log, _Looked())
        elif queue.green > looked.green or queue.yellow != looked.yellow or queue.red != looked.red:
            self._look(node, log, looked)

    def _look(self, node: str, log: Corel, looked: _Looked) -> None:
        history, positions, queue = self.history, self.history.positions, log.queue
        beyond, green = len(history.order), queue.green
        green_through = looked.green_through
        for stream, sequence in history.order[looked.green : green]:
            if sequence == green_through.get(stream, 0) + 1:
                green_through[stream] = sequence
        ids = [entry.id for entry in queue]
        kept = _kept(looked, ids)
        last = {**green_through, **dict(ids[:kept])}
        for message_id in ids[kept:]:
            stream, sequence = message_id
            for other, needed in {**history.pasts.get(message_id, {}), stream: sequence - 1}.items():
                if needed > last.get(other, 0) and positions.get(MessageId(other, needed), beyond) >= green:
                    raise Violation(f"{node} has {message_id} without {other}.{needed} before it")
            last[stream] = sequence
        self._looked[node] = _Looked(min(green, beyond), list(queue.yellow), list(queue.red), ids, green_through)


def _kept(looked: _Looked, ids: list[MessageId]) -> int:
    """Returns how many of the first messages have been looked at and still have the same ones before them, in the
    queue or green by now."""
    if not ids or ids[0] not in looked.ids:
        return 0
    turned = looked.ids.index(ids[0])
    if any(looked.green_through.get(stream, 0) < sequence for stream, sequence in looked.ids[:turned]):
        return 0
    count = 0
    for mine, other in zip(ids, looked.ids[turned:], strict=False):
        if mine is not other:
            break
        count += 1
    return count
