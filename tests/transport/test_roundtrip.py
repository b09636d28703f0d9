"""The measured round trip: nothing at first, then a mean and a bound that follow what is observed."""

from __future__ import annotations

import pytest

from transport.roundtrip import RoundTrip


def test_nothing_is_known_before_the_first_sample() -> None:
    round_trip = RoundTrip(ceiling_ms=100.0)
    assert round_trip.smoothed_ms == 0.0
    assert round_trip.bound_ms() == 0.0


def test_the_first_sample_is_the_mean_and_leaves_a_wide_margin() -> None:
    round_trip = RoundTrip(ceiling_ms=100.0)
    round_trip.observe(10.0)
    assert round_trip.smoothed_ms == 10.0
    assert round_trip.bound_ms() == 30.0


def test_the_second_sample_counts_as_rfc_6298_has_it() -> None:
    round_trip = RoundTrip(ceiling_ms=100.0)
    round_trip.observe(10.0)
    round_trip.observe(18.0)
    assert round_trip.smoothed_ms == pytest.approx(10.0 * 7 / 8 + 18.0 / 8)
    assert round_trip.bound_ms() == pytest.approx(11.0 + 4 * (5.0 * 3 / 4 + 8.0 / 4))


def test_a_steady_network_narrows_the_bound_to_the_mean() -> None:
    round_trip = RoundTrip(ceiling_ms=100.0)
    for _ in range(100):
        round_trip.observe(5.0)
    assert round_trip.smoothed_ms == pytest.approx(5.0)
    assert round_trip.bound_ms() == pytest.approx(5.0)


def test_a_network_that_becomes_slower_is_followed_and_the_bound_runs_ahead() -> None:
    round_trip = RoundTrip(ceiling_ms=100.0)
    for _ in range(50):
        round_trip.observe(1.0)
    round_trip.observe(20.0)
    assert round_trip.smoothed_ms < 5.0
    assert round_trip.bound_ms() > 20.0
    for _ in range(50):
        round_trip.observe(20.0)
    assert round_trip.smoothed_ms == pytest.approx(20.0, rel=0.01)


def test_what_takes_longer_than_a_network_could_is_not_counted() -> None:
    round_trip = RoundTrip(ceiling_ms=100.0)
    round_trip.observe(101.0)
    assert round_trip.bound_ms() == 0.0
    round_trip.observe(10.0)
    round_trip.observe(5_000.0)
    assert round_trip.smoothed_ms == 10.0


def test_the_bound_is_never_above_the_ceiling() -> None:
    round_trip = RoundTrip(ceiling_ms=100.0)
    round_trip.observe(90.0)
    assert round_trip.bound_ms() == 100.0


def test_what_was_measured_before_can_be_taken_over() -> None:
    earlier, later = RoundTrip(ceiling_ms=100.0), RoundTrip(ceiling_ms=100.0)
    earlier.observe(10.0)
    earlier.observe(18.0)
    later.take_over(earlier)
    assert (later.smoothed_ms, later.bound_ms()) == (earlier.smoothed_ms, earlier.bound_ms())
    for round_trip in (earlier, later):
        round_trip.observe(5.0)
    assert later.bound_ms() == earlier.bound_ms()
