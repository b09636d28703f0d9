"""The audit: a proof, from all replicas' logs, that they agreed, or where they did not.

`audit` composes the rules, each of which is a module that says what it proves, what it needs and how it scales:
`agreement`, `positions`, `digests`, `causal` and `queues`, `primaries`, `yellow`, `colours`, `durable`,
`acknowledged`. What all of them stand on is in `evidence`: the claims of all sources summed up, so that what is
the same everywhere is looked at once."""

from __future__ import annotations

from collections.abc import Callable

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from spark.audit import generations
from spark.audit.digests import LINES, lines_of
from spark.audit.evidence import (
    Evidence,
    agreed_order,
    blocks_of_events,
    blocks_of_files,
    blocks_of_logs,
    chosen_blocks,
    covered_of,
    disputed_order,
    event_counts_of,
    places_of_events,
    places_of_logs,
    unlike_blocks,
)
from spark.audit.findings import CHECKED, INCOMPLETE, union
from spark.audit.histories import histories
from spark.audit.journals import incarnations, lossy_nodes
from spark.audit.result import AuditResult, Verdict
from spark.audit.rules import RULES, Findings
from spark.events import answers, message_events
from spark.reading import Inputs
from spark.schemas import VIOLATIONS

__all__ = ["FIRST_VIOLATIONS", "AuditResult", "Verdict", "audit"]

FIRST_VIOLATIONS = 10
"""How many violations of each rule and cluster are named."""

_NEEDED = (
    *(
        "cluster",
        "node",
        "incarnation",
        "event",
        "monotonic_ms",
        "wall_ms",
        "view",
        "reason",
        "ids",
        "clocks",
        "sizes",
    ),
    *(
        "writes",
        "revisions",
        "id",
        "color",
        "position",
        "length",
        "green",
        "yellow",
        "revision",
        "firsts",
        "counts",
    ),
    *("outcomes", "kind", "stage", "committed", "number", "members", "count", "roster", "weights"),
)
"""The columns of records that rules look at."""


class _Kept:
    """Frames that are persisted until the end."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._frames.append(kept)
        return kept

    def end(self) -> None:
        for frame in self._frames:
            frame.unpersist()


def audit(
    spark: SparkSession,
    inputs: Inputs,
    earlier: DataFrame | None = None,
    first: int = FIRST_VIOLATIONS,
    progress: Callable[[str], None] = lambda _: None,
) -> AuditResult:
    """Audits all clusters of the inputs. `earlier` are LINES of an earlier audit of them; `progress` is told of
    what is done next. Of each rule and cluster the `first` violations are named, by position."""
    kept = _Kept()
    try:
        return _audit(spark, inputs, earlier, first, progress, kept)
    finally:
        kept.end()


def _audit(
    spark: SparkSession,
    inputs: Inputs,
    earlier: DataFrame | None,
    first: int,
    progress: Callable[[str], None],
    kept: _Kept,
) -> AuditResult:
    lines = spark.createDataFrame([], LINES.ddl) if earlier is None else earlier.select(*LINES)
    inputs, left_out = generations.split(spark, inputs)
    progress("evidence")
    evidence = gather(inputs, kept.keep)
    told = Findings(incomplete=[spark.createDataFrame(left_out, INCOMPLETE.ddl)])
    violations: list[Row] = []
    counts: list[Row] = []
    for name, rule in RULES.items():
        progress(name)
        findings = rule(evidence, lines)
        found = kept.keep(union(spark, VIOLATIONS, findings.violations))
        counted = found.groupBy("cluster", "rule").count().collect()
        counts += counted
        violations += _first(found, first).collect() if counted else []
        told.checked += findings.checked
        told.incomplete += findings.incomplete
    progress("histories")
    return AuditResult(
        violations=violations,
        counts=counts,
        checked=union(spark, CHECKED, told.checked).collect(),
        incomplete=union(spark, INCOMPLETE, told.incomplete).collect(),
        lines=lines_of(evidence.manifests).collect(),
        histories=_histories(spark, evidence, violations),
    )


def gather(inputs: Inputs, keep: Callable[[DataFrame], DataFrame]) -> Evidence:
    """Reads the logs once, and sums them up."""
    records = keep(inputs.records.select(*_NEEDED))
    events, logs = message_events(records), inputs.logs
    file_blocks = keep(blocks_of_logs(logs))
    blocks = keep(blocks_of_files(file_blocks).unionByName(blocks_of_events(events)))
    unlike = keep(unlike_blocks(blocks))
    chosen = keep(chosen_blocks(blocks, unlike))
    of_logs, of_journals = places_of_logs(logs), places_of_events(events)
    disputed = keep(disputed_order(of_logs.unionByName(of_journals), unlike))
    order = agreed_order(of_logs, chosen.where("is_export")).unionByName(disputed)
    if not chosen.where("not is_export").isEmpty():
        order = order.unionByName(agreed_order(of_journals, chosen.where("not is_export")))
    found = keep(incarnations(records))
    return Evidence(
        keep=keep,
        records=records,
        events=events,
        answers=answers(records),
        logs=logs,
        told=inputs.told,
        manifests=inputs.manifests,
        files=inputs.files,
        file_blocks=file_blocks,
        blocks=blocks,
        unlike=unlike,
        chosen=chosen,
        order=keep(order),
        disputed=disputed,
        covered=keep(covered_of(blocks, unlike, disputed)),
        event_counts=keep(event_counts_of(records)),
        incarnations=found,
        lossy=keep(lossy_nodes(found)),
    )


def _first(found: DataFrame, count: int) -> DataFrame:
    """Returns the first violations of each rule and cluster."""
    by_position = Window.partitionBy("cluster", "rule").orderBy(F.col("position").asc_nulls_last(), "id", "detail")
    numbered = found.withColumn("place", F.row_number().over(by_position)).where(F.col("place") <= count)
    return numbered.orderBy("cluster", "rule", "place").select(*VIOLATIONS)


def _histories(spark: SparkSession, evidence: Evidence, violations: list[Row]) -> list[Row]:
    """Returns HISTORIES of the messages that violations name, in the order in which things happened."""
    named = sorted({(row["cluster"], row["id"]) for row in violations if row["id"] is not None})
    if not named:
        return []
    few = spark.createDataFrame(named, "cluster string, id string")
    found = histories(few, evidence.events, evidence.answers, evidence.logs, evidence.manifests)
    return found.orderBy("cluster", "id", "wall_ms", "node").collect()
