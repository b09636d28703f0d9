"""The story of the group: who was with whom, which primary components there were, and how long there was none.

Needs RECORDS and a timeline. Yields `Partitions`: VIEWS and STAGES (from when to when, of each node, as its
journal tells it), COMPONENTS (the same views, of all their members together), PRIMARIES (each establishment that
was tried), OUTAGES (when no node was in a primary component), NODE_STAGES (how long each node was in each stage,
or down), and what `merges` adds: MERGES and OUTCOMES_CHANGED.

An incarnation that was killed ends with its last record. If a journal is missing, its node is only seen in the
views of others.

How it scales: the records of messages are filtered out first, but for one aggregation that finds the ends of
incarnations. What remains grows with the changes of views, not with messages; window functions go over the changes
of one incarnation, and for OUTAGES over the primary stages of one cluster."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.columns import conform, nodes_of
from spark.merges import MergeInputs, merges, outcomes_changed
from spark.schemas import columns
from spark.timeline import Timeline

VIEWS = columns(
    cluster="string",
    node="string",
    incarnation="long",
    view="string",
    members="array<string>",
    came_along="array<string>",
    reason="string",
    from_ms="double",
    until_ms="double",
    duration_ms="double",
    previous_from_ms="double",
    ended_by="string",
)
"""A view of a node. `members` are nodes; `came_along` those that come from the same view as this node. It is ended
by another `view`, by `stopped`, or because the journal of the incarnation `ends`, which was killed or still runs.
`previous_from_ms` is when the view before it began."""

COMPONENTS = columns(
    cluster="string",
    view="string",
    members="array<string>",
    told_by="array<string>",
    from_ms="double",
    until_ms="double",
    duration_ms="double",
    primary="long",
)
"""A view of all its members together, from the first to have it until the last. `primary` is the number of the
primary component that it was, null if it was none."""

STAGES = columns(
    cluster="string",
    node="string",
    incarnation="long",
    view="string",
    stage="string",
    reason="string",
    from_ms="double",
    until_ms="double",
    duration_ms="double",
)

NODE_STAGES = columns(
    cluster="string", node="string", stage="string", times="long", duration_ms="double", share="double"
)
"""How long a node was in a stage, and how often it entered it; `down` is the time between its incarnations.
`share` is of the time from the node's first to its last record."""

PRIMARIES = columns(
    cluster="string",
    number="long",
    view="string",
    members="array<string>",
    state="string",
    attempted_by="array<string>",
    committed_by="array<string>",
    established_by="array<string>",
    aborted_by="array<string>",
    reasons="array<string>",
    attempted_ms="double",
    committed_ms="double",
    established_ms="double",
    aborted_ms="double",
)
"""An establishment of a primary component: how far it got at any node (`attempted`, `committed`, `established`, or
`aborted` if none established it), when the first node did each step, and why nodes ended it without one."""

OUTAGES = columns(cluster="string", kind="string", from_ms="double", until_ms="double", duration_ms="double")
"""A time in which no node was in a primary component: at the `start` of what the journals tell, `between` two, or
at their `end`."""

_NODE = ["cluster", "node"]
_INCARNATION = [*_NODE, "incarnation"]
_PHASES = ("attempted", "committed", "established", "aborted")
_GROUP_EVENTS = (*_PHASES, "view", "stage", "stopped", "states_exchanged", "demoted")


@dataclass(frozen=True, slots=True)
class Partitions:
    """What the job yields."""

    views: DataFrame
    components: DataFrame
    stages: DataFrame
    node_stages: DataFrame
    primaries: DataFrame
    outages: DataFrame
    merges: DataFrame
    outcomes_changed: DataFrame


def partitions(records: DataFrame, timeline: Timeline) -> Partitions:
    """Tells the story of views, stages and primary components, and what each merge cost."""
    timed = timeline.corrected(records)
    lives = incarnations(timed).persist()
    group = timed.where(F.col("event").isin(*_GROUP_EVENTS)).persist()
    seen_views, seen_stages, tried = views(group, lives), stages(group, lives), primaries(group)
    inputs = MergeInputs(timed, group, seen_views)
    return Partitions(
        seen_views,
        components(seen_views, tried),
        seen_stages,
        node_stages(seen_stages, lives),
        tried,
        outages(seen_stages, lives),
        merges(inputs),
        outcomes_changed(inputs),
    )


def incarnations(timed: DataFrame) -> DataFrame:
    """Returns the first and the last record of each incarnation."""
    return timed.groupBy(*_INCARNATION).agg(
        F.min("time_ms").alias("first_ms"),
        F.max("time_ms").alias("last_ms"),
        F.max("monotonic_ms").alias("last_monotonic_ms"),
    )


def views(group: DataFrame, lives: DataFrame) -> DataFrame:
    """Returns VIEWS."""
    lasting = _lasting(group, lives, "view")
    before = Window.partitionBy(*_INCARNATION).orderBy("monotonic_ms")
    told = (
        lasting.withColumn("previous_from_ms", F.lag("from_ms").over(before))
        .withColumn("members", nodes_of(F.col("members")))
        .withColumn("came_along", nodes_of(F.col("transitional")))
    )
    return conform(told, VIEWS)


def stages(group: DataFrame, lives: DataFrame) -> DataFrame:
    """Returns STAGES."""
    return conform(_lasting(group, lives, "stage"), STAGES)


