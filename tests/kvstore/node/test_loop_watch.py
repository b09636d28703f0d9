"""Lags of the event loop are measured, and quantiles are of the last few seconds only."""

from __future__ import annotations

import asyncio
import time

from kvstore.histogram import Histogram
from kvstore.node.loop_watch import SAMPLE_SECONDS, TICK_SECONDS, WINDOW_SAMPLES, LoopWatch, Recent

TICKS = round(SAMPLE_SECONDS / TICK_SECONDS)


def test_a_lag_is_shown_for_a_few_seconds_and_counted_for_ever() -> None:
    watch = LoopWatch(lambda: None)
    watch.note(0.3)
    for _ in range(TICKS * (WINDOW_SAMPLES - 1)):
        assert watch.worst_recent_seconds == 0.3
        watch.note(0.0)
    for _ in range(TICKS):
        watch.note(0.0)
    assert watch.worst_recent_seconds == 0.0
    assert watch.lags.sum == 0.3


def test_samples_are_taken_about_every_second() -> None:
    samples: list[None] = []
    watch = LoopWatch(lambda: samples.append(None))
    for _ in range(3 * TICKS):
        watch.note(0.0)
    assert len(samples) == 3


def test_recent_quantiles_forget() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    recent = Recent(histogram)
    assert recent.quantile(0.5) is None
    histogram.observe(3.0)
    for _ in range(WINDOW_SAMPLES - 1):
        recent.sample()
        assert recent.quantile(0.5) == 3.0
    recent.sample()
    assert recent.quantile(0.5) is None


def test_a_callback_that_blocks_is_a_lag() -> None:
    async def block() -> LoopWatch:
        watch = LoopWatch(lambda: None)
        watch.start()
        await asyncio.sleep(0)
        time.sleep(2 * TICK_SECONDS)  # this is what is measured
        while not watch.lags.count:
            await asyncio.sleep(0.01)
        watch.stop()
        return watch

    assert asyncio.run(block()).worst_recent_seconds >= 0.9 * TICK_SECONDS
