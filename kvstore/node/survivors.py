"""What is on the disks that are left when half of the votes or more are lost for good, and which of them knows
most."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from corel import is_bound
from corel.pinned_log import PinnedLog
from corel.read_only_log import ReadOnlyLog
from transport import SEQUENCE_MAX


class Survivor(NamedTuple):
    """A disk that is left. It travels between processes as JSON."""

    directory: str
    cluster: str
    node: str
    generation: str
    """Hexadecimal; empty if the disk is bound to none."""
    committed: int
    """The last primary component to which its node has committed."""
    is_learned: bool
    """Whether the node was not in it, and knows only some of what became green there."""
    green: int
    yellow: int
    """How many messages are yellow: they may be green on other disks."""
    red: int
    streams: dict[str, int]
    """The last green message of each stream."""
    folded: dict[str, int]
    """Up to which incarnation the streams of each node are all green."""
    open: list[list[Any]]
    """The messages that are not green: name, incarnation, sequence."""

    @property
    def knowledge(self) -> tuple[int, bool, int, int]:
        """Orders disks by what they know: of the last primary component, whether they have its yellow zone, then
        by what is green, then by how long their logs are."""
        has_zone = self.committed > 0 and not self.is_learned
        return self.committed, has_zone, self.green, self.green + self.yellow + self.red

    def lacks(self, other: Survivor) -> list[str]:
        """Returns the ids of messages that another disk has, not green, and this one does not have at all."""
        own = {tuple(message) for message in self.open}
        return [
            f"{name}.{incarnation}.{sequence}"
            for name, incarnation, sequence in other.open
            if (name, incarnation, sequence) not in own and sequence > self._last_of(name, incarnation)
        ]

    def _last_of(self, name: str, incarnation: int) -> int:
        if incarnation <= self.folded.get(name, -1):
            return SEQUENCE_MAX
        return self.streams.get(f"{name}.{incarnation}", 0)


def survey(directory: Path) -> Survivor:
    """Returns what is on a disk. Raises `DiskError`."""
    with closing(ReadOnlyLog(directory)) as log, closing(PinnedLog(log)) as pinned:
        lines, queue = pinned.lines, pinned.load().queue
        bound = is_bound(lines.committed, lines.generation, lines.attempted_view)
        return Survivor(
            directory=str(directory),
            cluster=pinned.identity.cluster,
            node=pinned.identity.node,
            generation=lines.generation.hex() if bound else "",
            committed=lines.committed,
            is_learned=lines.is_learned,
            green=lines.green,
            yellow=len(queue.yellow),
            red=len(queue.red),
            streams={str(stream): last for stream, last in lines.streams},
            folded=dict(lines.folded),
            open=[[*entry.id.stream, entry.id.sequence] for entry in queue],
        )


def best(survivors: Sequence[Survivor]) -> Survivor:
    """Returns the survivor that knows most."""
    return max(survivors, key=lambda survivor: survivor.knowledge)
