"""Causal: before every message of the order is everything that its sender had when it sent it, and every earlier
message of its sender. And no message is in the order twice.

Needs: the order; exports for what a message says its sender knew (`basis_known`); journals for what the sender's
own queue had when it sent it. The last is known independently of what the message says.

Where the order is not known without a gap, as where only journals tell of it, a message that is needed and
not found may be in the gap: that is not provable, and is said.

Scales: what is needed and what there is are grouped by message: one shuffle of about 30 bytes for each message and
for each entry of a basis. The queues of senders are joined to the order by message, and then reduced to one row
per journal record, which is written down: two shuffles of about 40 bytes for each message and node. Running maxima
are over buckets of ten seconds of one incarnation, and over the buckets' maxima."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.audit.evidence import Evidence, key_of, life_of, moment_of, sequence_of, stream_of
from spark.audit.findings import checked, incomplete, text, violations

CAUSAL = "causal"
TWICE = "one_position"
BUCKET_MS = 10_000
NOWHERE = (1 << 63) - 1
"""The position of a message that is not in the order."""

QUEUED = ("sent", "received", "recovered")

_INCARNATION = ("cluster", "node", "incarnation")


# What messages need


def needs_of_streams(order: DataFrame) -> DataFrame:
    """Returns (cluster, key, needed_by): every message needs the one before it in its stream."""
    later = order.where("key_before is not null")
    return later.select("cluster", F.col("key_before").alias("key"), F.col("position").alias("needed_by"))


def needs_of_bases(rows: DataFrame) -> DataFrame:
    """Returns (cluster, key, needed_by) of rows of exports: every message needs what its sender knew."""
    known = rows.where(F.size("basis_known") > 0).select(
        "cluster", "position", F.explode("basis_known").alias("stream", "sequence")
    )
    before = F.concat_ws(".", "stream", F.col("sequence").cast("string"))
    return known.where("sequence > 0").select(
        "cluster", key_of(before).alias("key"), F.col("position").alias("needed_by")
    )


def met_needs(order: DataFrame, needs: DataFrame) -> DataFrame:
    """Returns a row for each message that is in the order or needed: (cluster, key, first, last, needed_by), where
    `first` and `last` are its positions, null if it has none, and `needed_by` that of the first that needs it."""
    nothing = F.lit(None).cast("long")
    has = order.select("cluster", "key", "position", nothing.alias("needed_by"))
    need = needs.select("cluster", "key", nothing.alias("position"), "needed_by")
    return (
        has.unionByName(need)
        .groupBy("cluster", "key")
        .agg(
            F.min("position").alias("first"),
            F.max("position").alias("last"),
            F.min("needed_by").alias("needed_by"),
        )
    )


def offending(met: DataFrame) -> DataFrame:
    """Returns the rows of `met_needs` in which something is wrong, or cannot be proven."""
    is_late = F.col("first").isNull() | (F.col("first") >= F.col("needed_by"))
    return met.where((F.col("first") != F.col("last")) | (F.col("needed_by").isNotNull() & is_late))


def twice_placed(bad: DataFrame, order: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: messages with two positions."""
    wrong = bad.where("first <> last").join(order.select("cluster", "key", "id"), ["cluster", "key"]).distinct()
    detail = text("it is at position %d and at position %d", F.col("first"), F.col("last"))
    return violations(wrong, TWICE, position=F.col("first"), detail=detail)


def late_causes(bad: DataFrame, names: DataFrame, order: DataFrame, covered: DataFrame) -> DataFrame:
    """Returns what is needed and not before what needs it: (cluster, needed, first, needed_by, is_wrong). `names`
    are `needs_by_name`. What is nowhere is wrong if the order is known without a gap up to what needs it. Of a log
    that does not begin at 0 it may be before the beginning, unless an earlier message of its stream is in the
    log."""
    late = bad.where("needed_by is not null and (first is null or first >= needed_by)")
    named = late.join(names.distinct(), ["cluster", "key"])
    streams = order.groupBy("cluster", stream_of("id").alias("stream")).agg(
        F.min(sequence_of("id")).alias("begins")
    )
    joined = (
        named.withColumn("stream", stream_of("needed"))
        .join(F.broadcast(streams), ["cluster", "stream"], "left")
        .join(F.broadcast(covered), "cluster", "left")
    )
    is_inside = (F.col("start") == 0) | F.coalesce(sequence_of("needed") >= F.col("begins"), F.lit(False))
    is_known = F.col("needed_by") < F.col("end")
    kept = joined.where(F.col("first").isNotNull() | is_inside)
    is_wrong = F.col("first").isNotNull() | is_known
    return kept.select("cluster", "needed", "first", "needed_by", is_wrong.alias("is_wrong"))


