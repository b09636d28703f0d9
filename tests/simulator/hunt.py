"""`make mutants`: plants every bug of every layer, and says what noticed each."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial

import tests.simulator.corel.learning_mutants
import tests.simulator.corel.mutants
import tests.simulator.membership.mutants
import tests.simulator.node.mutants
import tests.simulator.store.mutants
import tests.simulator.transport.mutants
from tests.simulator.mutation import fails_with, hunt

FAMILIES = (
    tests.simulator.transport.mutants,
    tests.simulator.membership.mutants,
    tests.simulator.corel.mutants,
    tests.simulator.corel.learning_mutants,
    tests.simulator.store.mutants,
    tests.simulator.node.mutants,
)


def hunt_all(seeds: range, jobs: int | None) -> int:
    """Prints a table of the mutants and what noticed each; returns how many were not noticed."""
    places = [(family, place) for family, module in enumerate(FAMILIES) for place in range(len(module.MUTANTS))]
    unnoticed = 0
    with ProcessPoolExecutor(jobs) as pool:
        found = pool.map(partial(_notice, seeds=seeds), places)
        for (family, place), notice in zip(places, found, strict=True):
            unnoticed += notice is None
            print(f"| {FAMILIES[family].MUTANTS[place].name} | {notice or 'not noticed'} |", flush=True)
    print(f"{len(places)} mutants, {unnoticed} not noticed in {len(seeds)} seeds")
    return unnoticed


def _notice(where: tuple[int, int], seeds: range) -> str | None:
    family = FAMILIES[where[0]]
    mutant = family.MUTANTS[where[1]]
    if mutant.test is not None:
        return f"`{mutant.test.__name__}`" if fails_with(mutant, mutant.test) else None
    caught = hunt(mutant, seeds, family.broken_property)
    return None if caught is None else f"{caught[1]}, seed {caught[0]}"
