from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.levels import LevelError, Levels
from loadtest.statistics import TOTAL, Phases, percentile, statistics_of

ROWS = {
    TOTAL: {"requests": 1_000, "failures": 5, "requests_per_second": 100.0, "p50_ms": 5, "p99_ms": 90},
    "PUT put": {"requests": 300, "failures": 0, "requests_per_second": 30.0, "p50_ms": 9, "p99_ms": 120},
}


class Row:
    def __init__(self, name: str, times: dict[int, int], failures: int = 0) -> None:
        self.name, self.response_times, self.num_failures = name, times, failures
        self.num_requests = sum(times.values())


def missed(levels: Levels, lost_writes: int | None = 0) -> list[str]:
    return [one.name for one in levels.judge(ROWS, lost_writes) if not one.is_kept]


def test_levels_come_from_a_file_and_flags_override_it(tmp_path: Path) -> None:
    file = tmp_path / "levels.toml"
    file.write_text('error_rate = 0.001\np99_ms = 100\n["PUT put"]\np99_ms = 100\n')
    levels = Levels().with_file(file)
    assert missed(levels) == ["error_rate", "PUT put: p99_ms"]
    assert missed(levels.with_flags(["error_rate=0.01", "PUT put:p99_ms=120"])) == []


def test_a_lost_write_misses_its_level() -> None:
    assert missed(Levels.default(with_chaos=True)) == []
    assert missed(Levels.default(with_chaos=True), lost_writes=1) == ["lost_writes"]


def test_throughput_is_a_least_value() -> None:
    assert missed(Levels().with_flags(["requests_per_second=101"])) == ["requests_per_second"]
    assert missed(Levels().with_flags(["requests_per_second=100"])) == []


def test_what_was_not_measured_keeps_no_level() -> None:
    assert missed(Levels().with_flags(["GET nothing:p99_ms=100"])) == ["GET nothing: p99_ms"]


@pytest.mark.parametrize("flag", ["p98_ms=3", "p99_ms=fast", "p99_ms", "=3"])
def test_a_level_that_cannot_be_understood_is_refused(flag: str) -> None:
    with pytest.raises(LevelError):
        Levels().with_flags([flag])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(LevelError, match=r"levels\.toml"):
        Levels().with_file(tmp_path / "levels.toml")


def test_percentiles_of_a_histogram() -> None:
    times = {1: 50, 10: 49, 100: 1}
    assert [percentile(times, share) for share in (0.5, 0.51, 0.99, 0.991, 1.0)] == [1, 10, 10, 100, 100]
    assert percentile({}, 0.99) == 0


def test_statistics_have_every_row_and_the_total() -> None:
    put, get = Row("PUT put", {10: 4}, 1), Row("GET key", {2: 6})
    rows = statistics_of([put, get], Row("Aggregated", {10: 4, 2: 6}, 1), 2.0)
    assert list(rows) == [TOTAL, "GET key", "PUT put"]
    assert rows[TOTAL]["requests_per_second"] == 5.0
    assert rows["PUT put"]["failures"] == 1


def test_phases_share_the_requests_of_a_run() -> None:
    phases = Phases()
    assert phases.figures(1.0, Row("Aggregated", {})) == []
    phases.note(4, 0.0, Row("Aggregated", {}))
    phases.note(4, 5.0, Row("Aggregated", {10: 50}))
    phases.note(40, 10.0, Row("Aggregated", {10: 100}, 1))
    first, second = phases.figures(15.0, Row("Aggregated", {10: 100, 300: 50}, 3))
    assert (first["users"], first["seconds"], first["requests_per_second"], first["p99_ms"]) == (4, 10.0, 10.0, 10)
    assert (second["users"], second["second"], second["requests"], second["failures"]) == (40, 10.0, 50, 2)
    assert (second["requests_per_second"], second["p50_ms"]) == (10.0, 300)
