"""What is on the disks that are left when half of the votes or more are lost for good, which of them knows most,
and what the others have that this one does not.

Green messages are final, so disks of one cluster have the same ones, as far as both have them. That is compared at
the last line that both have. Where it is not so, nobody can tell which of them is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from corel import is_bound
from corel.disk_errors import DiskError
from corel.log_building import replaced_by, state_of
from corel.pinned_log import PinnedLog
from corel.read_only_log import ReadOnlyLog
from kvstore.node.snapshot_target import INCOMING
from transport import SEQUENCE_MAX

_PROGRESS_STEP = 1_000
"""After how many messages progress is told."""


class Difference(NamedTuple):
    """What a survivor has that the chosen one has not, or not in this place. Messages are their ids."""

    final: list[str]
    """Green messages that the chosen disk does not have: they are lost."""
    moved: list[str]
    """Green messages that the chosen disk has, and that get another place with it."""
    open: list[str]
    """Messages that are not green, and that the chosen disk does not have: they are lost."""
    unnamed: int
    """How many positions are green here and not on the chosen disk, and are no longer kept here: nobody can say
    which messages these are."""

    @property
    def lost(self) -> list[str]:
        return [*self.final, *self.open]


class Survivor(NamedTuple):
    """A disk that is left. It travels between processes as JSON."""

    directory: str
    """Where the disk is, which may be below the data directory (`survey`)."""
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
    """The messages that are not green, in their order: name, incarnation, sequence. The first are yellow."""
    cut: int
    """From which line on its green messages are kept."""
    digests: dict[str, str]
    """Up to some lines, the digest of its green order in hexadecimal (`with_order`)."""
    greens_from: int
    """The position of the first of `greens`."""
    greens: list[list[Any]]
    """Its last green messages, in their order (`with_order`)."""

    @property
    def knowledge(self) -> tuple[int, bool, int, int]:
        """Orders disks by what they know: of the last primary component, whether they have its yellow zone, then
        by what is green, then by how long their logs are."""
        has_zone = self.committed > 0 and not self.is_learned
        return self.committed, has_zone, self.green, self.green + self.yellow + self.red

    def common_line(self, other: Survivor) -> int | None:
        """Returns the last line up to which both disks are green; None if one of them no longer has its digest."""
        line = min(self.green, other.green)
        return line if line >= max(self.cut, other.cut) else None

    def with_order(
        self,
        lines: Sequence[int],
        first: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Survivor:
        """Returns this with what is to be compared of its green order: the digests up to these lines, and the
        messages from this position on, as far as they are kept. Raises `DiskError`."""
        begin = max(first, self.cut)
        greens: list[list[Any]] = []
        with closing(ReadOnlyLog(Path(self.directory))) as log:
            digests = {str(line): log.green_digest(line).hex() for line in sorted(set(lines))}
            for position, record, _ in log.green_messages(begin, self.green) if begin < self.green else ():
                greens.append([*record.id.stream, record.id.sequence])
                if (position - begin) % _PROGRESS_STEP == 0:
                    progress(position - begin, self.green - begin)
        return self._replace(digests=digests, greens_from=begin, greens=greens)

    def contradicts(self, other: Survivor) -> int | None:
        """Returns the common line up to which the green orders of both differ; None if they do not, or cannot be
        compared."""
        line = self.common_line(other)
        return line if line is not None and self.digests[str(line)] != other.digests[str(line)] else None

    def difference(self, other: Survivor) -> Difference:
        """Returns what another survivor has and this one, if it is chosen, has not. The other's green messages are
        known from this one's green line on, where a new cluster has what is yellow here."""
        yellow, final = self.open[: self.yellow], self.lacks(other.greens)
        is_lost = set(final)
        moved = [
            _id(message)
            for place, message in enumerate(other.greens, other.greens_from - self.green)
            if _id(message) not in is_lost and yellow[place : place + 1] != [message]
        ]
        unnamed = max(0, min(other.cut, other.green) - self.green)
        return Difference(final, moved, self.lacks(other.open), unnamed)

    def lacks(self, messages: Sequence[Sequence[Any]]) -> list[str]:
        """Returns the ids of those of these messages that this disk does not have at all."""
        own = {tuple(message) for message in self.open}
        return [
            _id((name, incarnation, sequence))
            for name, incarnation, sequence in messages
            if (name, incarnation, sequence) not in own and sequence > self._last_of(name, incarnation)
        ]

    def _last_of(self, name: str, incarnation: int) -> int:
        if incarnation <= self.folded.get(name, -1):
            return SEQUENCE_MAX
        return self.streams.get(f"{name}.{incarnation}", 0)


def survey(directory: Path) -> Survivor:
    """Returns what is on the disk of a node that has this data directory. Raises `DiskError`."""
    disk = _disk_of(directory)
    with closing(ReadOnlyLog(disk)) as log, closing(PinnedLog(log)) as pinned:
        lines, queue = pinned.lines, pinned.load().queue
        bound = is_bound(lines.committed, lines.generation, lines.attempted_view)
        return Survivor(
            directory=str(disk),
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
            cut=lines.cut,
            digests={},
            greens_from=lines.green,
            greens=[],
        )


def _disk_of(directory: Path) -> Path:
    """Returns where the disk is with which a node that has this data directory would start: in the directory
    itself, or, if the node has ended while it switched to a copy that is whole, where that is (`settle`). A copy
    that is not whole is of no use without its source. If the node has gone on since it was whole, or it cannot be
    read, the node would drop it."""
    copy = directory / INCOMING
    if not (copy / "data.mdb").exists():
        return directory
    with closing(ReadOnlyLog(directory)) as log, closing(PinnedLog(log)) as pinned:
        state = state_of(pinned.lines)
    try:
        with closing(ReadOnlyLog(copy)) as log, closing(PinnedLog(log)) as pinned:
            return copy if replaced_by(pinned) == state else directory
    except DiskError:
        return directory


def best(survivors: Sequence[Survivor]) -> Survivor:
    """Returns the survivor that knows most."""
    return max(survivors, key=lambda survivor: survivor.knowledge)


def _id(message: Sequence[Any]) -> str:
    return ".".join(map(str, message))
