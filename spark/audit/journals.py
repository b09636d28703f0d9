"""What is known of each incarnation's journal, and where it is known to lack something.

Journals may lack events: a process that is killed loses up to 100 ms of them, a `gap` record says that some were
not written, and the oldest files are deleted. What a rule then misses is not a violation.

Scales: one pass over the records, and one row per incarnation."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.schemas import columns

INCARNATIONS = columns(
    cluster="string",
    node="string",
    incarnation="long",
    records="long",
    first_wall_ms="double",
    last_wall_ms="double",
    started_green="long",
    started_length="long",
    is_started="boolean",
    is_stopped="boolean",
    is_last="boolean",
    gap="long",
)
"""One incarnation of a node, by its journal. `is_last` says that no journal has a later one of the node."""


def incarnations(records: DataFrame) -> DataFrame:
    """Returns INCARNATIONS."""
    is_start = F.col("event") == "started"
    grouped = records.groupBy("cluster", "node", "incarnation").agg(
        F.count("*").alias("records"),
        F.min("wall_ms").alias("first_wall_ms"),
        F.max("wall_ms").alias("last_wall_ms"),
        F.max(F.when(is_start, F.col("green"))).alias("started_green"),
        F.max(F.when(is_start, F.col("length"))).alias("started_length"),
        F.max(is_start).alias("is_started"),
        F.max(F.col("event") == "stopped").alias("is_stopped"),
        F.sum(F.when(F.col("event") == "gap", F.coalesce("count", F.lit(1))).otherwise(0)).alias("gap"),
    )
    last = grouped.groupBy("cluster", "node").agg(F.max("incarnation").alias("last"))
    joined = grouped.join(last, ["cluster", "node"])
    return joined.withColumn("is_last", F.col("incarnation") == F.col("last")).select(*INCARNATIONS)


def lossy_nodes(found: DataFrame) -> DataFrame:
    """Returns (cluster, node) of the nodes whose journals are known to lack something: gaps, or an incarnation
    that was killed."""
    is_killed = ~F.col("is_stopped") & ~F.col("is_last")
    return found.where(is_killed | (F.col("gap") > 0)).select("cluster", "node").distinct()


def emptied_nodes(found: DataFrame) -> DataFrame:
    """Returns (cluster, node) of the nodes of which an incarnation that is not their first began with an empty
    disk."""
    first = found.groupBy("cluster", "node").agg(F.min("incarnation").alias("first"))
    later = found.join(first, ["cluster", "node"]).where("incarnation > first and started_length = 0")
    return later.select("cluster", "node").distinct()
