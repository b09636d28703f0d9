"""How long this node's own messages take to be logged, yellow and green."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from corel import Entry, LogWrite
from kvstore.histogram import Histogram
from transport import Machine

SECONDS = (
    *(0.000_2, 0.000_5, 0.001, 0.001_5, 0.002, 0.003, 0.005, 0.007_5, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
"""Bounds for what takes milliseconds when all is well; close together where it does, so that quantiles are exact
to a fifth."""

PARTITION_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)
"""Bounds for what takes as long as a partition."""

_UNGREEN_MAX = 65_536
"""Most messages whose time to green is measured at a time. In a partition of days the oldest of more are not."""


class MessageTimeHistograms:
    """The times of the messages of all incarnations of a node, from the moment they are handed to the log."""

    def __init__(self) -> None:
        self.logged = Histogram(SECONDS)
        """Until they are on this node's disk."""
        self.yellow = Histogram(SECONDS)
        """Until they are also at their place in the order of a primary component."""
        self.green = Histogram(SECONDS)
        """Until their place is final, for messages that were received in a primary component."""
        self.merged = Histogram(PARTITION_SECONDS)
        """The same for messages that were red before."""


class MessageTimes:
    """The times of one incarnation's messages. They become logged, settled and green in the order in which they
    were submitted, because a stream has no gaps."""

    def __init__(self, me: Machine, histograms: MessageTimeHistograms) -> None:
        self._me = me
        self._histograms = histograms
        self._unlogged: deque[tuple[int, float]] = deque()
        """The sequence of each message, and when it was submitted."""
        self._unsettled: deque[tuple[int, float]] = deque()
        self._ungreen: deque[tuple[int, float]] = deque(maxlen=_UNGREEN_MAX)
        self._writing_through = 0

    def submitted(self, sequence: int, now: float) -> None:
        """Times are in seconds."""
        message = (sequence, now)
        self._unlogged.append(message)
        self._unsettled.append(message)
        self._ungreen.append(message)

    def writing(self, write: LogWrite) -> None:
        """Notes what the write under way brings to disk; there is one at a time."""
        if self._unlogged:
            own = [record.id.sequence for record in write.records if record.id.stream == self._me]
            self._writing_through = own[-1] if own else self._writing_through

    def written(self, now: float) -> None:
        observe = self._histograms.logged.observe
        for since in _take(self._unlogged, self._writing_through):
            observe(now - since)

    def settled(self, entries: Iterable[Entry], now: float) -> None:
        """Notes that these messages, of any node, are logged at their place in the component's order."""
        for entry in entries:
            if entry.id.stream == self._me:
                for since in _take(self._unsettled, entry.id.sequence):
                    if entry.primary:
                        self._histograms.yellow.observe(now - since)

    def greened(self, entries: Iterable[Entry], now: float) -> None:
        for entry in entries:
            if entry.id.stream == self._me:
                histogram = self._histograms.green if entry.primary else self._histograms.merged
                for since in _take(self._ungreen, entry.id.sequence):
                    histogram.observe(now - since)


def _take(messages: deque[tuple[int, float]], through: int) -> list[float]:
    """Removes the messages up to this sequence, and returns when each was submitted."""
    taken = []
    while messages and messages[0][0] <= through:
        taken.append(messages.popleft()[1])
    return taken
