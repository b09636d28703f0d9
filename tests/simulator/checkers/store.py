"""The requests of clients and their answers, which the run keeps for all checkers of the store, and the events
that a checker sees."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from corel.messages import Color, MessageId
from kvstore.store.feed import Interest
from kvstore.store.history import Change, ConflictPlace, FoundConflict, Span
from kvstore.store.operations import Write
from kvstore.store.red_state import Preview
from kvstore.store.replies import Ack, Answer, Done, Failed, Trouble
from kvstore.store.state import Item, Outcome, Verdict
from kvstore.store.store import Store
from kvstore.store.tentative_feed import TentativeEvent
from tests.simulator.checkers.log import History
from tests.simulator.store.memory_tree import MemoryTree
from tests.simulator.store.model import Replay
from transport.messages import Machine

NEVER = float("inf")

REFUSALS = frozenset({Trouble.NO_PRIMARY, Trouble.TIMEOUT, Trouble.OVERLOADED, Trouble.AWAY})
"""The answers after which, if they have no write id, nothing was accepted."""


@dataclass(slots=True)
class Attempt:
    """One copy of a write, sent to one node. Without an answer, its outcome is unknown."""

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
    """A write that a client wants, and all its attempts to get it."""

    write: Write
    data: bytes
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def invoked_at(self) -> float:
        """The earliest time at which it may have taken effect."""
        return min((attempt.sent_at for attempt in self.attempts if not attempt.is_refused), default=NEVER)

    @property
    def done(self) -> tuple[Done, float] | None:
        """Returns the first answer that it is green, and its time, if there was one. That a copy has expired says
        nothing of the others."""
        answers = [
            (one.answered_at, one.answer)
            for one in self.attempts
            if isinstance(one.answer, Done) and one.answer.applied.outcome.verdict is not Verdict.EXPIRED
        ]
        if not answers:
            return None
        at, answer = min(answers, key=lambda pair: pair[0])
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
    """The number of the node's start that answered."""
    began_at: float
    min_revision: int = 0
    ended_at: float = NEVER
    item: Item | None = None
    color: Color = Color.GREEN
    revision: int = 0
    """The revision of the green state that it saw."""
    line: int = 0
    """The line of that state: where to begin looking for the read's place in the order."""


@dataclass(slots=True)
class Watch:
    """What a watcher has seen, on all nodes together. If its node no longer keeps what comes next, it ends, and
    the watcher begins another one."""

    interest: Interest
    first: int
    """The first revision that it asked for."""
    next: int
    """The first revision that it has not asked for successfully, when it ended."""
    seen: list[Change] = field(default_factory=list)
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, which has at most `count` keys."""

    node: str
    revision: int
    span: Span
    is_reverse: bool
    count: int
    items: tuple[tuple[str, Item], ...]


@dataclass(frozen=True, slots=True)
class Versions:
    """A part of the history of a key."""

    node: str
    key: str
    before: int
    count: int
    oldest: int
    """The revision up to which the node has forgotten the past."""
    revision: int
    """The revision of the node's green state."""
    found: tuple[tuple[int, str, Item | None], ...]


@dataclass(frozen=True, slots=True)
class ConflictPage:
    """A part of a node's conflicts, at most `count`, when it had applied `line` messages."""

    node: str
    after: ConflictPlace
    count: int
    oldest: int
    line: int
    found: tuple[FoundConflict, ...]


@dataclass(frozen=True, slots=True)
class NoLongerKept:
    """A node's answer that the past is not kept which was asked for."""

    node: str
    asked: int
    """The revision whose state was to be read."""
    oldest: int
    revision: int
    """The revision of the node's green state."""
    is_pinned: bool
    """Whether it was kept when it was pinned, and is pinned still."""


@dataclass(frozen=True, slots=True)
class TentativeLook:
    """What a reader of tentative writes has read since its last look: events first, then changes."""

    stay: tuple[int, int]
    """Names the reader, and how many times it had begun anew."""
    node: str
    interest: Interest
    reads_changes: bool
    """Whether it reads changes at all."""
    events: tuple[TentativeEvent, ...]
    changes: tuple[Change, ...]
    now: Mapping[MessageId, Color]
    """The messages that the node has logged and that are not green."""
    line: int
    """How many messages the node has applied."""
    is_all: bool
    """Whether there was nothing left to read."""


@dataclass(frozen=True, slots=True)
class PreviewLook:
    """A preview, at a node that has applied `line` messages."""

    node: str
    line: int
    order: tuple[tuple[MessageId, Color], ...]
    """The messages after that which the node has."""
    found: tuple[Preview, ...]


@dataclass(slots=True)
class StoreHistory:
    """What has happened at any node."""

    log: History
    replay: Replay
    idempotency_positions: int = 1_000_000
    """For how many messages an idempotency key is remembered."""
    history_revisions: int = 100_000
    """For how many revisions the past must be kept."""
    requests: list[Request] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)


class StoreChecker:
    """Ignores every event: each checker overrides what it needs."""

    def __init__(self, history: StoreHistory) -> None:
        self.history = history

    def started(self, node: str, store: Store, tree: MemoryTree, log_line: int) -> None:
        """The node has read its disk, on which the log's green line is `log_line`."""

    def answered(self, request: Request, attempt: Attempt) -> None:
        """A node has answered a write."""

    def read(self, read: Read) -> None:
        """A node has answered a read. It is not in the history yet."""

    def reported(self, node: str, message_id: MessageId, index: int, outcome: Outcome) -> None:
        """A node has reported the outcome of a write."""

    def written(self, node: str, tree: MemoryTree, log_line: int) -> None:
        """The tree on the node's disk has changed; `log_line` is how much of the green order is on that disk."""

    def listed(self, page: Page) -> None:
        """A node has answered with a part of a list."""

    def dated(self, versions: Versions) -> None:
        """A node has answered with the history of a key."""

    def conflicts_shown(self, page: ConflictPage) -> None:
        """A node has shown conflicts."""

    def tentative_seen(self, look: TentativeLook) -> None:
        """A reader has looked at what is not green at a node."""

    def previewed(self, look: PreviewLook) -> None:
        """A node has said what its writes that are not green would do."""

    def compacted(self, refusal: NoLongerKept) -> None:
        """A node has answered that it no longer keeps what it was asked for."""

    def took_over(self, node: str, tree: MemoryTree) -> None:
        """The node has the state of another one, of whose past it knows nothing."""

    def disk_replaced(self, node: str, lost: Collection[MessageId]) -> None:
        """The node's disk was replaced by an empty one, and these messages were on no other."""

    def finished(self, stores: Mapping[str, Store]) -> None:
        """The run is over: the network was healed and is quiet, and every node is up."""


def message_of(write_id: str) -> tuple[MessageId, int]:
    """Returns the message of a write, and the index in it."""
    name, incarnation, sequence, index = write_id.rsplit(".", 3)
    return MessageId(Machine(name, int(incarnation)), int(sequence)), int(index)
