"""Acknowledged: every write that clients were told of is in the order, once, with the outcome and the revision
told.

Needs: `acknowledged` records of journals, or the record of a load test, and exports. A write that was told to be
pending may also be in the queue of its node still. Where nothing has a write, and no export of the node that took
it was made after the answer, it may be in what was not exported: that is not provable. The same is true of a write
that was only pending, and on a disk that is gone.

A write is decided once, so what was told of it twice is compared with the one outcome that the order has.

Scales: answers and the order with its outcomes are joined by message: one shuffle of about 60 bytes for each of
both."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.audit.evidence import Evidence, key_of
from spark.audit.findings import checked, incomplete, text, violations
from spark.schemas import columns

ACKNOWLEDGED = "acknowledged"

PROMISES = columns(
    cluster="string",
    node="string",
    teller="string",
    told_ms="double",
    id="string",
    key="long",
    first="long",
    count="long",
    outcome="string",
    revision="long",
)
"""What was told of a run of writes of one message. `node` is the one that took it; `outcome` is `pending` for
writes that were accepted only."""


def promises_of_answers(answers: DataFrame) -> DataFrame:
    """Returns PROMISES of ANSWERS. What was undecided promises nothing."""
    told = answers.where("outcome <> 'undecided'")
    own = {"teller": F.lit("the journal"), "told_ms": F.col("wall_ms"), "key": key_of(F.col("id"))}
    return told.select(*(own.get(name, F.col(name)).alias(name) for name in PROMISES))


def promises_of_told(told: DataFrame) -> DataFrame:
    """Returns PROMISES of TOLD: what clients saw, by their own clocks."""
    kept = told.where("certainty = 'acknowledged' and id is not null and outcome is not null")
    index = F.substring_index("id", ".", -1)
    message = F.col("id").substr(F.lit(1), F.length("id") - F.length(index) - 1)
    own = {
        "node": F.regexp_replace(message, r"\.\d+\.\d+$", ""),
        "teller": F.lit("the clients' record"),
        "told_ms": F.col("time_ms") + F.coalesce("duration_ms", F.lit(0.0)),
        "id": message,
        "key": key_of(message),
        "first": index.cast("long"),
        "count": F.lit(1).cast("long"),
    }
    return kept.select(*(own.get(name, F.col(name)).alias(name) for name in PROMISES))


def kept_promises(promises: DataFrame, placed: DataFrame) -> DataFrame:
    """Returns PROMISES with `position` and `decided` of PLACED, null for what has no place, and `actual`: what
    became of the writes of the run."""
    joined = promises.join(placed, ["cluster", "key"], "left")
    actual = F.slice("decided", (F.col("first") + 1).cast("int"), F.col("count").cast("int"))
    return joined.withColumn("actual", actual)


def open_promises(kept: DataFrame) -> DataFrame:
    """Returns the rows of `kept_promises` that remain to be judged, which are few: those without a place, and
    those of writes that were told to be decided and are not known to be as was told."""
    is_open = F.col("decided").isNull() | ~_is_as_told()
    return kept.where(F.col("position").isNull() | ((F.col("outcome") != "pending") & is_open))


def broken_promises(promises: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of `open_promises`: writes that became something else than was told."""
    wrong = promises.where("decided is not null and outcome <> 'pending'").where(~_is_as_told())
    found = F.concat_ws(
        ", ",
        F.transform("actual", lambda one: F.concat_ws(" at ", one["outcome"], one["revision"].cast("string"))),
    )
    template = "by %s %d writes from %d on were told to be %s at revision %s, but are: %s"
    detail = text(
        template,
        F.col("teller"),
        F.col("count"),
        F.col("first"),
        F.col("outcome"),
        F.coalesce(F.col("revision").cast("string"), F.lit("none")),
        found,
    )
    return violations(wrong, ACKNOWLEDGED, nodes=F.array("node"), detail=detail).distinct()


def _is_as_told() -> Column:
    """Whether the writes of a run are as they were told: all there, with the outcome, and with the revision or, if
    they were applied, with consecutive ones."""
    step = F.when(F.col("outcome") == "applied", 1).otherwise(0)
    are_equal = F.transform(
        "actual",
        lambda one, place: (
            one["outcome"].eqNullSafe(F.col("outcome"))
            & (F.col("revision").isNull() | one["revision"].eqNullSafe(F.col("revision") + place * step))
        ),
    )
    return (F.size("actual") == F.col("count")) & F.forall(are_equal, lambda one: one)


def lost_promises(promises: DataFrame) -> DataFrame:
    """Returns the PROMISES of `open_promises` that have no place in the order."""
    return promises.where("position is null").select(*PROMISES)


def still_waiting(lost: DataFrame, logs: DataFrame) -> DataFrame:
    """Keeps those that are not in the queue of an exported log either. What was told to be decided may be there
    too, in an export that was made before."""
    queued = logs.where("not is_final").select("cluster", key_of(F.col("id")).alias("key")).distinct()
    return lost.join(queued, ["cluster", "key"], "left_anti")


def last_exports(manifests: DataFrame) -> DataFrame:
    """Returns (cluster, node, exported_ms, disks): when each node was exported last, and how many disks it had."""
    return manifests.groupBy("cluster", "node").agg(
        F.max("exported_ms").alias("exported_ms"), F.count_distinct("disk").alias("disks")
    )


def provable(lost: DataFrame, exports: DataFrame, emptied: DataFrame) -> DataFrame:
    """Adds `is_proven`: whether a later export of the node must have had it."""
    joined = lost.join(F.broadcast(exports), ["cluster", "node"], "left").join(
        F.broadcast(emptied.withColumn("is_emptied", F.lit(True))), ["cluster", "node"], "left"
    )
    is_later = F.coalesce(F.col("exported_ms") >= F.col("told_ms"), F.lit(False))
    is_kept = (F.col("outcome") != "pending") | ((F.col("disks") == 1) & F.col("is_emptied").isNull())
    return joined.withColumn("is_proven", is_later & is_kept)


def lost_writes(judged: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of `provable`."""
    wrong = judged.where("is_proven")
    detail = text(
        "by %s write %d was told to be %s, and it is in no log", F.col("teller"), F.col("first"), F.col("outcome")
    )
    return violations(wrong, ACKNOWLEDGED, nodes=F.array("node"), detail=detail).distinct()


def writes_unknown(judged: DataFrame, promises: DataFrame, exports: DataFrame) -> DataFrame:
    """Returns INCOMPLETE of `provable` and `open_promises`: writes that may be in what was not exported, and those
    of clusters without any export. What is beyond the final part of all exports is the end of the log, and is not
    counted."""
    lost = judged.where("not is_proven").groupBy("cluster", "node").agg(F.sum("count").alias("count"))
    open_ = promises.where("position is not null and decided is null and outcome <> 'pending'")
    undecided = open_.groupBy("cluster", "node").agg(F.sum("count").alias("count"))
    alone = undecided.join(F.broadcast(exports.select("cluster").distinct()), ["cluster"], "left_anti")
    return incomplete(lost, ACKNOWLEDGED, "writes that no log has, and no later export of their node").unionByName(
        incomplete(alone, ACKNOWLEDGED, "writes that are green, whose outcomes are in no export")
    )


def acknowledged_checked(evidence: Evidence) -> list[DataFrame]:
    answered = evidence.event_counts.where("event = 'acknowledged'")
    acknowledged = evidence.told.where("certainty = 'acknowledged'")
    return [
        checked(answered, ACKNOWLEDGED, "writes answered, by journals", F.col("writes")),
        checked(acknowledged, ACKNOWLEDGED, "writes answered, by clients"),
    ]
