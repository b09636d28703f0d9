"""Histograms that cost a bisection per observation, for everything that a node measures of itself.

There is no lock: a histogram belongs to the thread that observes, which in a node is that of the event loop."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

__all__ = ["Histogram", "quantile"]


class Histogram:
    """How many observations fell into which bucket, and the sum of all of them. The last bucket has no bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        if not bounds or list(bounds) != sorted(set(bounds)):
            raise ValueError(f"the bounds of a histogram ascend, unlike {bounds}")
        self.bounds = tuple(bounds)
        """The largest value of each bucket but the last."""
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """Returns how many observations are at most as large as each bound; the last number counts all."""
        return list(accumulate(self.counts))


def quantile(share: float, bounds: Sequence[float], counts: Sequence[int]) -> float | None:
    """Returns the value below which this share of the observations is, as far as buckets tell: as if those of one
    bucket were spread evenly over it. None without observations; the highest bound if it is beyond that."""
    rank = share * sum(counts)
    if not rank:
        return None
    below, low = 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return low + (bound - low) * (rank - below) / count
        below, low = below + count, bound
    return bounds[-1]
