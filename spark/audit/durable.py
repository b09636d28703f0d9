"""Durable: what a node's journal calls logged, it has whenever it starts from the same disk again, and in every
later export, in whatever colour: nothing that was on its disk, and that it may have acknowledged, is lost.

Needs: journals; for what is in exports, those of the same node. A disk that was replaced has lost what was on it
alone: only journals since the node last began with an empty disk count. An export's time is that of its snapshot,
by the clock of the node's machine. How much a node starts with is in its journal (`started`).

Scales: a node has every message of a stream up to its last one, which `causal` checks. So it is enough to compare
the last message of each stream, and the number of all: journals and exports are aggregated by stream before
anything is shuffled."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.audit.evidence import sequence_of, stream_of
from spark.audit.findings import checked, text, violations

DURABLE = "durable"

_INCARNATION = ("cluster", "node", "incarnation")


def last_exports(manifests: DataFrame) -> DataFrame:
    """Returns (cluster, node, export, run, exported_ms, first): the last export of each node."""
    last = F.max(F.struct("exported_ms", "export", "number", "first")).alias("last")
    grouped = manifests.groupBy("cluster", "node").agg(last)
    names = ("last.export", F.col("last.number").alias("run"), "last.exported_ms", "last.first")
    return grouped.select("cluster", "node", *names)


def logged_streams(events: DataFrame, exports: DataFrame) -> DataFrame:
    """Returns (cluster, node, incarnation, stream, logged, before_export): the last message of each stream that an
    incarnation logged, and the last of those before the last export of its node."""
    times = F.broadcast(exports.select("cluster", "node", "exported_ms"))
    logged = events.where("event = 'logged'").join(times, ["cluster", "node"], "left")
    sequence = sequence_of("id")
    return logged.groupBy(*_INCARNATION, stream_of("id").alias("stream")).agg(
        F.max(sequence).alias("logged"),
        F.max(F.when(F.col("wall_ms") < F.col("exported_ms"), sequence)).alias("before_export"),
    )


def due_in_exports(streams: DataFrame, incarnations: DataFrame) -> DataFrame:
    """Returns (cluster, node, stream, logged) of `logged_streams`: the last message of each stream that the last
    export of a node must have. What was logged before it began with an empty disk does not count."""
    emptied = (
        incarnations.where("started_length = 0")
        .groupBy("cluster", "node")
        .agg(F.max("incarnation").alias("since"))
    )
    joined = streams.where("before_export is not null").join(F.broadcast(emptied), ["cluster", "node"], "left")
    kept = joined.where(F.col("incarnation") >= F.coalesce("since", F.lit(0)))
    return kept.groupBy("cluster", "node", "stream").agg(F.max("before_export").alias("logged"))


def forgotten_at_start(streams: DataFrame, incarnations: DataFrame, epochs: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: incarnations that started with fewer messages than earlier ones with the same disk had
    logged. `epochs` are `causal.disk_epochs`."""
    disk = ("cluster", "node", "epoch")
    before = Window.partitionBy(*disk, "stream").orderBy("incarnation").rowsBetween(Window.unboundedPreceding, -1)
    known = F.coalesce(F.max("logged").over(before), F.lit(0))
    lives = epochs.select(*_INCARNATION, "epoch")
    new = streams.join(F.broadcast(lives), list(_INCARNATION)).withColumn("new", F.col("logged") - known)
    of_lives = new.where("new > 0").groupBy(*_INCARNATION).agg(F.sum("new").alias("new"))
    started = incarnations.select(*_INCARNATION, "started_length").join(lives, list(_INCARNATION))
    earlier = Window.partitionBy(*disk).orderBy("incarnation").rowsBetween(Window.unboundedPreceding, -1)
    had = F.sum(F.coalesce("new", F.lit(0))).over(earlier)
    joined = started.join(of_lives, list(_INCARNATION), "left").withColumn("had", had)
    wrong = joined.where("started_length < had")
    template = "%s started as incarnation %d with %d messages, and had logged %d on the same disk"
    detail = text(template, "node", "incarnation", "started_length", "had")
    return violations(wrong, DURABLE, position=F.col("started_length"), nodes=F.array("node"), detail=detail)


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
