"""One timeline for the records of all nodes, and its division into windows.

A record has the wall clock of its node, and the clocks of nodes differ. `Timeline.corrected` adds `time_ms`: the
wall clock with the difference to the cluster's reference taken out, as `clocks` has estimated it. The frame of
differences is small (nodes times windows of the clocks) and is broadcast: no shuffle."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WINDOWS_MAX = 600
"""Most windows that one cluster's time is divided into where something is told over time."""

SECOND = 1_000
DAY = 86_400 * SECOND

_WIDTHS_MS = (
    *(SECOND * seconds for seconds in (1, 2, 5, 10, 15, 30)),
    *(60 * SECOND * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3_600 * SECOND * hours for hours in (1, 2, 3, 6, 12)),
)
"""Widths that are pleasant to read, up to a day."""


def width_for(span_ms: float, windows_max: int = WINDOWS_MAX, width_ms_min: int = SECOND) -> int:
    """Returns the smallest pleasant width with which a span is touched by no more than so many windows."""
    needed = max(span_ms / (windows_max - 1), width_ms_min)
    for width in _WIDTHS_MS:
        if width >= needed:
            return width
    return int(-(-needed // DAY)) * DAY


def window_of(time_ms: Column, width_ms: int) -> Column:
    """The beginning of the window that a time is in."""
    return (F.floor(time_ms / width_ms) * width_ms).cast("long")


@dataclass(frozen=True, slots=True)
class Timeline:
    """How wall clocks become one time, and in which windows things are told."""

    offsets: DataFrame
    """How far each node's wall clock is ahead of the reference's, for each window of that clock: `cluster`,
    `node`, `window_ms`, `offset_ms`. Nodes and windows that are not in it are taken as they are."""
    offset_width_ms: int
    width_ms: int
    """Of the windows in which results are told."""

    def corrected(self, frame: DataFrame) -> DataFrame:
        """Returns the frame with `time_ms`; it must have `cluster`, `node` and `wall_ms`."""
        clock = self.offsets.select("cluster", "node", F.col("window_ms").alias("clock_ms"), "offset_ms")
        at = frame.withColumn("clock_ms", window_of(F.col("wall_ms"), self.offset_width_ms))
        joined = at.join(F.broadcast(clock), ["cluster", "node", "clock_ms"], "left")
        time = F.col("wall_ms") - F.coalesce("offset_ms", F.lit(0.0))
        return joined.withColumn("time_ms", time).drop("clock_ms", "offset_ms")

    def window(self, time_ms: Column | None = None) -> Column:
        """The beginning of the window of results that a time is in."""
        return window_of(F.col("time_ms") if time_ms is None else time_ms, self.width_ms)
