"""What a store counts of itself. All incarnations of a node share one, so that its counters never go back."""

from __future__ import annotations

from collections import Counter

from corel import Color
from kvstore.histogram import Histogram
from kvstore.store.replies import Trouble
from kvstore.store.state import ConflictKind

_BATCH_WRITES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048)
_BATCH_BYTES = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)


class StoreFigures:
    """Cumulative counts of one node's store."""

    def __init__(self) -> None:
        self.answers: Counter[Color | Trouble] = Counter()
        """Answered writes: by the colour that they had, or by the trouble for which they failed."""
        self.green_writes = 0
        """Writes, of whichever node, that were applied to the green state."""
        self.conflicts: Counter[ConflictKind] = Counter()
        """What merges changed."""
        self.batch_writes = Histogram(_BATCH_WRITES)
        """How many writes the messages of this node carry."""
        self.batch_bytes = Histogram(_BATCH_BYTES)
