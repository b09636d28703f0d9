"""Durable: what a node's journal calls logged, it has in every later export, in whatever colour: nothing that was
on its disk, and that it may have acknowledged, is lost.

Needs: journals and exports of the same node. A disk that was replaced has lost what was on it alone: only journals
since the node last began with an empty disk count. An export's time is that of its snapshot, by the clock of the
node's machine.

Scales: a node has every message of a stream up to its last one, which `causal` checks. So it is enough to compare
the last message of each stream: journals and exports are aggregated by stream before anything is shuffled."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.audit.evidence import sequence_of, stream_of
from spark.audit.findings import checked, text, violations

DURABLE = "durable"


def last_exports(manifests: DataFrame) -> DataFrame:
    """Returns (cluster, node, export, run, exported_ms, first): the last export of each node."""
    last = F.max(F.struct("exported_ms", "export", "number", "first")).alias("last")
    grouped = manifests.groupBy("cluster", "node").agg(last)
    names = ("last.export", F.col("last.number").alias("run"), "last.exported_ms", "last.first")
    return grouped.select("cluster", "node", *names)


def logged_streams(events: DataFrame, incarnations: DataFrame, exports: DataFrame) -> DataFrame:
    """Returns (cluster, node, stream, logged): the last message of each stream that a node had logged before its
    last export, since it began with an empty disk."""
    emptied = (
        incarnations.where("started_length = 0")
        .groupBy("cluster", "node")
        .agg(F.max("incarnation").alias("since"))
    )
    since = exports.join(emptied, ["cluster", "node"], "left").select("cluster", "node", "since", "exported_ms")
    logged = events.where("event = 'logged'").join(F.broadcast(since), ["cluster", "node"])
    is_kept = F.col("incarnation") >= F.coalesce("since", F.lit(0))
    before = logged.where(is_kept & (F.col("wall_ms") < F.col("exported_ms")))
    return before.groupBy("cluster", "node", stream_of("id").alias("stream")).agg(
        F.max(sequence_of("id")).alias("logged")
    )


def exported_streams(logs: DataFrame, exports: DataFrame) -> DataFrame:
    """Returns (cluster, node, stream, exported): the last message of each stream in the last export of a node."""
    wanted = exports.select("cluster", "export", F.col("run").alias("last_run"))
    rows = logs.join(F.broadcast(wanted), ["cluster", "export"]).where("is_final or run = last_run")
    stream = F.concat_ws(".", "sender", F.col("incarnation").cast("string"), F.lit(""))
    return rows.groupBy("cluster", "node", stream.alias("stream")).agg(F.max("sequence").alias("exported"))


def lost_logged(logged: DataFrame, exported: DataFrame, exports: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: streams of which a node had logged more than its last export has. Of a log that does not
    begin at 0, streams that are not in it at all may be before its beginning."""
    joined = logged.join(exported, ["cluster", "node", "stream"], "left").join(
        F.broadcast(exports), ["cluster", "node"]
    )
    has = F.coalesce("exported", F.lit(0))
    wrong = joined.where((F.col("logged") > has) & (F.col("exported").isNotNull() | (F.col("first") == 0)))
    first = F.concat(F.col("stream"), (has + 1).cast("string"))
    count = F.col("logged") - has
    detail = text("%s had logged it, and %s lacks it (and %d after it in its stream)", "node", "export", count - 1)
    return violations(wrong, DURABLE, id=first, nodes=F.array("node"), detail=detail)


def durable_checked(logged: DataFrame) -> list[DataFrame]:
    return [checked(logged, DURABLE, "streams of messages logged")]
