"""Causal, in every queue: a node that recovers messages from others has nothing of what was sent after them.

`causal` looks at the order, in which a queue that was wrong for a while leaves nothing behind: red messages are
sorted by their timestamps, so that one which comes too late still gets its place before those that need it. But
the node's journal says when each message came. If a node recovers a message, and already has the next one that
somebody sent who had it, then its queue lacked what is before that one; had it been cut off at that moment, it
would have kept it so.

Needs: journals; the node's own for what came when, the sender's for what it had. What is looked at at the node is
within one incarnation, so it does not matter what became of its disk. A sender has what entered its queue in the
same incarnation, and what an earlier incarnation with the same disk had logged. Messages that are received rather
than recovered come in the causal order of the transport, and are not looked at.

Of all messages that were sent after a message the next one of each sender is enough: the others were sent after
that one, and a node that lacks it has to recover it as well.

Scales: messages that were recovered are few, those of partitions. What the senders had is joined to them by
message, one shuffle of about 40 bytes for each message and node, and what the nodes had to the next messages,
another. Windows are over buckets of ten seconds of one incarnation, over its buckets, and over the incarnations of
a node."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from spark.audit.causal import CAUSAL, QUEUED, bucket_of, queue_events
from spark.audit.evidence import Evidence, key_of, life_of, moment_of, sequence_of
from spark.audit.findings import checked, text, violations


def recovered_messages(events: DataFrame) -> DataFrame:
    """Returns (cluster, node, life, key, id, recovered_at): when messages entered a queue in a recovery, for the
    first time in an incarnation."""
    recovered = events.where("event = 'recovered'").select(
        "cluster",
        "node",
        life_of().alias("life"),
        key_of(F.col("id")).alias("key"),
        "id",
        moment_of().alias("moment"),
    )
    grouped = recovered.groupBy("cluster", "node", "life", "key", "id")
    return grouped.agg(F.min("moment").alias("recovered_at"))


def sender_moments(events: DataFrame, recovered: DataFrame, epochs: DataFrame) -> DataFrame:
    """Returns what incarnations sent, and when they got, or logged, any of the messages that are recovered
    somewhere: (cluster, life, bucket, moment, sent, key, is_logged). `sent` is the sequence number of what was
    sent, and `key` that of what is recovered somewhere; either may be null. What was logged is of interest unless
    the incarnation is the last (`epochs`)."""
    is_sent = F.col("event") == "sent"
    wanted = recovered.select("cluster", "key", F.col("key").alias("wanted")).distinct()
    named = queue_events(events, epochs).withColumn("key", key_of(F.col("id")))
    kept = named.join(wanted, ["cluster", "key"], "left").where(is_sent | F.col("wanted").isNotNull())
    return kept.select(
        "cluster",
        "life",
        bucket_of("moment").alias("bucket"),
        "moment",
        F.when(is_sent, sequence_of("id")).alias("sent"),
        F.col("wanted").alias("key"),
        (F.col("event") == "logged").alias("is_logged"),
    )


def sent_next(moments: DataFrame, epochs: DataFrame) -> DataFrame:
    """Returns (cluster, key, sender, next) of `sender_moments`: the next message that a node sent when it had one
    that is recovered somewhere, in the same incarnation, and with the same disk in a later one. `next` is its
    incarnation and sequence number (`sent`)."""
    in_buckets = moments.groupBy("life", "bucket").agg(F.min("sent").alias("of_bucket"))
    in_lives = in_buckets.groupBy("life").agg(F.min("of_bucket").alias("of_life")).join(epochs, "life")
    next_life = F.struct("incarnation", F.col("of_life").alias("sent"))
    lives = _later("incarnation", "cluster", "node", "epoch").rowsBetween(Window.unboundedPreceding, -1)
    in_next_life = F.last(F.when(F.col("of_life").isNotNull(), next_life), ignorenulls=True).over(lives)
    buckets = _later("bucket", "life").rowsBetween(Window.unboundedPreceding, -1)
    known = in_buckets.select("life", "bucket", F.min("of_bucket").over(buckets).alias("in_later_bucket")).join(
        in_lives.select("life", F.col("node").alias("sender"), "incarnation", in_next_life.alias("in_next_life")),
        "life",
    )
    within = _later("moment", "life", "bucket").rangeBetween(Window.unboundedPreceding, -1)
    got = moments.withColumn("in_bucket", F.min("sent").over(within)).where("key is not null")
    joined = got.join(F.broadcast(known), ["life", "bucket"])
    in_same = F.struct("incarnation", F.coalesce("in_bucket", "in_later_bucket").alias("sent"))
    following = F.when(F.col("is_logged"), F.col("in_next_life")).otherwise(in_same)
    return joined.select("cluster", "key", "sender", following.alias("next")).where("next.sent is not null")


def _later(order: str, *group: str) -> WindowSpec:
    """Returns windows whose rows go backwards, so that those which come later precede: Spark adds to a frame that
    grows from row to row, and begins anew for each row with one that shrinks."""
    return Window.partitionBy(*group).orderBy(F.col(order).desc())


def recovered_late(recovered: DataFrame, following: DataFrame, events: DataFrame) -> DataFrame:
    """Returns what nodes recovered when they had the `next` message already: (cluster, node, sender, next, id,
    recovered_at)."""
    next_id = F.concat_ws(".", "sender", F.col("next.incarnation").cast("string"), F.col("next.sent"))
    asked = (
        recovered.join(following, ["cluster", "key"])
        .where("node <> sender")
        .select("cluster", "node", "life", "sender", next_id.alias("next"), "id", "recovered_at")
        .withColumn("key", key_of(F.col("next")))
    )
    had = events.where(F.col("event").isin(*QUEUED)).select(
        life_of().alias("life"), key_of(F.col("id")).alias("key"), moment_of().alias("moment")
    )
    late = had.join(asked, ["life", "key"]).where("moment < recovered_at")
    return late.select("cluster", "node", "sender", "next", "id", "recovered_at").distinct()


def queues_with_gaps(late: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of `recovered_late`, one for each node and message that it had too early."""
    found = late.groupBy("cluster", "node", "sender", "next").agg(
        F.count_distinct("id").alias("count"), F.min(F.struct("recovered_at", "id")).alias("first")
    )
    detail = text(
        "%s had it in its queue before %s, which %s had when it sent it; %d such messages came later",
        *("node", "first.id", "sender", "count"),
    )
    return violations(found, CAUSAL, id=F.col("next"), nodes=F.array("node"), detail=detail)


def queues_checked(evidence: Evidence) -> DataFrame:
    recovered = evidence.event_counts.where("event = 'recovered'")
    return checked(recovered, CAUSAL, "messages recovered, by journals", F.col("messages"))
