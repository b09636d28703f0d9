"""How the green line, the yellow line and the queue of each node grew.

Needs RECORDS and a timeline. Yields LINES: where the lines were at the end of each window in which a node told of
them, and the longest queue within it.

In a primary component a message is yellow from when it is logged until it is green, some milliseconds later, and
the journal has no yellow line for each: there the yellow line is told as the green one, and everything after it
counts as waiting. Elsewhere it is told with each stage.

How it scales: one aggregation, made before the shuffle, to nodes times windows. A window function over the windows
of one node gives those without a record of a line the last one."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.columns import conform
from spark.schemas import columns
from spark.timeline import Timeline

LINES = columns(
    cluster="string",
    node="string",
    window_ms="long",
    green="long",
    yellow="long",
    length="long",
    length_max="long",
    waiting="long",
    greened="long",
)
"""The lines of a node at the end of a window, as it told of them last; `waiting` is how many messages
were not green then, `greened` how many became green within it."""

_QUEUED = ("sent", "received", "recovered")
_LINED = ("started", "stage", "reordered")


def lines(records: DataFrame, timeline: Timeline) -> DataFrame:
    """Returns LINES."""
    told = records.where(F.col("event").isin(*_QUEUED, *_LINED, "green"))
    timed = line_records(timeline.corrected(told)).withColumn("window_ms", timeline.window())
    summed = timed.groupBy("cluster", "node", "window_ms").agg(
        F.max("green").alias("green"),
        _last("yellow").alias("told_yellow"),
        _last("length").alias("length"),
        F.max("length").alias("length_max"),
        F.coalesce(F.sum("greened"), F.lit(0)).alias("greened"),
    )
    known = carried(summed).withColumn("yellow", F.greatest("green", "told_yellow"))
    known = known.withColumn("length", F.greatest("length", "yellow"))
    return conform(known.withColumn("waiting", F.col("length") - F.col("green")), LINES)


def carried(summed: DataFrame) -> DataFrame:
    """Gives windows in which nothing was told of a line what was told last. The window function goes over the
    windows of one node."""
    so_far = (
        Window.partitionBy("cluster", "node")
        .orderBy("window_ms")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    last = {name: F.last(name, ignorenulls=True).over(so_far) for name in ("green", "told_yellow", "length")}
    return summed.withColumns(last)


def line_records(timed: DataFrame) -> DataFrame:
    """Returns what each record says of the lines after it: `green`, `yellow`, `length`, and how many it
    `greened`."""
    event, named = F.col("event"), F.coalesce(F.size("ids"), F.lit(0))
    end = F.col("position") + named
    is_lined = event.isin(*_LINED)
    return timed.select(
        "cluster",
        "node",
        "time_ms",
        F.when(event == "green", end).when(is_lined, F.col("green")).alias("green"),
        F.when(is_lined, F.col("yellow")).alias("yellow"),
        F.when(is_lined | event.isin(*_QUEUED), F.col("length")).alias("length"),
        F.when(event == "green", named).cast("long").alias("greened"),
    )


def _last(name: str) -> Column:
    """The last value that is not null."""
    return F.max_by(F.col(name), F.when(F.col(name).isNotNull(), F.col("time_ms")))
