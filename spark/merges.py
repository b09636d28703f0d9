"""What each partition cost, told at the merge that ended it.

A merge is a view whose members do not all come from the same view. It is over when its members are in the primary
component that comes of it: everything that was red is green then.

Needs RECORDS on the timeline, and VIEWS (`partitions` composes them). Yields MERGES and OUTCOMES_CHANGED.

The place of a red message when it was accepted is the end of its sender's queue; its final place is the one with
which it became yellow in the commitment of a merge, the last one if there were several. How far it moved is the
difference: messages of other components that come before it count.

How it scales: messages that were sent red, and the yellow zones of commitments, are joined by message (one shuffle
of these); all other messages are filtered out. Everything else is of the size of views times members."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.columns import conform, message_of, prefix_of
from spark.schemas import columns

MERGES = columns(
    cluster="string",
    view="string",
    primary="long",
    members="array<string>",
    components="long",
    parted_ms="double",
    merged_ms="double",
    all_green_ms="double",
    apart_ms="double",
    merge_ms="double",
    red_backlog="long",
    red_messages="long",
    moved="long",
    distance_mean="double",
    distance_max="long",
    demoted="long",
    outcomes_changed="long",
)
"""A merge: how many components came together (as far as their journals tell), when they had parted and came
together, and when the last member was in the primary component with everything green (null if there was none).
`red_backlog` is the most red messages that one member had at the merge, `red_messages` how many became green
through it in all; `moved` are those whose place changed, by `distance_mean` and at most `distance_max` positions
(absolute). `demoted` yellow messages fell back to red in it, at the member where it was most."""

OUTCOMES_CHANGED = columns(
    cluster="string", view="string", kind="string", outcome="string", prefix="string", writes="long"
)
"""How many writes met a change that their node did not know, by kind, outcome and key prefix, and in which merge
(`view`; null if no journal has the commitment)."""

_VIEW = ["cluster", "view"]


class MergeInputs(NamedTuple):
    """Frames on the timeline: all records, those of the group, and VIEWS."""

    timed: DataFrame
    group: DataFrame
    views: DataFrame


def merges(inputs: MergeInputs) -> DataFrame:
    """Returns MERGES."""
    met = outcomes_changed(inputs).groupBy(*_VIEW).agg(F.sum("writes").alias("outcomes_changed"))
    joined = (
        merged_views(inputs.views)
        .join(merge_stages(inputs.group), _VIEW, "left")
        .join(reorderings(inputs.timed), _VIEW, "left")
        .join(met, _VIEW, "left")
        .withColumn("apart_ms", F.col("merged_ms") - F.col("parted_ms"))
        .withColumn("merge_ms", F.col("all_green_ms") - F.col("merged_ms"))
        .fillna(0, ["red_messages", "moved", "demoted", "outcomes_changed"])
    )
    return conform(joined, MERGES)


def merged_views(views: DataFrame) -> DataFrame:
    """Returns the views that are merges, from VIEWS."""
    return (
        views.groupBy(*_VIEW)
        .agg(
            F.any_value("members").alias("members"),
            F.count_distinct("came_along").alias("components"),
            F.count_if(F.size("came_along") < F.size("members")).alias("joins"),
            F.min("previous_from_ms").alias("parted_ms"),
            F.min("from_ms").alias("merged_ms"),
        )
        .where(F.col("joins") > 0)
    )


def merge_stages(group: DataFrame) -> DataFrame:
    """Returns, for each view, what its members were like when it began, and when all were in a primary
    component."""
    event, stage = F.col("event"), F.col("stage")
    backlog = F.when(
        (stage == "recovering") & (F.col("reason") == "view_changed"), F.col("length") - F.col("yellow")
    )
    in_primary = F.when(stage == "primary", F.col("time_ms"))
    return (
        group.where(event.isin("stage", "established", "demoted"))
        .groupBy(*_VIEW)
        .agg(
            F.max(backlog).alias("red_backlog"),
            F.max(in_primary).alias("all_green_ms"),
            F.max(F.when(event == "established", F.col("number"))).alias("primary"),
            F.max(F.when(event == "demoted", F.col("count"))).alias("demoted"),
        )
    )


def reorderings(timed: DataFrame) -> DataFrame:
    """Returns, for each view, the red messages that became yellow in it, and how far they moved."""
    final = final_places(timed)
    moved = (
        accepted_places(timed)
        .join(final, ["cluster", "id"])
        .withColumn("distance", F.abs(F.col("position") - F.col("place")))
    )
    return moved.groupBy(*_VIEW).agg(
        F.count("*").alias("red_messages"),
        F.count_if(F.col("distance") != 0).alias("moved"),
        F.avg("distance").alias("distance_mean"),
        F.max("distance").alias("distance_max"),
    )


def accepted_places(timed: DataFrame) -> DataFrame:
    """Returns the messages that were sent red, each with its place at the end of its sender's queue."""
    red = timed.where((F.col("event") == "sent") & (F.col("color") == "red"))
    spread = red.select("cluster", "length", F.size("ids").alias("of"), F.posexplode("ids").alias("index", "id"))
    return spread.select("cluster", "id", (F.col("length") - F.col("of") + F.col("index")).alias("place"))


def final_places(timed: DataFrame) -> DataFrame:
    """Returns the messages of all yellow zones, each with the last place it had in one, and its view."""
    zones = timed.where(F.col("event") == "yellow")
    spread = zones.select("cluster", "view", "time_ms", "position", F.posexplode("ids").alias("index", "id"))
    return spread.groupBy("cluster", "id").agg(
        F.max_by("view", "time_ms").alias("view"),
        F.max_by(F.col("position") + F.col("index"), "time_ms").alias("position"),
    )


def outcomes_changed(inputs: MergeInputs) -> DataFrame:
    """Returns OUTCOMES_CHANGED. Every node that applies a write tells of it, and it is counted once."""
    told = inputs.timed.where(F.col("event") == "outcome_changed")
    once = told.select("cluster", "write", "kind", "outcome", "key").distinct()
    places = final_places(inputs.timed).select("cluster", "id", "view")
    in_view = once.withColumn("id", message_of(F.col("write"))).join(places, ["cluster", "id"], "left")
    counts = in_view.withColumn("prefix", prefix_of(F.col("key"))).groupBy(
        "cluster", "view", "kind", "outcome", "prefix"
    )
    return conform(counts.agg(F.count_distinct("write").alias("writes")), OUTCOMES_CHANGED)
