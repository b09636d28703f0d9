"""What a node journals: takes what happens on the event loop, and queues it for the journal's thread.

Each method costs the event loop a few microseconds at most: it copies out what the record needs, so that neither
bodies nor values stay in memory while the journal's disk stalls, and leaves the rest to `journal_records`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from importlib import metadata
from typing import Any, Protocol

from corel import Color, Greened, LogWrite, Queued, Replica, Yellowed
from kvstore.node import journal_records
from kvstore.node.journal import Make
from kvstore.node.journal_records import Met
from kvstore.node.snapshot_format import LineageEntry
from kvstore.store import Accepted, Answer, Answered, AppliedMessage, Done, Outcome, write_id
from transport import Journal, Machine


class JournalPort(Protocol):
    """Takes what happens: the journal's thread (`JournalWriter`), or what stands for it in simulated time."""

    @property
    def lost(self) -> int: ...

    def begin(self, me: Machine) -> None: ...

    def put(self, make: Make, *arguments: Any, weight: int = 1) -> None: ...


class Recorder:
    """The journal of one incarnation of a node."""

    def __init__(self, journal: JournalPort, me: Machine) -> None:
        self._journal = journal
        self._me = me
        self._decided: Yellowed | None = None
        """The last decision on the yellow zone that no write has taken to disk yet."""
        self._writing: deque[tuple[LogWrite, Yellowed | None]] = deque()
        """The writes under way, each with the decision that it takes along."""
        self._lost_before = journal.lost
        journal.begin(me)

    @property
    def lost(self) -> int:
        """How many events of this incarnation were not written."""
        return self._journal.lost - self._lost_before

    def note(self, event: str, **fields: object) -> None:
        """Journals an event that has just these fields."""
        self._journal.put(journal_records.plain, event, fields)

    def entry(self, entry: Journal) -> None:
        """Journals what a machine asks for."""
        self._journal.put(journal_records.entry, entry)

    def started(
        self, cluster: str, roster: list[str], stack: Replica, revision: int, weights: list[int] | None = None
    ) -> None:
        """The incarnation begins, with what is on its disk, in a view of its own. `weights` are those of the nodes
        of the roster, 1 each if they are not given."""
        view, queue = stack.view, stack.log.queue
        lines = {"green": queue.green, "yellow": queue.yellow_line, "length": len(queue), "revision": revision}
        group = {"cluster": cluster, "roster": roster, "weights": weights or [1] * len(roster)}
        self.note("started", **group, software=metadata.version("corelkv"), **lines)
        members = list(map(str, view.members))
        self.note("view", view=str(view.id), reason="start", members=members, transitional=members)

    def begun_anew(self, lineage: Iterable[LineageEntry]) -> None:
        """The generations of the cluster that ended before this one."""
        for entry in lineage:
            self.note("begun_anew", green=entry.line, detail=entry.generation.hex(), reason=entry.reason)

    # Messages

    def queued(self, queued: Queued) -> None:
        entries = queued.entries
        ids = [entry.id for entry in entries]
        parallel = {
            "clocks": [entry.timestamp.clock for entry in entries],
            "sizes": [entry.size for entry in entries],
        }
        fields = {"view": str(queued.view), "color": str(queued.color), "length": queued.length}
        what = (self._me, queued.is_recovered, ids, parallel, fields)
        self._journal.put(journal_records.queued, *what, weight=len(ids))

    def yellowed(self, yellowed: Yellowed) -> None:
        self._decided = yellowed

    def writing(self, write: LogWrite) -> None:
        """The log's next write goes to disk."""
        decided = None
        if write.yellow is not None:
            decided, self._decided = self._decided, None
        self._writing.append((write, decided))

    def written(self) -> None:
        """The oldest write under way is on disk."""
        write, decided = self._writing.popleft()
        if write.records:
            ids = [record.id for record in write.records]
            primaries = [record.primary for record in write.records]
            self._journal.put(journal_records.logged, ids, primaries, weight=len(ids))
        if decided is not None and decided.entries:
            ids = [entry.id for entry in decided.entries]
            fields = {"view": str(decided.view), "position": decided.position}
            self._journal.put(journal_records.messages, "yellow", ids, {}, fields, weight=len(ids))

    def greened(self, greened: Greened) -> None:
        ids = [entry.id for entry in greened.entries]
        fields = {"position": greened.position}
        self._journal.put(journal_records.messages, "green", ids, {}, fields, weight=len(ids))

    # The store (`Observer`)

    def applied(self, position: int, messages: list[AppliedMessage]) -> None:
        ids = [message.id for message in messages]
        parallel = {
            "writes": [len(message.applied) for message in messages],
            "revisions": [message.revision for message in messages],
        }
        fields = {"position": position}
        self._journal.put(journal_records.messages, "applied", ids, parallel, fields, weight=len(ids))
        for place, message in enumerate(messages, position):
            if met := _met(message):
                self._journal.put(journal_records.outcomes_changed, place, met, weight=len(met))

    def answered(self, answers: list[Answered]) -> None:
        told = [(message_id, index, _told(answer)) for message_id, index, answer in answers]
        self._journal.put(journal_records.acknowledged, told, weight=len(told))


def _told(answer: Answer) -> Outcome | Color | None:
    """What a client was told: an outcome, or a colour, or nothing certain."""
    if type(answer) is Done:
        return answer.applied.outcome
    return answer.color if isinstance(answer, Accepted) else None


def _met(message: AppliedMessage) -> list[Met]:
    return [
        Met(
            write_id(message.id, index),
            done.outcome,
            conflict.kind,
            conflict.key,
            conflict.other.write_id,
            conflict.other.revision,
        )
        for index, done in enumerate(message.applied)
        if done.conflicts
        for conflict in done.conflicts
    ]
