"""Bugs in the store are noticed: by a few seeds of the simulator, or by a directed test."""

from __future__ import annotations

import pytest

from tests.simulator.mutation import Mutant, fails_with, hunt
from tests.simulator.store_mutants import MUTANTS, broken_property

QUICK_SEEDS = 6


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_is_noticed(mutant: Mutant) -> None:
    if mutant.test is not None:
        assert fails_with(mutant, mutant.test)
        return
    caught = hunt(mutant, range(mutant.first_seed, mutant.first_seed + QUICK_SEEDS), broken_property)
    assert caught is not None, f"{QUICK_SEEDS} seeds did not notice"
    assert not mutant.breaks or caught[1] in mutant.breaks, f"{caught[1]} noticed"
