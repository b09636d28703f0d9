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

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.audit.causal import BUCKET_MS, CAUSAL, QUEUED
from spark.audit.evidence import Evidence, key_of, sequence_of
from spark.audit.findings import checked, text, violations

_INCARNATION = ("cluster", "node", "incarnation")


def recovered_messages(events: DataFrame) -> DataFrame:
    """Returns (cluster, node, incarnation, key, id, recovered_ms): when messages entered a queue in a recovery,
    for the first time in an incarnation."""
    recovered = events.where("event = 'recovered'").withColumn("key", key_of(F.col("id")))
    return recovered.groupBy(*_INCARNATION, "key", "id").agg(F.min("monotonic_ms").alias("recovered_ms"))


def sender_moments(events: DataFrame, recovered: DataFrame, epochs: DataFrame) -> DataFrame:
    """Returns a row for each moment at which an incarnation sent messages, or got any of those that are recovered
    somewhere: (cluster, node, incarnation, monotonic_ms, sent, entered, logged). `sent` is the (sequence, id) of
    the first that it sent, null if it sent none; `entered` and `logged` are the keys of those that entered its
    queue and of those that were logged, which is of interest unless the incarnation is the last (`epochs`)."""
    is_sent, is_logged = F.col("event") == "sent", F.col("event") == "logged"
    is_wanted = F.col("is_wanted").isNotNull()
    wanted = recovered.select("cluster", "key", F.lit(True).alias("is_wanted")).distinct()
    earlier = epochs.where("not is_last").select(*_INCARNATION, F.lit(True).alias("is_earlier"))
    chosen = events.where(F.col("event").isin(*QUEUED, "logged")).join(
        F.broadcast(earlier), list(_INCARNATION), "left"
    )
    named = chosen.where(~is_logged | F.col("is_earlier").isNotNull()).withColumn("key", key_of(F.col("id")))
    kept = named.join(wanted, ["cluster", "key"], "left").where(is_sent | is_wanted)
    return kept.groupBy(*_INCARNATION, "monotonic_ms").agg(
        F.min(F.when(is_sent, F.struct(sequence_of("id").alias("sequence"), "id"))).alias("sent"),
        F.collect_set(F.when(is_wanted & ~is_logged, F.col("key"))).alias("entered"),
        F.collect_set(F.when(is_wanted & is_logged, F.col("key"))).alias("logged"),
    )


def sent_next(moments: DataFrame, epochs: DataFrame) -> DataFrame:
    """Returns (cluster, key, sender, next) of `sender_moments`: the next message that a node sent when it had one
    that is recovered somewhere, in the same incarnation, and with the same disk in a later one."""
    bucketed = moments.withColumn("bucket", F.floor(F.col("monotonic_ms") / BUCKET_MS))
    summed = bucketed.groupBy(*_INCARNATION, "bucket").agg(F.min("sent").alias("of_bucket"))
    following = (1, Window.unboundedFollowing)
    buckets = Window.partitionBy(*_INCARNATION).orderBy("bucket").rowsBetween(*following)
    lives = Window.partitionBy("cluster", "node", "epoch").orderBy("incarnation").rowsBetween(*following)
    of_lives = summed.groupBy(*_INCARNATION).agg(F.min("of_bucket").alias("of_life")).join(epochs, [*_INCARNATION])
    in_next_life = F.first("of_life", ignorenulls=True).over(lives).alias("in_next_life")
    known = summed.withColumn("in_later_bucket", F.min("of_bucket").over(buckets)).join(
        of_lives.select(*_INCARNATION, in_next_life), list(_INCARNATION)
    )
    within = Window.partitionBy(*_INCARNATION, "bucket").orderBy("monotonic_ms").rowsBetween(*following)
    joined = bucketed.withColumn("in_bucket", F.min("sent").over(within)).join(
        F.broadcast(known.drop("of_bucket")), [*_INCARNATION, "bucket"]
    )
    sender = F.col("node").alias("sender")
    in_same = joined.select(
        "cluster",
        F.explode("entered").alias("key"),
        sender,
        F.coalesce("in_bucket", "in_later_bucket")["id"].alias("next"),
    )
    in_later = joined.select(
        "cluster", F.explode("logged").alias("key"), sender, F.col("in_next_life")["id"].alias("next")
    )
    return in_same.unionByName(in_later).where("next is not null").distinct()


def recovered_late(recovered: DataFrame, following: DataFrame, events: DataFrame) -> DataFrame:
    """Returns what nodes recovered when they had the `next` message already: (cluster, node, sender, next, id,
    recovered_ms)."""
    asked = (
        recovered.join(following, ["cluster", "key"])
        .where("node <> sender")
        .select(*_INCARNATION, key_of(F.col("next")).alias("key"), "next", "sender", "id", "recovered_ms")
    )
    had = events.where(F.col("event").isin(*QUEUED)).select(
        *_INCARNATION, key_of(F.col("id")).alias("key"), "monotonic_ms"
    )
    late = had.join(asked, [*_INCARNATION, "key"]).where("monotonic_ms < recovered_ms")
    return late.select("cluster", "node", "sender", "next", "id", "recovered_ms").distinct()


def queues_with_gaps(late: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of `recovered_late`, one for each node and message that it had too early."""
    found = late.groupBy("cluster", "node", "sender", "next").agg(
        F.count_distinct("id").alias("count"), F.min(F.struct("recovered_ms", "id")).alias("first")
    )
    detail = text(
        "%s had it in its queue before %s, which %s had when it sent it; %d such messages came later",
        *("node", "first.id", "sender", "count"),
    )
    return violations(found, CAUSAL, id=F.col("next"), nodes=F.array("node"), detail=detail)


def queues_checked(evidence: Evidence) -> DataFrame:
    recovered = evidence.event_counts.where("event = 'recovered'")
    return checked(recovered, CAUSAL, "messages recovered, by journals", F.col("messages"))
