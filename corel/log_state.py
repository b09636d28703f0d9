"""What one node knows of the log, whichever view it is in: its queue, the last primary components, its vote.

All of it goes to disk through `writer`. The steps of the algorithm change it only through this class and the
queue's own methods."""

from __future__ import annotations

from collections import Counter

from corel.config import CorelConfig
from corel.effects import CorelEffect, Greened
from corel.invariants import Invariants
from corel.log_writer import LogWriter
from corel.messages import NO_VIEW, is_bound
from corel.storage import Image, LogSize, Primaries


class LogState:
    """The state of one node's log. It begins as it is on disk (`image`)."""

    def __init__(self, image: Image, config: CorelConfig) -> None:
        self.queue = image.queue
        self.committed = image.lines.committed
        """Last_Committed_Primary."""
        self.attempted = image.lines.attempted
        """Last_Attempted_Primary."""
        self.attempted_view = image.lines.attempted_view
        """The view in which that was attempted, if the node was not bound to a generation yet."""
        self.generation = image.lines.generation
        """The generation of the cluster with which it was attempted; final once the node is bound to it."""
        self.disk = image.disk
        """Which disk this is."""
        self.is_voter = image.lines.is_voter
        self.voter_since = image.lines.voter_since
        """The incarnation with which the vote was restored on this disk."""
        self.participants = image.lines.participants
        """Which starts of which nodes took part in primary components, as far as this node knows."""
        self.cut = image.lines.cut
        """The first position of the green order that is kept; what was before it may be gone at any time."""
        self.is_learned = image.lines.is_learned
        """Whether the node knows of `committed` only by the green messages that it has taken over."""
        self.established = image.lines.established
        """The last primary component that is known to have been established."""
        self.established_base = image.lines.established_base
        """How long the queue was to which its members committed."""
        self.writer = LogWriter(self.queue, image.lines, config)
        self.counters: Counter[str] = Counter()
        self.foldable: tuple[int, dict[str, int]] | None = None
        """A green line, and incarnations by node: once every node's green line on disk has reached this one, the
        streams of these nodes up to these incarnations can be folded away."""
        self._config = config
        self._message_bytes = _average(image.size)
        """How large a message is on disk, on average over the log."""
        self._invariants = Invariants(self.queue) if config.debug_invariants else None

    @property
    def is_bound(self) -> bool:
        """Whether the node is bound to `generation`."""
        return is_bound(self.committed, self.generation, self.attempted_view)

    def bind(self, generation: bytes) -> None:
        """Binds the node to the generation of a cluster that it has met, before it takes any message of it. What
        it remembers of attempts in another one says nothing of the disks of this one."""
        if generation != self.generation:
            self.participants = ()
        self.generation, self.attempted_view = generation, NO_VIEW
        self.writer.touch()

    @property
    def floor(self) -> int:
        """A node with fewer green messages than this is not brought up inside a view. Before a primary component
        is known to have been established, nobody can take over what this node has (`learning`), so whoever can be
        brought up is."""
        if not self.established:
            return self.cut
        config, green = self._config, self.writer.green_on_disk
        return max(self.cut, green - self._affordable(config.recovery_messages_max, config.recovery_bytes_max), 0)

    def truncate(self, line: int, size: LogSize) -> None:
        """Raises the cut as far as the retention allows. The layer above needs nothing before `line`: not for a
        restart, nor for what it hands out. `size` is how large the log is on disk."""
        config, green = self._config, self.writer.green_on_disk
        self._message_bytes = _average(size)
        if not self.established:
            return
        least = 2 * config.recovery_messages_max  # whoever is in reach now still is when its view begins
        kept = max(least, self._affordable(config.messages_kept, config.bytes_kept))
        self.cut = max(self.cut, min(line, green - kept))

    def _affordable(self, messages_max: int, bytes_max: int) -> int:
        """Returns how many messages are within both bounds, by the average size of a message."""
        if not self._message_bytes:
            return messages_max
        return min(messages_max, int(bytes_max / self._message_bytes))

    def note_established(self, number: int, base: int) -> None:
        """Notes that a primary component was established, whose members had committed to a queue of this length;
        all of that is green here."""
        if number > self.established:  # a node that lacks much waits for it to be on disk, and nobody else
            self.established, self.established_base = number, base
            self.writer.touch_later()

    def turn_green(self, count: int, effects: list[CorelEffect]) -> None:
        """Turns green the first `count` messages that are not yet, and reports them."""
        if not count:
            return
        position = self.queue.green
        turned = self.queue.turn_green(count)
        if self._invariants is not None:
            self._invariants.turned_green(turned)
        self.writer.turned_green(turned)
        effects.append(Greened(position, tuple(turned)))

    def flush(self, may_wait: bool, effects: list[CorelEffect]) -> None:
        """Ends a step: hands the next write to the disk, if there is one and none is under way. If it `may_wait`,
        it may still wait for more messages."""
        if self._invariants is not None:
            self._invariants.check(self.queue)
        persist = self.writer.next_write(self._primaries(), may_wait)
        if persist is not None:
            effects.append(persist)

    def _primaries(self) -> Primaries:
        return Primaries(
            self.committed,
            self.attempted,
            self.attempted_view,
            self.generation,
            self.is_voter,
            self.participants,
            self.cut,
            self.is_learned,
            self.established,
            self.established_base,
            self.voter_since,
        )


def _average(size: LogSize) -> float:
    """Returns how large a message is on disk."""
    return size.size_bytes / max(1, size.messages)