def causes_missing(late: DataFrame, order: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of `late_causes`."""
    message = order.select("cluster", F.col("position").alias("needed_by"), "id")
    named = late.where("is_wrong").join(message, ["cluster", "needed_by"])
    detail = F.when(F.col("first").isNull(), text("%s is not before it, nor anywhere", F.col("needed"))).otherwise(
        text("%s is not before it, but at position %d", F.col("needed"), F.col("first"))
    )
    return violations(named, CAUSAL, position=F.col("needed_by"), detail=detail)


def causes_unknown(late: DataFrame) -> DataFrame:
    """Returns INCOMPLETE of `late_causes`."""
    unknown = late.where("not is_wrong").groupBy("cluster").count()
    return incomplete(unknown, CAUSAL, "messages that others need and that are where the order is not known")


def needs_by_name(order: DataFrame, rows: DataFrame) -> DataFrame:
    """Returns (cluster, key, needed): the ids of everything that is needed, for the few that have to be named."""
    of_streams = order.select("cluster", _before("id").alias("needed"))
    known = rows.select("cluster", F.explode("basis_known").alias("stream", "sequence"))
    of_bases = known.select(
        "cluster", F.concat_ws(".", "stream", F.col("sequence").cast("string")).alias("needed")
    )
    return of_streams.unionByName(of_bases).withColumn("key", key_of(F.col("needed")))


def _before(message_id: str) -> Column:
    """Returns the id of the message before this one in its stream."""
    return F.concat(stream_of(message_id), (sequence_of(message_id) - 1).cast("string"))


# What senders had in their queues


def queued_places(events: DataFrame, order: DataFrame, epochs: DataFrame) -> DataFrame:
    """Returns a row for each moment at which messages entered the queue of an incarnation: (life, bucket, moment,
    highest, lowest_sent, highest_logged), where `highest` is the highest position of any of them, NOWHERE if one
    has none, `lowest_sent` the lowest position of those that it sent itself, and `highest_logged` the highest
    position of those that were logged then, for incarnations that are not the last (`epochs`)."""
    queued = queue_events(events, epochs).withColumn("key", key_of(F.col("id")))
    joined = queued.join(order.select("cluster", "key", "position"), ["cluster", "key"], "left")
    place = F.coalesce("position", F.lit(NOWHERE))
    is_logged = F.col("event") == "logged"
    moments = joined.groupBy("life", "moment").agg(
        F.max(F.when(~is_logged, place)).alias("highest"),
        F.min(F.when(F.col("event") == "sent", F.col("position"))).alias("lowest_sent"),
        F.max(F.when(is_logged, place)).alias("highest_logged"),
    )
    return moments.withColumn("bucket", bucket_of("moment"))


def queue_events(events: DataFrame, epochs: DataFrame) -> DataFrame:
    """Returns (cluster, life, moment, event, id) of what entered queues, and, for incarnations that are not the
    last, of what was logged."""
    earlier = epochs.where("not is_last").select("life", F.lit(True).alias("is_earlier"))
    chosen = events.where(F.col("event").isin(*QUEUED, "logged")).select(
        "cluster", life_of().alias("life"), moment_of().alias("moment"), "event", "id"
    )
    kept = chosen.join(F.broadcast(earlier), "life", "left")
    return kept.where("event <> 'logged' or is_earlier").drop("is_earlier")


def bucket_of(moment: str) -> Column:
    return F.floor(F.col(moment) / (1_000 * BUCKET_MS))


def disk_epochs(incarnations: DataFrame) -> DataFrame:
    """Returns (cluster, node, incarnation, life, is_last, epoch) of INCARNATIONS: how often the node had begun
    with an empty disk by then."""
    by_time = Window.partitionBy("cluster", "node").orderBy("incarnation")
    epoch = F.sum(F.coalesce(F.col("started_length") == 0, F.lit(False)).cast("int")).over(by_time)
    return incarnations.select(*_INCARNATION, life_of().alias("life"), "is_last", epoch.alias("epoch"))


def queued_before(moments: DataFrame, epochs: DataFrame) -> DataFrame:
    """Returns `queued_places` with `before`: the highest position of everything that entered the queue of the
    incarnation earlier, or that an earlier incarnation with the same disk had logged."""
    summed = moments.groupBy("life", "bucket").agg(
        F.max("highest").alias("of_bucket"), F.max("highest_logged").alias("logged")
    )
    earlier = Window.partitionBy("life").orderBy("bucket").rowsBetween(Window.unboundedPreceding, -1)
    of_earlier = summed.withColumn("of_earlier", F.max("of_bucket").over(earlier))
    logged = summed.groupBy("life").agg(F.max("logged").alias("logged")).join(epochs, "life")
    lives = Window.partitionBy("cluster", "node", "epoch").orderBy("incarnation")
    on_disk = F.max("logged").over(lives.rowsBetween(Window.unboundedPreceding, -1)).alias("on_disk")
    buckets = of_earlier.join(logged.select("life", on_disk), "life")
    within = Window.partitionBy("life", "bucket").orderBy("moment")
    in_bucket = F.max("highest").over(within.rowsBetween(Window.unboundedPreceding, -1))
    known = F.broadcast(buckets.select("life", "bucket", "of_earlier", "on_disk"))
    joined = moments.withColumn("in_bucket", in_bucket).join(known, ["life", "bucket"])
    return joined.withColumn("before", F.greatest("in_bucket", "of_earlier", "on_disk"))


def sent_too_early(before: DataFrame, epochs: DataFrame) -> DataFrame:
    """Returns the moments at which a message was sent that has its place before something its sender had, with
    the incarnation that sent it."""
    return before.where(F.col("lowest_sent") < F.col("before")).join(F.broadcast(epochs), "life")


def queue_causes_missing(
    early: DataFrame, order: DataFrame, events: DataFrame, epochs: DataFrame, covered: DataFrame
) -> DataFrame:
    """Returns VIOLATIONS of `sent_too_early`, with one of the messages that the sender had."""
    known = _provable(early, covered, F.col("before") < NOWHERE, F.col("lowest_sent"))
    had = _had(known, events, epochs).join(order.select("cluster", "id", "position"), ["cluster", "id"], "left")
    position = F.coalesce("position", F.lit(NOWHERE))
    first = had.where(position > F.col("lowest_sent")).groupBy("cluster", "node", "lowest_sent")
    found = first.agg(F.min(F.struct("incarnation", "moment", "id", position.alias("position"))).alias("had"))
    message = order.select("cluster", F.col("position").alias("lowest_sent"), "id")
    place = F.when(F.col("had.position") == NOWHERE, F.lit("which is nowhere")).otherwise(
        text("which is at position %d", F.col("had.position"))
    )
    named = found.join(message, ["cluster", "lowest_sent"])
    detail = text("%s had %s when it sent it, %s", F.col("node"), F.col("had.id"), place)
    return violations(named, CAUSAL, position=F.col("lowest_sent"), nodes=F.array("node"), detail=detail)


def _had(sent: DataFrame, events: DataFrame, epochs: DataFrame) -> DataFrame:
    """Returns what the senders of these messages had: (cluster, node, lowest_sent, incarnation, moment, id)."""
    names = ["cluster", "node", "epoch"]
    asked = sent.select(
        *names, F.col("incarnation").alias("sent_in"), F.col("moment").alias("sent_at"), "lowest_sent"
    )
    lives = queue_events(events, epochs).join(
        F.broadcast(epochs.select("life", "node", "epoch", "incarnation")), "life"
    )
    is_same = (
        (F.col("incarnation") == F.col("sent_in"))
        & (F.col("event") != "logged")
        & (F.col("moment") < F.col("sent_at"))
    )
    is_logged = (F.col("incarnation") < F.col("sent_in")) & (F.col("event") == "logged")
    joined = lives.join(F.broadcast(asked), names).where(is_same | is_logged)
    return joined.select("cluster", "node", "lowest_sent", "incarnation", "moment", "id")


def queue_causes_unknown(early: DataFrame, covered: DataFrame) -> DataFrame:
    """Returns INCOMPLETE: messages whose senders had something that may be where the order is not known."""
    missing = early.where(F.col("before") == NOWHERE)
    unknown = _unprovable(missing, covered, F.col("lowest_sent")).groupBy("cluster", "node").count()
    return incomplete(unknown, CAUSAL, "messages whose sender had others that are where the order is not known")


def causal_checked(evidence: Evidence) -> list[DataFrame]:
    length = F.col("end") - F.col("start")
    sent = evidence.event_counts.where("event = 'sent'")
    return [
        checked(evidence.covered, CAUSAL, "messages of the order", length),
        checked(evidence.file_blocks, CAUSAL, "rows that say what their sender knew", F.col("bases")),
        checked(sent, CAUSAL, "messages sent, by journals", F.col("messages")),
    ]


def _provable(frame: DataFrame, covered: DataFrame, is_found: Column, position: Column) -> DataFrame:
    """Keeps what is wrong for certain: what is needed has another place, or the order is known from 0 up to the
    message that needs it."""
    joined = frame.join(F.broadcast(covered), ["cluster"], "left")
    return joined.where(is_found | ((F.col("start") == 0) & (position < F.col("end")))).drop("start", "end")


def _unprovable(frame: DataFrame, covered: DataFrame, position: Column) -> DataFrame:
    """Keeps what may be in a gap of the order."""
    joined = frame.join(F.broadcast(covered), ["cluster"], "left")
    return joined.where(position >= F.col("end")).drop("start", "end")
