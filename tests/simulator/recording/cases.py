"""Which runs are recorded for the audit, and what the simulator says of each.

A run without a planted bug is judged and recorded at once. With one there are two runs of the same seed: a judged
one, which ends at the first violation and says which checker found it, and a recorded one, which is not judged and
goes on, so that what the violation leads to reaches disks and journals as it would in a real cluster. A node that
notices a broken invariant stops for good, and the others go on."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tests.simulator.checkers import Violation
from tests.simulator.corel import mutants as corel_mutants
from tests.simulator.corel.plan import CorelPlan, draw_corel_plan
from tests.simulator.corel.run import CorelRun
from tests.simulator.mutation import Mutant, planted, what_breaks
from tests.simulator.recording.recording import Recording
from tests.simulator.recording.run import RecordedRun, RecordedStoreRun
from tests.simulator.store import mutants as store_mutants
from tests.simulator.store.plan import draw_store_plan
from tests.simulator.store.run import StoreRun

FAMILIES = {"corel": corel_mutants, "store": store_mutants}

NODES = (3, 5)


class Case(NamedTuple):
    """A run: a seed of a layer, with a planted bug or none."""

    layer: str
    seed: int
    mutant: str = ""

    @property
    def name(self) -> str:
        mutant = re.sub(r"[^a-z0-9]+", "-", self.mutant.lower()).strip("-")
        return "-".join(filter(None, (self.layer, str(self.seed), mutant)))


class Recorded(NamedTuple):
    """A run that was recorded."""

    case: Case
    clusters: tuple[str, ...]
    """Its clusters, one for each generation."""
    noticed: str | None
    """The checker that convicts it, or the exception that ended it; None if the simulator has nothing to say."""


def record(case: Case, target: Path, loses: bool = True) -> Recorded:
    """Records a run under this directory, and has the simulator judge it."""
    recording = Recording(target, case.name, loses=loses, has_bug=bool(case.mutant))
    if not case.mutant:
        noticed = first_checker(_run(case, recording, NODES, is_judged=True))
        return Recorded(case, tuple(recording.clusters), noticed)
    mutant = mutant_of(case.layer, case.mutant)
    with planted(mutant):
        noticed = _noticed(case.layer, case.seed, mutant.nodes)
        what_breaks(_run(case, recording, mutant.nodes, is_judged=False))
    return Recorded(case, tuple(recording.clusters), noticed)


def noticing_seeds(layer: str, mutant: Mutant, count: int) -> Iterator[tuple[int, str]]:
    """Yields those of the next seeds that notice the bug, and what noticed."""
    for seed in range(mutant.first_seed, mutant.first_seed + count):
        with planted(mutant):
            noticed = _noticed(layer, seed, mutant.nodes)
        if noticed is not None:
            yield seed, noticed


def first_checker(run: Callable[[], None]) -> str | None:
    """Returns what notices that a run is wrong, as `what_breaks` does; but if a checker asks another one, the
    first of them: `restorable` asks others what they would say of a node that started from its disk now."""

    def judged() -> None:
        try:
            run()
        except Violation as violation:
            files = [Path(frame.filename) for frame in traceback.extract_tb(violation.__traceback__)]
            asked.extend(file.stem for file in files if file.parent.name == "checkers")
            raise

    asked: list[str] = []
    broken = what_breaks(judged)
    return asked[0] if asked else broken


def _noticed(layer: str, seed: int, nodes: tuple[int, int]) -> str | None:
    if layer == "corel":
        return first_checker(CorelRun(draw_corel_plan(seed, *nodes, is_truncated=False)).run)
    return first_checker(StoreRun(draw_store_plan(seed, *nodes, is_truncated=False)).run)


def mutant_of(layer: str, name: str) -> Mutant:
    mutants: list[Mutant] = FAMILIES[layer].MUTANTS
    return next(one for one in mutants if one.name == name)


def _run(case: Case, recording: Recording, nodes: tuple[int, int], is_judged: bool) -> Callable[[], None]:
    if case.layer == "corel":
        plan = draw_corel_plan(case.seed, *nodes, is_truncated=False)
        return RecordedRun(plan if is_judged else _as_in_production(plan), recording, is_judged).run
    store_plan = draw_store_plan(case.seed, *nodes, is_truncated=False)
    if not is_judged:
        store_plan = replace(store_plan, corel=_as_in_production(store_plan.corel))
    return RecordedStoreRun(store_plan, recording, is_judged).run


def _as_in_production(plan: CorelPlan) -> CorelPlan:
    """Has nodes not check the invariants of their own queues after every step, which no real node does."""
    return replace(plan, config=replace(plan.config, debug_invariants=False))
