from __future__ import annotations

import os

import pytest

from loadtest.samples import sample_of, slopes, usage_of


def sample(second: int, pid: int, anonymous: float, node: str = "a", descriptors: int = 20) -> dict[str, object]:
    return {
        "time_ms": second * 1_000,
        "node": node,
        "pid": pid,
        "anonymous_bytes": anonymous,
        "resident_bytes": anonymous * 2,
        "descriptors": descriptors,
    }


def test_growth_is_that_of_the_second_half() -> None:
    first = [sample(second, 1, 1e6 * second) for second in range(60)]
    second_half = [sample(second, 1, 60e6 + 1_000 * second, descriptors=20 + second) for second in range(60, 121)]
    found = slopes(first + second_half)["a"]
    assert found["anonymous_bytes_per_minute"] == 60_000
    assert found["resident_bytes_per_minute"] == 120_000
    assert found["descriptors_per_minute"] == pytest.approx(60.0)
    assert found["seconds"] == 60


def test_a_node_that_was_restarted_is_judged_by_its_longest_life() -> None:
    samples = [sample(second, 1, 5e6) for second in range(60)]
    samples += [sample(second, 2, 1e6 * second) for second in range(60, 70)]
    samples += [sample(second, 3, 7e6) for second in range(70, 121)]
    assert slopes(samples)["a"]["anonymous_bytes_per_minute"] == 0


def test_a_few_samples_say_nothing() -> None:
    assert slopes([sample(second, 1, 1e6) for second in range(12)]) == {}
    assert slopes([]) == {}


def test_a_process_is_looked_at() -> None:
    found = usage_of(os.getpid())
    assert found["anonymous_bytes"] > 1_000_000
    assert found["resident_bytes"] > found["anonymous_bytes"]
    assert found["descriptors"] >= 3
    assert usage_of(None) == {}


def test_a_node_that_does_not_answer_is_down() -> None:
    assert sample_of("a", None)["state"] == "down"
