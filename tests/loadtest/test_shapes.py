from __future__ import annotations

import pytest

from loadtest.shapes import SHAPES, Knee, Observed, Soak, Spike, Step, shape_of

CALM = Observed(100.0, 10.0)


def users(shape: Soak | Step | Spike, seconds: list[float]) -> list[int | None]:
    levels = [shape.at(second, CALM) for second in seconds]
    return [None if level is None else level.users for level in levels]


def test_steps_grow_evenly() -> None:
    assert users(Step(50, 100.0), [0, 19, 20, 45, 60, 99, 100]) == [10, 10, 20, 30, 40, 50, None]


def test_a_spike_is_short() -> None:
    assert users(Spike(50, 100.0), [0, 39, 40, 59, 60, 99, 100]) == [5, 5, 50, 50, 5, 5, None]


def test_a_soak_stays_and_may_be_endless() -> None:
    assert users(Soak(50, 100.0), [0, 50, 99, 100]) == [50, 50, 50, None]
    assert users(Soak(50), [1e6]) == [50]
    level = Soak(50, 100.0).at(0.0, CALM)
    assert level is not None
    assert level.spawn_rate == 10.0


def run_knee(knee: Knee, capacity: float, p99_ms: float = 10.0) -> float:
    """Runs a search in a system that serves 10 requests/s for each user up to its capacity; returns its
    duration."""
    second, level = 0.0, knee.at(0.0, Observed(0.0, 0.0))
    while level is not None:
        second += 1.0
        level = knee.at(second, Observed(min(capacity, level.users * 10.0), p99_ms * (1 + level.users / 10)))
    return second


def test_the_knee_is_where_more_users_bring_no_more() -> None:
    knee = Knee(200, 1_000.0)
    assert run_knee(knee, capacity=400.0) < 1_000.0
    assert knee.knee is not None
    assert 36 <= knee.knee <= 50
    assert [step for step, _ in knee.steps] == sorted({step for step, _ in knee.steps})


def test_the_knee_is_where_answers_become_too_slow() -> None:
    knee = Knee(200, 1_000.0, p99_ms_max=50.0)
    run_knee(knee, capacity=1e9)
    assert knee.knee is not None
    assert 28 <= knee.knee <= 40


def test_a_system_that_serves_everybody_has_its_knee_at_the_end() -> None:
    knee = Knee(20, 1_000.0)
    run_knee(knee, capacity=1e9)
    assert knee.knee == 20


def test_shapes_are_found_by_name() -> None:
    assert [type(shape_of(name, 10, 60.0, 500.0)).__name__.lower() for name in SHAPES] == list(SHAPES)
    with pytest.raises(ValueError, match="choose one of"):
        shape_of("wave", 10, None, 500.0)
