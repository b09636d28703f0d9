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
from corel.storage import Image, Primaries


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
        self.writer = LogWriter(self.queue, image.lines, config)
        self.counters: Counter[str] = Counter()
        self.foldable: tuple[int, dict[str, int]] | None = None
        """A green line, and incarnations by node: once every node's green line on disk has reached this one, the
        streams of these nodes up to these incarnations can be folded away."""
        self._invariants = Invariants(self.queue) if config.debug_invariants else None

    @property
    def is_bound(self) -> bool:
        """Whether the node is bound to `generation`."""
        return is_bound(self.committed, self.generation, self.attempted_view)

    def bind(self, generation: bytes) -> None:
        """Binds the node to the generation of a cluster that it has met, before it takes any message of it."""
        self.generation, self.attempted_view = generation, NO_VIEW
        self.writer.touch()

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
        return Primaries(self.committed, self.attempted, self.attempted_view, self.generation, self.is_voter)
