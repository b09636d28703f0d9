"""The batches of the log that were read from disk last: messages are read one by one, and mostly in the order of
arrival."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from corel.storage import Record

BATCHES_MAX = 32
BYTES_MAX = 16 * 1_048_576
"""The most that is kept, in batches and in bytes on disk; the last batch is kept whatever its size. A batch is as
large as the write that brought it, so their number alone bounds nothing. Larger saves reads where the order of
messages is far from that of their arrivals; a search for a message looks at every batch."""


class RecordCache:
    """Batches of messages by the arrival of their first one; the oldest is dropped first."""

    def __init__(self) -> None:
        self._batches: OrderedDict[int, tuple[Sequence[Record], int]] = OrderedDict()
        self.size = 0
        """How many bytes the batches take on disk."""

    def find(self, arrival: int) -> Record | None:
        for start, (batch, _) in reversed(self._batches.items()):
            if start <= arrival < start + len(batch):
                return batch[arrival - start]
        return None

    def add(self, batch: Sequence[Record], size: int) -> None:
        """Adds a batch that is not in the cache; `size` is what it takes on disk."""
        self._batches[batch[0].arrival] = (batch, size)
        self.size += size
        while len(self._batches) > 1 and (len(self._batches) > BATCHES_MAX or self.size > BYTES_MAX):
            self.size -= self._batches.popitem(last=False)[1][1]

    def clear(self) -> None:
        self._batches.clear()
        self.size = 0
