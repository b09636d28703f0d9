"""Bugs in COREL are noticed: some by a few seeds of the simulator, the rarer ones by a directed test."""

from __future__ import annotations

import pytest

from tests.simulator.corel_mutants import MUTANTS, broken_property
from tests.simulator.mutation import Mutant, fails_with, hunt

QUICK_SEEDS = 12


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_is_noticed(mutant: Mutant) -> None:
    if mutant.test is not None:
        assert fails_with(mutant, mutant.test)
        return
    caught = hunt(mutant, range(mutant.first_seed, mutant.first_seed + QUICK_SEEDS), broken_property)
    assert caught is not None, f"{QUICK_SEEDS} seeds did not notice"
