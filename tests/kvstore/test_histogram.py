"""Histograms put every value into the right bucket, and quantiles are as exact as the buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.histogram import Histogram, quantile

BOUNDS = (1.0, 2.0, 5.0, 10.0)


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0.0, 1.0, 1.1, 2.0, 10.0, 10.1):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 0, 1, 1]
    assert histogram.cumulative() == [2, 4, 4, 5, 6]
    assert histogram.sum == pytest.approx(24.2)


@given(values=st.lists(st.floats(0.0, 20.0)))
def test_cumulative_counts_are_those_of_prometheus(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    expected = [sum(value <= bound for value in values) for bound in BOUNDS]
    assert histogram.cumulative() == [*expected, len(values)]
    assert histogram.count == len(values)


@pytest.mark.parametrize("bounds", [(), (2.0, 1.0), (1.0, 1.0)])
def test_bounds_that_do_not_ascend_are_refused(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        Histogram(bounds)


@given(values=st.lists(st.floats(0.001, 9.999), min_size=1), share=st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    found = quantile(share, BOUNDS, histogram.counts)
    assert found is not None
    rank = max(1, -(-share * len(values) // 1))
    true = sorted(values)[int(rank) - 1]
    low, high = max([0.0, *[b for b in BOUNDS if b < true]]), min(b for b in BOUNDS if b >= true)
    assert low <= found <= high


def test_quantiles_of_nothing_and_of_the_unbounded() -> None:
    assert quantile(0.5, BOUNDS, [0, 0, 0, 0, 0]) is None
    assert quantile(0.5, BOUNDS, [0, 0, 0, 0, 3]) == 10.0
    assert quantile(0.5, BOUNDS, [0, 4, 0, 0, 0]) == 1.5
