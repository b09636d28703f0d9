"""How late the event loop is: it does everything, so what holds it up holds up all clients and peers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from kvstore.histogram import Histogram, quantile

TICK_SECONDS = 0.1
"""How often the lateness of a timer is measured. Oftener finds shorter delays; each measurement wakes the
process."""

SAMPLE_SECONDS = 1.0
WINDOW_SAMPLES = 5
"""The last few seconds that "recent" means: so many samples of `SAMPLE_SECONDS`."""

_LAG_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Recent:
    """The observations of a histogram in the last few seconds. Observing costs nothing more than before: this
    compares the histogram with what it was."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._samples = deque([list(histogram.counts)], maxlen=WINDOW_SAMPLES)

    def sample(self) -> None:
        self._samples.append(list(self._histogram.counts))

    def quantile(self, share: float) -> float | None:
        """Returns the value below which this share of the recent observations is; None if there are none."""
        counts = [now - then for now, then in zip(self._histogram.counts, self._samples[0], strict=True)]
        return quantile(share, self._histogram.bounds, counts)


class LoopWatch:
    """Measures the lateness of a timer again and again, and calls `on_sample` about every `SAMPLE_SECONDS`."""

    def __init__(self, on_sample: Callable[[], None]) -> None:
        self.lags = Histogram(_LAG_SECONDS)
        self._on_sample = on_sample
        self._worst: deque[float] = deque([0.0], maxlen=WINDOW_SAMPLES)
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TICK_SECONDS, self._tick, loop, loop.time() + TICK_SECONDS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def worst_recent_seconds(self) -> float:
        """The longest lag of the last few seconds."""
        return max(self._worst)

    def note(self, lag: float) -> None:
        self.lags.observe(lag)
        self._worst[-1] = max(self._worst[-1], lag)
        self._ticks += 1
        if self._ticks * TICK_SECONDS >= SAMPLE_SECONDS:
            self._ticks = 0
            self._worst.append(0.0)
            self._on_sample()

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.start()
        self.note(max(0.0, loop.time() - due))
