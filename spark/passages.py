"""What became of each message at each node: the times of its steps side by side.

Needs MESSAGE_EVENTS, ANSWERS and a timeline; yields PASSAGES. Within a row times are compared by the monotonic
clock of one incarnation, across rows by `*_time`, the corrected wall clock.

With RECORDS it is also known when the view in which a node sent or received a message ended there. Without them, a
message whose sender was cut off with it, and took over from others that it is green, may pass for one that
was slow in its primary component: only commitments and demotions that name the message tell then.

How it scales: one shuffle by message, of the few columns that are needed. What is known of a message at its sender
and at the last of its receivers comes from a window function over the rows of that message: nodes times their
incarnations. Neither needs another shuffle. The ends of views are few, and are broadcast."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.columns import conform, sender_of
from spark.schemas import columns
from spark.timeline import Timeline

IN_PRIMARY = "primary"
"""Sent in a primary component, and green in it."""
INTERRUPTED = "interrupted"
"""Sent in a primary component that ended before the message was green: it became yellow again, or fell back to
red, in a later one."""
RED = "red"
"""Sent outside of a primary component, and green through a merge."""

STEPS = ("sent", "received", "recovered", "logged", "yellow", "green", "applied", "accepted", "answered")
"""What a passage has a time of. `accepted`: a client was told that its write is pending; `answered`: that it is
decided."""

PASSAGES = columns(
    cluster="string",
    id="string",
    sender="string",
    node="string",
    incarnation="long",
    origin="string",
    bytes="long",
    **{f"{step}_ms": "double" for step in STEPS},
    **{f"{step}_time": "double" for step in ("received", "logged", "yellow", "green", "accepted", "answered")},
    was_interrupted="boolean",
    sent_time="double",
    all_received_time="double",
    all_logged_time="double",
)
"""One message at one incarnation of a node. `sent_time` and `origin` are those at its sender, in every row of the
message, null if the sender's journal is not there. `was_interrupted` says that the view in which this node had the
message ended, or another commitment had the message, before it was green at this node. `all_received_time` and
`all_logged_time` are when the last node that received the message from the network had received, and logged it."""

_INCARNATION = ["cluster", "node", "incarnation"]
_TIMES = tuple(name.removesuffix("_time") for name in PASSAGES if name.endswith("_time") and "all_" not in name)


def passages(
    events: DataFrame, answers: DataFrame, timeline: Timeline, records: DataFrame | None = None
) -> DataFrame:
    """Returns PASSAGES, a row for each message at each incarnation of each node that has a record of it."""
    told = with_ends_of_views(steps(events, answers), records)
    return with_its_sender(side_by_side(timeline.corrected(told)))


def with_ends_of_views(told: DataFrame, records: DataFrame | None) -> DataFrame:
    """Adds `view_end_ms`, when the view of a step ended at its node, by its monotonic clock; null if no other view
    followed, or that is not known."""
    if records is None:
        return told.withColumn("view_end_ms", F.lit(None).cast("double"))
    following = Window.partitionBy(*_INCARNATION).orderBy("monotonic_ms")
    ends = (
        records.where(F.col("event") == "view")
        .select(*_INCARNATION, "view", F.lead("monotonic_ms").over(following).alias("view_end_ms"))
        .where(F.col("view_end_ms").isNotNull())
    )
    return told.join(F.broadcast(ends), [*_INCARNATION, "view"], "left")


def steps(events: DataFrame, answers: DataFrame) -> DataFrame:
    """Returns the events of messages and what clients were told, with the names of `STEPS`."""
    told = (
        F.when(F.col("outcome") == "pending", F.lit("accepted"))
        .when(F.col("outcome") == "undecided", F.lit(None))
        .otherwise(F.lit("answered"))
    )
    names = (*_INCARNATION, "id", "event", "monotonic_ms", "wall_ms", "color", "bytes", "view")
    absent = {"bytes": F.lit(None).cast("long"), "view": F.lit(None).cast("string")}
    answered = answers.withColumn("event", told).withColumns(absent)
    of_messages = events.where(F.col("event").isin(*STEPS, "demoted"))
    return of_messages.select(*names).unionByName(answered.where("event is not null").select(*names))


def side_by_side(timed: DataFrame) -> DataFrame:
    """Brings the steps of one message at one node into one row. The first of each counts, but of `yellow`, which
    may come again, the last."""
    event, color = F.col("event"), F.col("color")
    is_entry = event.isin("sent", "received")
    return (
        timed.repartition("cluster", "id")
        .groupBy("cluster", "id", "node", "incarnation")
        .agg(
            *(_time_of(step, "monotonic_ms").alias(f"{step}_ms") for step in STEPS),
            *(_time_of(step, "time_ms").alias(f"{step}_time") for step in _TIMES),
            F.min(F.when(event == "yellow", F.col("time_ms"))).alias("committed_time"),
            F.max("bytes").alias("bytes"),
            F.min(F.when(is_entry, F.col("view_end_ms"))).alias("view_end_ms"),
            F.coalesce(F.max(is_entry & (color == "yellow")), F.lit(False)).alias("was_yellow"),
            F.coalesce(F.max(event == "demoted"), F.lit(False)).alias("was_demoted"),
        )
    )


def _time_of(step: str, clock: str) -> Column:
    time = F.when(F.col("event") == step, F.col(clock))
    return F.max(time) if step == "yellow" else F.min(time)


def with_its_sender(rows: DataFrame) -> DataFrame:
    """Gives every row what the sender's row says, and when the last node had the message."""
    of_message = Window.partitionBy("cluster", "id")
    is_sent = F.col("sent_ms").isNotNull()
    is_here = F.col("received_ms").isNotNull() | is_sent
    is_outlived = F.col("view_end_ms") < _until_green("ms")
    is_committed_again = F.min("committed_time").over(of_message) <= _until_green("time")
    was_interrupted = F.col("was_demoted") | F.coalesce(is_outlived, F.lit(False))
    was_interrupted |= F.coalesce(is_committed_again, F.lit(False))
    origin = (
        F.when(is_sent & ~F.col("was_yellow"), F.lit(RED))
        .when(is_sent & F.col("was_interrupted"), F.lit(INTERRUPTED))
        .when(is_sent, F.lit(IN_PRIMARY))
    )
    joined = (
        rows.withColumn("sender", sender_of(F.col("id")))
        .withColumn("was_interrupted", was_interrupted)
        .withColumn("origin", F.max(origin).over(of_message))
        .withColumn("bytes", F.max("bytes").over(of_message))
        .withColumn("sent_time", F.min("sent_time").over(of_message))
        .withColumn("all_received_time", F.max("received_time").over(of_message))
        .withColumn("all_logged_time", F.max(F.when(is_here, F.col("logged_time"))).over(of_message))
    )
    return conform(joined, PASSAGES)


def _until_green(clock: str) -> Column:
    """When the message was green here; never, if there is no record of it."""
    return F.coalesce(f"green_{clock}", F.lit(float("inf")))
