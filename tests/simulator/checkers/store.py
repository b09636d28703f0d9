"""What clients asked and were told, which the run keeps for all checkers of the store, and what a checker is told
of it as it happens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from corel.messages import Color, MessageId
from kvstore.machine import Ack, Answer, Done, Failed, Machine, Trouble
from kvstore.operations import Write
from kvstore.state import Item, Outcome
from tests.simulator.checkers.log import History
from tests.simulator.memory_tree import MemoryTree
from tests.simulator.store_model import Replay

NEVER = float("inf")

REFUSALS = frozenset({Trouble.NO_PRIMARY, Trouble.TIMEOUT, Trouble.OVERLOADED, Trouble.AWAY})
"""After these, without an id, nothing was accepted."""


@dataclass(slots=True)
class Attempt:
    """One copy of a write, sent to one node. Without an answer, nobody knows."""

    node: str
    ack: Ack
    sent_at: float
    answer: Answer | None = None
    answered_at: float = NEVER

    @property
    def is_refused(self) -> bool:
        answer = self.answer
        return isinstance(answer, Failed) and answer.trouble in REFUSALS and not answer.write_id


@dataclass(slots=True)
class Request:
    """What a client wants written, however often it had to say so."""

    write: Write
    data: bytes
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def invoked_at(self) -> float:
        """When it may first have taken effect."""
        return min((attempt.sent_at for attempt in self.attempts if not attempt.is_refused), default=NEVER)

    @property
    def done(self) -> tuple[Done, float] | None:
        """What it was first told when it was green, and when."""
        told = [(one.answered_at, one.answer) for one in self.attempts if isinstance(one.answer, Done)]
        if not told:
            return None
        at, answer = min(told, key=lambda pair: pair[0])
        assert isinstance(answer, Done)
        return answer, at


class Level(StrEnum):
    GREEN = "green"
    RED = "red"
    LINEARIZABLE = "linearizable"
    MIN_REVISION = "min_revision"


@dataclass(slots=True)
class Read:
    """A read that was answered."""

    level: Level
    key: str
    node: str
    starts: int
    """Which start of the node answered."""
    began_at: float
    min_revision: int = 0
    ended_at: float = NEVER
    item: Item | None = None
    color: Color = Color.GREEN
    revision: int = 0
    """Of the green state that it saw."""
    line: int = 0
    """Of that state: where to begin looking for the read's place in the order."""


@dataclass(slots=True)
class StoreHistory:
    """What has happened anywhere."""

    log: History
    replay: Replay
    requests: list[Request] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)


class StoreChecker:
    """Ignores everything: each checker overrides what it needs."""

    def __init__(self, history: StoreHistory) -> None:
        self.history = history

    def started(self, node: str, store: Machine, tree: MemoryTree, log_line: int) -> None:
        """The node has read its disk, where the log's green line is this."""

    def answered(self, request: Request, attempt: Attempt) -> None:
        """A node has answered a write."""

    def read(self, read: Read) -> None:
        """A node has answered a read. It is not in the history yet."""

    def told(self, node: str, message_id: MessageId, index: int, outcome: Outcome) -> None:
        """A node has said what became of a write."""

    def written(self, node: str, tree: MemoryTree, log_line: int) -> None:
        """The tree on the node's disk has changed; so much of the order is on that disk."""

    def disk_replaced(self, node: str, lost: Collection[MessageId]) -> None:
        """The node's disk is empty, and these were nowhere else."""

    def finished(self, stores: Mapping[str, Machine]) -> None:
        """Quiet, healed, everybody up."""


def split_write_id(write_id: str) -> tuple[str, int]:
    """The message and the index in it."""
    message, _, index = write_id.rpartition(".")
    return message, int(index)
