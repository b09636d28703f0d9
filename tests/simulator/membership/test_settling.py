"""The campaign that measures how long machines take to one view runs, counts and prints."""

from __future__ import annotations

import math
import sys

import pytest

from tests.simulator.__main__ import main
from tests.simulator.membership import settling
from tests.simulator.membership.settling import SITUATIONS, Case, Settled, cases_of, percentile, settle, settle_all


@pytest.mark.parametrize("situation", SITUATIONS)
def test_three_machines_settle_in_every_situation(situation: str) -> None:
    settled = settle(1, Case(situation, 3, loss=0.05))
    assert 0.0 <= settled.after_ms < 3_000.0
    assert settled.controls_sent > 3
    assert settle(1, Case(situation, 3, loss=0.05)) == settled


def test_machines_whose_work_takes_long_settle_later() -> None:
    quick, slow = (settle(1, Case("started", 5, loss=0.0, jitter_ms=0.0, cpu_us=cost)) for cost in (0.0, 3_000.0))
    assert quick.after_ms + 20.0 < slow.after_ms < 3_000.0


def test_machines_that_never_settle_are_counted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "LIMIT_MS", 100.0)
    lines: list[str] = []
    assert not settle_all([Case("started", 3, 0.0)], range(1, 3), 1, lines.append)
    assert "| inf |" in lines[-1]
    assert math.isinf(settle(1, Case("started", 3, 0.0)).after_ms)


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, part) for part in (0.5, 0.9, 0.99, 1.0)] == [50.0, 90.0, 99.0, 100.0]
    assert percentile([7.0], 0.5) == 7.0


def test_a_row_has_the_slowest_seed_and_repetitions_per_new_message(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {5: Settled(100.0, 10, 5), 6: Settled(900.0, 10, 25)}
    monkeypatch.setattr(settling, "settle", lambda seed, case: results[seed])
    lines: list[str] = []
    assert settle_all(cases_of(["storms"], [9], [0.2], 10.0), range(5, 7), 1, lines.append)
    assert lines[-1] == "| storms | 9 | 20% | 10 | 0 | 2 | 100 | 900 | 900 | 900 | seed 6 | 1.5 |"


def test_the_command_prints_a_row_for_each_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = "settle --situations started halves --machines 3 --loss 0 5 --seeds 1-2 --jobs 1"
    monkeypatch.setattr(sys, "argv", ["simulator", *arguments.split()])
    assert main() == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + 4
