"""Runs many seeds on all cores and reports; replays one."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from tests.simulator.checkers import Violation
from tests.simulator.corel.copies import CopiesRun, draw_copies_plan
from tests.simulator.corel.plan import draw_corel_plan
from tests.simulator.corel.run import CorelRun
from tests.simulator.membership.plan import draw_membership_plan
from tests.simulator.membership.run import MembershipRun
from tests.simulator.run import SimulatedRun
from tests.simulator.store.plan import draw_store_plan
from tests.simulator.store.run import StoreRun
from tests.simulator.transport.plan import draw_plan
from tests.simulator.transport.run import TransportRun

NODES_MIN, NODES_MAX = 3, 9


class Layer(NamedTuple):
    """How a layer's plans are drawn from a seed, and run."""

    draw: Callable[[int, int, int], Any]
    run: Callable[[Any, Callable[[str], None] | None], SimulatedRun]


LAYERS = {
    "transport": Layer(draw_plan, TransportRun),
    "membership": Layer(draw_membership_plan, MembershipRun),
    "corel": Layer(draw_corel_plan, CorelRun),
    "copies": Layer(draw_copies_plan, CopiesRun),
    "store": Layer(draw_store_plan, StoreRun),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed."""

    seed: int
    simulated_ms: float
    failure: str | None
    coverage: Counter[str]


def run_seed(seed: int, layer: str, nodes: tuple[int, int]) -> Outcome:
    run = LAYERS[layer].run(LAYERS[layer].draw(seed, *nodes), None)
    failure: str | None = None
    try:
        run.run()
    except Violation as violation:
        failure = f"{run.world.now:.3f} ms: {violation}"
    except Exception as error:  # a machine that raises is a failed seed, not a failed simulator
        failure = f"{run.world.now:.3f} ms: {type(error).__name__}: {error}"
    return Outcome(seed, run.world.now, failure, run.coverage)


def run_seeds(layer: str, seeds: Iterable[int], nodes: tuple[int, int], jobs: int | None) -> int:
    """Runs the seeds, prints every failure as it is found and a summary; returns the number of failures."""
    seeds = list(seeds)
    started = time.monotonic()
    simulated_ms = 0.0
    failures = 0
    coverage: Counter[str] = Counter()
    outcomes = _outcomes(partial(run_seed, layer=layer, nodes=nodes), seeds, jobs)
    for done, outcome in enumerate(outcomes, start=1):
        simulated_ms += outcome.simulated_ms
        coverage += outcome.coverage
        if outcome.failure is not None:
            failures += 1
            _clear_progress()
            print(f"seed {outcome.seed} failed at {outcome.failure}")
            print(f"  replay: {replay_command(layer, outcome.seed, nodes)}", flush=True)
        _show_progress(done, len(seeds), failures)
    _clear_progress()
    for what, count in sorted(coverage.items()):
        print(f"  {count:9,}  {what}")
    seconds = max(time.monotonic() - started, 1e-9)
    speed = simulated_ms / 1_000.0 / seconds
    print(
        f"{len(seeds)} seeds, {failures} failures, {speed:.0f}x real time "
        f"({simulated_ms / 1_000.0:.0f} s simulated in {seconds:.0f} s)"
    )
    return failures


def _outcomes(run: Callable[[int], Outcome], seeds: Iterable[int], jobs: int | None) -> Iterator[Outcome]:
    if jobs == 1:  # in this process, where a debugger works and a test can plant bugs
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        yield from pool.map(run, seeds, chunksize=4)


def replay(layer: str, seed: int, nodes: tuple[int, int], write: Callable[[str], None]) -> bool:
    """Runs one seed with its event trace; returns whether it passed."""
    plan = LAYERS[layer].draw(seed, *nodes)
    write(f"# {plan}")
    run = LAYERS[layer].run(plan, write)
    try:
        run.run()
    except Violation as violation:
        write(f"# violation at {run.world.now:.3f} ms: {violation}")
        return False
    write(f"# passed after {run.world.now:.3f} ms")
    return True


def replay_command(layer: str, seed: int, nodes: tuple[int, int]) -> str:
    command = f"python -m tests.simulator replay --layer {layer} --seed {seed}"
    return command if nodes == (NODES_MIN, NODES_MAX) else f"{command} --nodes {nodes[0]}-{nodes[1]}"


def _show_progress(done: int, total: int, failures: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{total} seeds, {failures} failures", end="", file=sys.stderr, flush=True)


def _clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
