"""What is on disk, and the queue that a node restores from it when it starts.

The log holds messages in the order in which they were written (`arrival`), and apart from them the green order,
which only grows. The order of yellow messages is written when it is decided (a commitment, a recovery); yellow
messages received since follow it by timestamp, and red ones are in timestamp order always, so nothing is ever
rewritten.

A `LogWrite` is atomic. The machine has one under way at a time and gathers the next meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from corel.message_queue import MessageQueue
from corel.messages import EMPTY_DIGEST, NO_IDENTITY, NO_VIEW, Entry, MessageId, Vector
from corel.participation import Participants
from transport import BrokenInvariant, ViewId


class Primaries(NamedTuple):
    """What `Lines` say of primary components, and of the node's vote."""

    committed: int
    attempted: int
    attempted_view: ViewId
    generation: bytes
    is_voter: bool
    participants: Participants = ()
    cut: int = 0
    is_learned: bool = False
    established: int = 0
    established_base: int = 0
    voter_since: int = 0


@dataclass(frozen=True, slots=True)
class Lines:
    """The metadata record: small, and written with every `LogWrite`."""

    committed: int = 0
    attempted: int = 0
    is_voter: bool = False
    green: int = 0
    green_digest: bytes = EMPTY_DIGEST
    base: int = 0
    base_digest: bytes = EMPTY_DIGEST
    streams: Vector = ()
    """The last green message of each stream that is not folded away."""
    folded: tuple[tuple[str, int], ...] = ()
    """Up to which incarnation the streams of each node are folded away."""
    next_arrival: int = 0
    open_from: int = 0
    """No message that is not green has a lower arrival."""
    tail_from: int = 0
    """Messages of the last committed primary with this arrival or a higher one are yellow, after `Yellow`."""
    clock: int = 0
    """No message in the log has a higher clock."""
    attempted_view: ViewId = NO_VIEW
    """The view in which `attempted` was attempted, if the node was not bound to a generation yet."""
    generation: bytes = NO_IDENTITY
    """The generation of the cluster with which it was attempted; final once the node is bound to it."""
    participants: Participants = ()
    """Which starts of which nodes took part in primary components."""
    cut: int = 0
    """The first position of the green order that is kept: what was before it has been truncated, or was never
    here."""
    is_learned: bool = False
    """Whether the node knows of `committed` only by the green messages that it has taken over (`learning`)."""
    established: int = 0
    """The last primary component that is known to have been established; 0 if none is."""
    established_base: int = 0
    """How long the queue was to which its members committed."""
    voter_since: int = 0
    """The incarnation with which the vote was restored on this disk; 0 if it was there from the beginning, or is
    not there."""


@dataclass(frozen=True, slots=True)
class Yellow:
    """The yellow zone when it was last decided: the position at which it begins, and the arrivals of its
    messages."""

    position: int = 0
    arrivals: tuple[int, ...] = ()


class Record(NamedTuple):
    """A message in the log. It never changes, whatever becomes of the message."""

    arrival: int
    id: MessageId
    clock: int
    view: ViewId
    primary: int
    body: bytes

    @classmethod
    def of(cls, entry: Entry) -> Record:
        if entry.body is None:
            raise BrokenInvariant(f"{entry.id} is not logged, and its body is gone")
        return cls(entry.arrival, entry.id, entry.timestamp.clock, entry.view, entry.primary, entry.body)

    def entry(self) -> Entry:
        entry = Entry(self.id, self.clock, self.view, self.body)
        entry.arrival = self.arrival
        entry.primary = self.primary
        return entry

    def entry_without_body(self) -> Entry:
        """Returns the entry of a message whose body is read from disk when it is needed. Its digest covers the
        body all the same."""
        entry = self.entry()
        entry.body = None
        return entry


@dataclass(frozen=True, slots=True)
class LogWrite:
    """One atomic change of what is on disk."""

    records: tuple[Record, ...]
    """The messages that are new in the log, in the order of their arrivals."""
    greened: tuple[int, ...]
    """The arrivals of the messages that continue the green order."""
    yellow: Yellow | None
    """The yellow zone, if it was decided anew."""
    lines: Lines


class LogSize(NamedTuple):
    """How large a log is on disk."""

    size_bytes: int
    messages: int
    """How many messages are on disk, green or not. What has been cut off is deleted little by little, so there may
    be far more than are kept."""


EMPTY_LOG = LogSize(0, 0)


@dataclass(frozen=True, slots=True)
class Image:
    """What a node starts with: the metadata on its disk, its queue, and which disk it is."""

    lines: Lines
    queue: MessageQueue
    disk: bytes
    size: LogSize


class LogReader(Protocol):
    """What the machine may read from disk. It reads nothing that is still being written."""

    def body(self, arrival: int) -> bytes:
        """Returns the body of a message."""

    def green(self, first: int, count: int) -> Sequence[Entry]:
        """Returns green messages by position, with bodies."""

    def green_digest(self, line: int) -> bytes:
        """Returns the digest of the green order up to this line, which is not beyond the green line on disk."""


def restore(
    lines: Lines,
    yellow: Yellow,
    logged: Iterable[Entry],
    disk: bytes = NO_IDENTITY,
    size: LogSize = EMPTY_LOG,
) -> Image:
    """Returns what a node starts with. `logged` is everything from `lines.open_from` on, in the order of
    arrival."""
    queue = MessageQueue()
    queue.green, queue.green_digest, queue.green_last = lines.green, lines.green_digest, dict(lines.streams)
    queue.folded = dict(lines.folded)
    open_entries = [entry for entry in logged if entry.id.sequence > queue.last_of(entry.id.stream)]
    by_arrival = {entry.arrival: entry for entry in open_entries}
    decided = yellow.arrivals[max(0, lines.green - yellow.position) :]
    zone = [by_arrival.pop(arrival) for arrival in decided]
    rest = sorted(by_arrival.values(), key=lambda entry: entry.timestamp)
    queue.base, queue.base_digest = lines.base, lines.base_digest
    tail: list[Entry] = []
    red: list[Entry] = []
    for entry in rest:
        is_yellow = entry.primary == lines.committed > 0 and entry.arrival >= lines.tail_from
        (tail if is_yellow else red).append(entry)
    queue.restore(zone + tail, red)
    return Image(lines, queue, disk, size)
