"""Everything that a node counts and measures of itself, over all its incarnations.

These are plain numbers, changed on the event loop and nowhere else: the hot paths add to them, and the collector
(`collector`) makes of them what Prometheus reads, when it is asked. What is a state rather than a count (lines,
queues, the window) is not kept here, but read from where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from corel import Color, MessageQueue
from kvstore.histogram import Histogram
from kvstore.node.group_figures import GroupFigures
from kvstore.node.http_figures import HttpFigures
from kvstore.node.loop_watch import LoopWatch, Recent
from kvstore.node.message_times import SECONDS, MessageTimeHistograms
from kvstore.store import StoreFigures, Trouble

_DATAGRAM_BYTES = (64, 128, 256, 512, 1_024, 1_400, 4_096, 16_384, 32_768, 65_536)
_SYNC_RECORDS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 256, 1_024)


@dataclass(frozen=True, slots=True)
class MetricsSummary:
    """The figures that a console shows. Totals count from the start of the process; quantiles and the lag are of
    the last five seconds, and None without an observation in that time."""

    writes_green: int
    """Writes of this node's clients that were answered green; yellow, red and failed likewise."""
    writes_yellow: int
    writes_red: int
    writes_failed: int
    messages_green: int
    """Messages of all nodes that have become green here."""
    operations_green: int
    """Writes of all nodes that were applied to the green state here."""
    time_to_green_p50_ms: float | None
    """Of this node's own messages that were received in a primary component."""
    time_to_green_p99_ms: float | None
    sync_p50_ms: float | None
    sync_p99_ms: float | None
    red_backlog: int
    """Messages that are red here now."""
    loop_lag_ms: float
    """The longest."""
    http_requests: int
    http_errors: int
    """Requests answered with 5xx."""


class Metrics:
    """The metrics of one node."""

    def __init__(self) -> None:
        self.store = StoreFigures()
        self.http = HttpFigures()
        self.group = GroupFigures()
        self.times = MessageTimeHistograms()
        self.syncs = Histogram(SECONDS)
        """Seconds that a write of the log took on disk, with the checkpoint that it may have taken along."""
        self.checkpoints = Histogram(SECONDS)
        """The same of checkpoints in transactions of their own."""
        self.sync_records = Histogram(_SYNC_RECORDS)
        """Messages per write of the log."""
        self.messages_green = 0
        self.sent_bytes = Histogram(_DATAGRAM_BYTES)
        """The sizes of datagrams."""
        self.received_bytes = Histogram(_DATAGRAM_BYTES)
        self.incarnations = 0
        self.disk_failures: Counter[str] = Counter()
        """By the kind of error."""
        self.transfers: Counter[str] = Counter()
        """States taken over from other nodes, by outcome."""
        self._past: Counter[str] = Counter()
        self._count: Callable[[], Counter[str]] = Counter
        self.queue = MessageQueue()
        """That of the log of the last incarnation."""
        self.loop = LoopWatch(self._sample)
        self._recent_green = Recent(self.times.green)
        self._recent_syncs = Recent(self.syncs)

    def begin(self, count: Callable[[], Counter[str]], queue: MessageQueue, now: float) -> None:
        """Begins an incarnation: `count` returns what its machines have counted, `queue` is that of its log."""
        self._past = self.counts()
        self._count = count
        self.queue = queue
        self.incarnations += 1
        self.group.begin(now)

    def counts(self) -> Counter[str]:
        """Returns what the machines of all incarnations have counted, by the names under which they count."""
        return self._past + self._count()

    def _sample(self) -> None:
        self._recent_green.sample()
        self._recent_syncs.sample()

    def summary(self) -> MetricsSummary:
        answers = self.store.answers
        return MetricsSummary(
            writes_green=answers[Color.GREEN],
            writes_yellow=answers[Color.YELLOW],
            writes_red=answers[Color.RED],
            writes_failed=sum(answers[trouble] for trouble in Trouble),
            messages_green=self.messages_green,
            operations_green=self.store.green_writes,
            time_to_green_p50_ms=_ms(self._recent_green.quantile(0.5)),
            time_to_green_p99_ms=_ms(self._recent_green.quantile(0.99)),
            sync_p50_ms=_ms(self._recent_syncs.quantile(0.5)),
            sync_p99_ms=_ms(self._recent_syncs.quantile(0.99)),
            red_backlog=len(self.queue) - self.queue.yellow_line,
            loop_lag_ms=self.loop.worst_recent_seconds * 1_000.0,
            http_requests=self.http.requests,
            http_errors=self.http.errors,
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1_000.0
