"""The corel layer of the simulator finds bugs: those that a few seeds notice are tried in every test run, all of
them by `make mutants`. What only many seeds notice, a directed test notices at once (`tests/corel`)."""

from __future__ import annotations

import pytest

from tests.simulator.corel_mutants import MUTANTS, RARE, broken_property
from tests.simulator.test_mutants import Mutant, hunt

QUICK_SEEDS = 12

QUICK = [mutant for mutant in MUTANTS if mutant.first_seed != RARE]


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_the_simulator_catches(mutant: Mutant) -> None:
    caught = hunt(mutant, range(mutant.first_seed, mutant.first_seed + QUICK_SEEDS), broken_property)
    assert caught is not None, f"{QUICK_SEEDS} seeds did not notice"
