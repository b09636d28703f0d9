"""What makes a process that does nothing but simulate faster. It changes no run."""

from __future__ import annotations

import gc
from functools import lru_cache

from membership import codec

ALLOCATIONS_PER_COLLECTION = 50_000
"""Runs make few cycles of objects. Python looks for them after every 700 new objects, and that takes a tenth of
the time."""

FRAMES_KEPT = 1_000


def prepare_for_many_runs() -> None:
    """Call it once, in a process of its own; the processes that it forks are prepared too."""
    gc.freeze()  # what was imported stays
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION)
    # A membership frame is decoded once, not at each machine that it reaches: equal bytes give equal frames, and
    # frames are frozen.
    codec.decode = lru_cache(maxsize=FRAMES_KEPT)(codec.decode)
