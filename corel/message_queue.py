"""MQ: the green prefix, the yellow zone, the red suffix (section 3.2.1).

Green messages are final and only counted here: they are in the log on disk. The yellow zone is the rest of the
base (the queue as the members of the last primary component committed to it), and after it the messages received
in that component since, in timestamp order. Red is always in timestamp order, so its order is never written
anywhere.

A message is in the queue as soon as it is received and handed to the disk. What needs it to be *on* disk
(acknowledgements, state messages) waits for that elsewhere."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

from corel.messages import EMPTY_DIGEST, Entry, MessageId, Stream, Vector, is_folded
from transport import SEQUENCE_MAX, BrokenInvariant

_timestamp_of = attrgetter("timestamp")


def chained(digest: bytes, entries: Iterable[Entry]) -> bytes:
    """Returns the digest of the order that continues the order of `digest` with these messages, bodies included.
    It is SHA-256, so that others can compute it from an exported log (decision 26)."""
    for entry in entries:
        (name, incarnation), sequence = entry.id
        link = f"{name}.{incarnation}.{sequence}".encode()
        digest = hashlib.sha256(digest + link + entry.body_digest).digest()
    return digest


class MessageQueue:
    """The message queue of one node. A line is a number of messages, counted from the start of the queue."""

    def __init__(self) -> None:
        self.green = 0
        """The green line."""
        self.green_digest = EMPTY_DIGEST
        self.green_last: dict[Stream, int] = {}
        """The last green message of each stream that is not folded away."""
        self.folded: dict[str, int] = {}
        """Up to which incarnation the streams of each node are folded away: everything they ever held is green on
        the disk of every node, and they will hold no more."""
        self.yellow: list[Entry] = []
        self._red: list[Entry] = []
        self._is_red_sorted = True
        """Whether `_red` is in timestamp order. A recovery brings thousands of red messages that belong between
        those that are here: they are sorted all at once, when `red` is read."""
        self.base = 0
        """How long the queue was at the last commitment that this node knows of."""
        self.base_digest = EMPTY_DIGEST
        self._open: dict[MessageId, Entry] = {}
        """The messages that are not green, by id."""
        self._last: dict[Stream, int] = {}
        """The last message of each stream that has messages that are not green."""

    def restore(self, yellow: list[Entry], red: list[Entry]) -> None:
        """Takes over the messages that were not green when the node stopped, in order."""
        self.yellow, self._red = yellow, red
        for entry in self:
            stream, sequence = entry.id
            self._open[entry.id] = entry
            self._last[stream] = max(sequence, self._last.get(stream, 0))

    # Reading

    def __len__(self) -> int:
        return self.green + len(self.yellow) + len(self._red)

    def __iter__(self) -> Iterator[Entry]:
        """Yields everything that is not green, in order."""
        yield from self.yellow
        yield from self.red

    @property
    def red(self) -> list[Entry]:
        """The red messages, in timestamp order."""
        if not self._is_red_sorted:
            self._red.sort(key=_timestamp_of)
            self._is_red_sorted = True
        return self._red

    @property
    def yellow_line(self) -> int:
        return self.green + len(self.yellow)

    def last_of(self, stream: Stream) -> int:
        """Returns the last message of a stream that this node has, green or not. A folded stream counts as
        complete."""
        if self.is_folded(stream):
            return SEQUENCE_MAX
        return self._last.get(stream) or self.green_last.get(stream, 0)

    def is_folded(self, stream: Stream) -> bool:
        return is_folded(stream, self.folded)

    def get(self, message_id: MessageId) -> Entry | None:
        """Returns the message of this id, if this node has it and it is not green."""
        return self._open.get(message_id)

    def is_yellow(self, entry: Entry) -> bool:
        """Returns whether a message that this node has, and that is not green, is yellow."""
        return any(entry is one for one in self.yellow)

    def have(self) -> Vector:
        """Returns the last message of each stream that has messages that are not green."""
        return tuple(sorted(self._last.items()))

    def tail(self) -> list[Entry]:
        """Returns the yellow messages that are not part of the base."""
        return self.yellow[max(0, self.base - self.green) :]

    def digest(self) -> bytes:
        """Returns the digest of the order of the whole queue."""
        return chained(self.green_digest, self)

    # New messages

    def add_yellow(self, entry: Entry) -> None:
        """Adds a message received in the primary component, at its place by timestamp after the base."""
        self._add(entry)
        _insert(self.yellow, entry, max(0, self.base - self.green))

    def add_red(self, entry: Entry) -> None:
        self._add(entry)
        self._to_red(entry)

    def _to_red(self, entry: Entry) -> None:
        if self._red and entry.timestamp < self._red[-1].timestamp:
            self._is_red_sorted = False
        self._red.append(entry)

    def _add(self, entry: Entry) -> None:
        stream, sequence = entry.id
        if sequence != self.last_of(stream) + 1:
            raise BrokenInvariant(f"{entry.id} cannot follow {stream}.{self.last_of(stream)} (Causal)")
        self._open[entry.id] = entry
        self._last[stream] = sequence

    # Colours

    def turn_green(self, count: int) -> list[Entry]:
        """Turns green the first `count` messages that are not yet, and returns them."""
        from_red = count - len(self.yellow)
        turned = self.yellow[:count]
        del self.yellow[:count]
        if from_red > 0:
            turned += self.red[:from_red]
            del self.red[:from_red]
        self.green_digest = chained(self.green_digest, turned)
        self.green += len(turned)
        for entry in turned:
            stream, sequence = entry.id
            del self._open[entry.id]
            self.green_last[stream] = sequence
            if self._last.get(stream) == sequence:
                del self._last[stream]
        return turned

    def turn_yellow(self) -> None:
        """Commits to the queue: everything that is not green becomes yellow, and all members that commit have the
        same queue."""
        self.yellow += self.red
        self._red = []
        self.base = len(self)
        self.base_digest = self.digest()

    def retreat(self, yellow_line: int) -> list[Entry]:
        """Turns the yellow messages from this line on red, and returns them."""
        keep = yellow_line - self.green
        demoted = self.yellow[keep:]
        del self.yellow[keep:]
        for entry in demoted:
            entry.primary = 0
            self._to_red(entry)
        return demoted

    def adopt(self, order: Iterable[MessageId], yellow_line: int, base: int, base_digest: bytes) -> list[Entry]:
        """Adopts the representative's order (step 6). `order` is what follows our green prefix up to
        `yellow_line`, and all of it is here. It becomes the yellow zone; other yellow messages become red, and are
        returned."""
        zone = [self._open[message_id] for message_id in order]
        if self.green + len(zone) != yellow_line:
            raise BrokenInvariant(f"{len(zone)} messages do not lead from {self.green} to {yellow_line}")
        in_zone = {entry.id for entry in zone}
        demoted = [entry for entry in self.yellow if entry.id not in in_zone]
        for entry in demoted:
            entry.primary = 0
        rest = [entry for entry in self if entry.id not in in_zone]
        self.yellow = zone
        self._red = sorted(rest, key=_timestamp_of)
        self.base = base
        self.base_digest = base_digest
        return demoted

    def fold(self, incarnations: Mapping[str, int]) -> None:
        """Folds away these nodes' streams up to these incarnations: everything in them is green on the disk of
        every node."""
        self.folded.update(incarnations)
        self.green_last = {stream: last for stream, last in self.green_last.items() if not self.is_folded(stream)}


def _insert(entries: list[Entry], entry: Entry, low: int) -> None:
    """Inserts an entry by timestamp, not before index `low`: nearly always at the end."""
    if len(entries) <= low or entries[-1].timestamp < entry.timestamp:
        entries.append(entry)
    else:
        entries.insert(bisect_left(entries, entry.timestamp, lo=low, key=_timestamp_of), entry)
