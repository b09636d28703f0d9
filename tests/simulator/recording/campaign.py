"""`python -m tests.simulator audit`: records many runs, with planted bugs and without, has one job of Spark audit
all of them at once, and compares what it says with what the simulator says."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.simulator.recording.cases import FAMILIES, Case, Recorded, mutant_of, noticing_seeds, record
from tests.simulator.recording.comparison import VISIBLE, compare, disagreements, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.maxPlanStringLength": "4096",
    "spark.driver.memory": "3g",
}
"""There are many files with little in each: plans take longer to compile than to interpret, and their texts, with
the names of all files, do not fit into memory."""


class Campaign(NamedTuple):
    """What is recorded: seeds of the layers, and of each planted bug that seeds notice so many of these."""

    layers: tuple[str, ...]
    seeds: range
    seeds_per_bug: int
    jobs: int | None


def run_campaign(campaign: Campaign, directory: Path | None) -> int:
    """Records and compares; returns how many runs the two disagree on. What was recorded is kept in the directory,
    if one is given."""
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="corelkv-audit-") as work:
            return _run(campaign, Path(work))
    directory.mkdir(parents=True, exist_ok=True)
    return _run(campaign, directory)


def _run(campaign: Campaign, directory: Path) -> int:
    from spark.session import open_session

    recorded = list(record_all(campaign, directory))
    session = open_session("local[2]", SETTINGS, "audit of simulated runs", is_for_little=True)
    try:
        comparisons = compare(recorded, convictions(session, directory))
    finally:
        session.stop()
    for line in table(comparisons):
        print(line)
    return len(disagreements(comparisons))


def record_all(campaign: Campaign, directory: Path) -> Iterator[Recorded]:
    cases = [Case(layer, seed) for layer in campaign.layers for seed in campaign.seeds]
    bugs = [
        (layer, mutant.name)
        for layer in campaign.layers
        for mutant in FAMILIES[layer].MUTANTS
        if mutant.test is None and campaign.seeds_per_bug
    ]
    with ProcessPoolExecutor(campaign.jobs) as pool:
        yield from pool.map(partial(record, target=directory), cases)
        for found in pool.map(partial(_record_bug, target=directory, seeds=campaign.seeds_per_bug), bugs):
            yield from found


def _record_bug(bug: tuple[str, str], target: Path, seeds: int) -> list[Recorded]:
    """Records runs of a planted bug: those of the first seeds that notice it by something which logs can show,
    or else by anything."""
    layer, name = bug
    mutant = mutant_of(layer, name)
    noticing = list(noticing_seeds(layer, mutant, FAMILIES[layer].SEEDS_MAX))
    noticing.sort(key=lambda pair: pair[1] not in VISIBLE)
    return [record(Case(layer, seed, name), target) for seed, _ in noticing[:seeds]]


def convictions(session: SparkSession, directory: Path) -> dict[str, dict[str, int]]:
    """Audits everything in the directory. Returns, for each cluster, the rules that it breaks, and how often."""
    from spark.audit import audit
    from spark.reading import read

    found: dict[str, dict[str, int]] = defaultdict(dict)
    with tempfile.TemporaryDirectory(prefix="corelkv-audit-") as work:
        result = audit(session, read(session, [str(directory)], work), f"{work}/audit")
    for row in result.counts:
        found[row["cluster"]][row["rule"]] = row["count"]
    return dict(found)