def _lasting(group: DataFrame, lives: DataFrame, event: str) -> DataFrame:
    """Returns the records of an event with how long each lasted: until the next, or the incarnation's end."""
    after = Window.partitionBy(*_INCARNATION).orderBy("monotonic_ms")
    following = (
        group.where(F.col("event").isin(event, "stopped"))
        .withColumn("next_event", F.lead("event").over(after))
        .withColumn("next_ms", F.lead("time_ms").over(after))
        .withColumn("next_monotonic_ms", F.lead("monotonic_ms").over(after))
        .where(F.col("event") == event)
        .join(lives, _INCARNATION)
    )
    until = F.coalesce("next_monotonic_ms", "last_monotonic_ms")
    return (
        following.withColumn("from_ms", F.col("time_ms"))
        .withColumn("until_ms", F.coalesce("next_ms", "last_ms"))
        .withColumn("duration_ms", until - F.col("monotonic_ms"))
        .withColumn("ended_by", F.coalesce("next_event", F.lit("ends")))
    )


def components(seen: DataFrame, tried: DataFrame) -> DataFrame:
    """Returns COMPONENTS, from VIEWS and PRIMARIES."""
    together = seen.groupBy("cluster", "view").agg(
        F.any_value("members").alias("members"),
        F.array_sort(F.collect_set("node")).alias("told_by"),
        F.min("from_ms").alias("from_ms"),
        F.max("until_ms").alias("until_ms"),
    )
    established = tried.where(F.col("state") == "established").groupBy("cluster", "view")
    numbered = together.join(established.agg(F.max("number").alias("primary")), ["cluster", "view"], "left")
    return conform(numbered.withColumn("duration_ms", F.col("until_ms") - F.col("from_ms")), COMPONENTS)


def node_stages(seen: DataFrame, lives: DataFrame) -> DataFrame:
    """Returns NODE_STAGES, from STAGES."""
    whole = lives.groupBy(*_NODE).agg(
        (F.max("last_ms") - F.min("first_ms")).alias("whole_ms"),
        F.sum(F.col("last_ms") - F.col("first_ms")).alias("up_ms"),
        (F.count("*") - 1).alias("times"),
    )
    down = whole.where(F.col("times") > 0).select(
        *_NODE,
        F.lit("down").alias("stage"),
        "times",
        F.greatest(F.col("whole_ms") - F.col("up_ms"), F.lit(0.0)).alias("duration_ms"),
    )
    up = seen.groupBy(*_NODE, "stage").agg(F.count("*").alias("times"), F.sum("duration_ms").alias("duration_ms"))
    both = up.unionByName(down).join(whole.select(*_NODE, "whole_ms"), _NODE)
    share = F.when(F.col("whole_ms") > 0, F.col("duration_ms") / F.col("whole_ms"))
    return conform(both.withColumn("share", share), NODE_STAGES)


def primaries(group: DataFrame) -> DataFrame:
    """Returns PRIMARIES."""
    steps = group.where(F.col("event").isin(*_PHASES))
    aggregates = []
    for phase in _PHASES:
        is_it = F.col("event") == phase
        aggregates += [
            F.array_sort(F.collect_set(F.when(is_it, F.col("node")))).alias(f"{phase}_by"),
            F.min(F.when(is_it, F.col("time_ms"))).alias(f"{phase}_ms"),
        ]
    reasons = F.collect_set(F.when(F.col("event") == "aborted", F.col("reason")))
    tried = steps.groupBy("cluster", "number", "view").agg(
        *aggregates,
        F.array_sort(reasons).alias("reasons"),
        nodes_of(F.any_value("members", ignoreNulls=True)).alias("members"),
    )
    state = (
        F.when(F.col("established_ms").isNotNull(), F.lit("established"))
        .when(F.col("aborted_ms").isNotNull(), F.lit("aborted"))
        .when(F.col("committed_ms").isNotNull(), F.lit("committed"))
        .otherwise(F.lit("attempted"))
    )
    return conform(tried.withColumn("state", state), PRIMARIES)


def outages(seen: DataFrame, lives: DataFrame) -> DataFrame:
    """Returns OUTAGES, from STAGES."""
    whole = lives.groupBy("cluster").agg(F.min("first_ms").alias("first_ms"), F.max("last_ms").alias("last_ms"))
    in_primary = seen.where(F.col("stage") == "primary").select("cluster", "from_ms", "until_ms")
    beginning = whole.select("cluster", F.col("first_ms").alias("from_ms"), F.col("first_ms").alias("until_ms"))
    end = whole.select("cluster", F.col("last_ms").alias("from_ms"), F.col("last_ms").alias("until_ms"))
    order = Window.partitionBy("cluster").orderBy("from_ms", "until_ms")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    gaps = (
        in_primary.unionByName(beginning)
        .unionByName(end)
        .withColumn("covered_ms", F.max("until_ms").over(earlier))
        .where(F.col("from_ms") > F.col("covered_ms"))
        .join(whole, "cluster")
    )
    kind = (
        F.when(F.col("covered_ms") <= F.col("first_ms"), F.lit("start"))
        .when(F.col("from_ms") >= F.col("last_ms"), F.lit("end"))
        .otherwise(F.lit("between"))
    )
    told = gaps.select(
        "cluster",
        kind.alias("kind"),
        F.col("covered_ms").alias("from_ms"),
        F.col("from_ms").alias("until_ms"),
        (F.col("from_ms") - F.col("covered_ms")).alias("duration_ms"),
    )
    return conform(told, OUTAGES)
