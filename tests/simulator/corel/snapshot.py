"""What one node hands to another that is too far behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from corel.storage import Lines, Record
from tests.simulator.corel.memory_log import MemoryLog


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was on the disk of a node at a moment, as far as others need it."""

    lines: Lines
    line: int
    """Up to where the tree on it has applied the green messages. Those after it go with it."""
    digest: bytes
    """The digest of the green order at this line."""
    tail: Sequence[Record]
    """The green messages from there on."""

    def is_continued_by(self, log: MemoryLog) -> bool:
        """Whether this disk, of the same node or of another one, has everything that became green since."""
        return log.lines.cut <= self.lines.green <= log.lines.green

    def extended(self, log: MemoryLog) -> Snapshot:
        """Returns this snapshot with what has become green since, as this disk has it, and with its lines."""
        following = log.tail_from(self.lines.green)
        return replace(self, lines=log.lines, tail=[*self.tail, *following])


def is_damaged_from(log: MemoryLog, first: int) -> bool:
    """Whether a green message from this position on has a wrong checksum."""
    return not log.rotten.isdisjoint(log.order[first:])
