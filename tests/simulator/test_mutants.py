"""Bugs are noticed: a mutant is the real code with one line made wrong, and a directed test or some seed must
notice."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.simulator.hunt import FAMILIES
from tests.simulator.mutation import Mutant, fails_with, hunt

CASES = [
    pytest.param(family, mutant, id=f"{family.__name__.split('.')[2]}: {mutant.name}")
    for family in FAMILIES
    for mutant in family.MUTANTS
]


@pytest.mark.parametrize(("family", "mutant"), CASES)
def test_a_bug_is_noticed(family: ModuleType, mutant: Mutant) -> None:
    if mutant.test is not None:
        assert fails_with(mutant, mutant.test)
        return
    seeds = range(mutant.first_seed, mutant.first_seed + family.SEEDS_MAX)
    caught = hunt(mutant, seeds, family.broken_property)
    assert caught is not None, f"{family.SEEDS_MAX} seeds did not notice"
    seed, broken = caught
    assert not mutant.breaks or broken in mutant.breaks, f"{broken} noticed, seed {seed}"
