"""The audit: a proof, from all replicas' logs, that they agreed, or where they did not.

`audit` composes the rules, each of which is a module that says what it proves, what it needs and how it scales:
`agreement`, `positions`, `digests`, `causal` and `queues`, `primaries`, `yellow`, `colours`, `durable`,
`acknowledged`. What all of them stand on is in `evidence`: the claims of all sources summed up, so that what is
the same everywhere is looked at once."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from spark.audit import generations
from spark.audit.digests import LINES, lines_of
from spark.audit.evidence import (
    PLACES,
    Evidence,
    blocks_of_events,
    blocks_of_files,
    blocks_of_logs,
    chosen_blocks,
    covered_of,
    event_counts_of,
    exported_rows,
    journaled_places,
    order_of,
    placed_messages,
    settled_places,
    settled_rows,
    unlike_blocks,
)
from spark.audit.findings import CHECKED, INCOMPLETE, summed, union
from spark.audit.histories import histories
from spark.audit.journals import incarnations, lossy_nodes
from spark.audit.result import AuditResult, Verdict
from spark.audit.rules import RULES, Findings
from spark.events import answers, message_events
from spark.local_frames import local_frame
from spark.reading import Inputs
from spark.schemas import VIOLATIONS
from spark.staging import Staging

__all__ = ["FIRST_VIOLATIONS", "AuditResult", "Verdict", "audit"]

FIRST_VIOLATIONS = 10
"""How many violations of each rule and cluster are named."""


def audit(
    spark: SparkSession,
    inputs: Inputs,
    work: str,
    earlier: DataFrame | None = None,
    first: int = FIRST_VIOLATIONS,
    progress: Callable[[str], None] = lambda _: None,
) -> AuditResult:
    """Audits all clusters of the inputs. `work` is a directory, on a file system that all of Spark's processes
    see, for what several rules need; it must not have anything else in it. `earlier` are LINES of an earlier audit
    of the clusters; `progress` is told of what is done next. Of each rule and cluster the `first` violations are
    named, by position."""
    staging = Staging(spark, work)
    try:
        return _audit(spark, inputs, staging, earlier, first, progress)
    finally:
        staging.end()


def _audit(
    spark: SparkSession,
    inputs: Inputs,
    staging: Staging,
    earlier: DataFrame | None,
    first: int,
    progress: Callable[[str], None],
) -> AuditResult:
    lines = local_frame(spark, [], LINES.ddl) if earlier is None else earlier.select(*LINES)
    inputs, left_out = generations.split(spark, inputs)
    progress("evidence")
    evidence = gather(inputs, staging.keep)
    found: list[DataFrame] = []
    told = Findings(incomplete=[local_frame(spark, left_out, INCOMPLETE.ddl)])
    for name, rule in RULES.items():
        progress(name)
        findings = rule(evidence, lines)
        found.append(staging.keep(union(spark, VIOLATIONS, findings.violations)))
        told.checked += findings.checked
        told.incomplete += findings.incomplete
    progress("histories")
    all_found = union(spark, VIOLATIONS, found)
    counts = all_found.groupBy("cluster", "rule").count().collect()
    violations = _first(all_found, first).collect() if counts else []
    return AuditResult(
        violations=violations,
        counts=counts,
        checked=summed(union(spark, CHECKED, told.checked)).collect(),
        incomplete=union(spark, INCOMPLETE, told.incomplete).collect(),
        lines=lines_of(evidence.manifests).collect(),
        histories=_histories(spark, evidence, violations),
    )


def gather(inputs: Inputs, keep: Callable[[DataFrame], DataFrame]) -> Evidence:
    """Sums the logs up, and keeps those rows of them that have to be looked at."""
    events, logs = message_events(inputs.records), inputs.logs
    file_blocks = keep(blocks_of_logs(logs))
    blocks = keep(blocks_of_files(file_blocks).unionByName(blocks_of_events(events)))
    unlike = keep(unlike_blocks(blocks))
    chosen = keep(chosen_blocks(blocks, unlike))
    rows = keep(exported_rows(logs, chosen.where("is_export")))
    journaled = keep(journaled_places(events, chosen.where("not is_export")))
    places = rows.select(*PLACES, "is_unlike").unionByName(journaled)
    unlike_places = places.where("is_unlike").drop("is_unlike")
    settled = keep(settled_places(unlike_places))
    alike = places.where("not is_unlike").select("cluster", "position", "id")
    found = keep(incarnations(inputs.records))
    return Evidence(
        keep=keep,
        records=inputs.records,
        events=events,
        answers=answers(inputs.records),
        logs=logs,
        told=inputs.told,
        manifests=inputs.manifests,
        files=inputs.files,
        file_blocks=file_blocks,
        blocks=blocks,
        unlike=unlike,
        rows=rows,
        settled=settled_rows(rows, settled),
        unlike_places=unlike_places,
        order=keep(order_of(alike.unionByName(settled))),
        placed=placed_messages(rows, journaled, settled),
        covered=keep(covered_of(blocks, unlike, settled)),
        event_counts=keep(event_counts_of(inputs.records)),
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
    few = local_frame(spark, named, "cluster string, id string")
    found = histories(few, evidence.events, evidence.answers, evidence.logs, evidence.manifests)
    return found.orderBy("cluster", "id", "wall_ms", "node").collect()
