"""Some seeds of the store layer in every test run. Campaigns: `make simulate LAYER=store`."""

from __future__ import annotations

import pytest

from tests.simulator.runner import run_seeds


@pytest.mark.parametrize("first", range(1, 25, 6))
def test_seeds_pass(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    failures = run_seeds("store", range(first, first + 6), (3, 5), jobs=1)
    assert failures == 0, capsys.readouterr().out
