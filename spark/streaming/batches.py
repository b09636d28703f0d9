"""What one batch of records adds to what is known: transformations of frames, the same for a batch of a stream as
for whole journals.

How it scales: each is one aggregation. NODE_FACTS is as small as there are nodes. ORDER and WAITING are what one
batch leaves to the next: what is not green everywhere yet, and what is not green at its sender."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.columns import conform, nodes_of, sender_of
from spark.events import message_events
from spark.percentiles import counted, summarized
from spark.schemas import CORRUPT, columns

NODE_FACTS = columns(
    cluster="string",
    node="string",
    incarnation="long",
    monotonic_ms="double",
    wall_ms="double",
    records="long",
    greened="long",
    green="long",
    yellow="long",
    length="long",
    view="string",
    members="array<string>",
    fewest="array<string>",
    stage="string",
    committed="long",
    roster="array<string>",
    lost="long",
    stopped="boolean",
)
"""What the records of a batch say of a node in the end; null where they say nothing. `monotonic_ms` and `wall_ms`
are the time of its last record, `greened` is how many messages became green, `lost` how many events its journal
lacks, `members` and `roster` are names of nodes, `fewest` are the members of the smallest view since it started,
and `stopped` is whether the node stopped in order."""

ORDER = columns(cluster="string", position="long", id="string", node="string")
"""Which message is green at a position, and a node that has said so."""

CONTRADICTIONS = columns(cluster="string", position="long", claims="array<struct<node:string,id:string>>")
"""Positions at which different messages are green, with who says which."""

WAITING = columns(
    cluster="string", node="string", incarnation="long", id="string", color="string", sent_ms="double"
)
"""Messages that are not green at the node that has sent them. `sent_ms` is by its monotonic clock."""

LAGS = columns(
    cluster="string",
    node="string",
    color="string",
    messages="long",
    mean_ms="double",
    p50_ms="double",
    p99_ms="double",
    max_ms="double",
)
"""How long messages of a node took to be green there; `color` is the one they were sent with: yellow in a primary
component, red outside of one."""

FILES = columns(cluster="string", node="string", file="string", torn="long")
"""The files of a batch, whose they are, and how many of their lines cannot be read."""

_QUEUED = ("sent", "received", "recovered")
_LINED = ("started", "stage", "reordered")


def node_facts(records: DataFrame) -> DataFrame:
    """Returns NODE_FACTS of RECORDS."""
    event = F.col("event")
    green = F.when(event == "green", F.col("position") + F.size("ids")).when(event.isin(*_LINED), F.col("green"))
    length = F.when(event.isin(*_QUEUED, *_LINED), F.col("length"))
    is_view = (event == "view") & ~F.col("reason").eqNullSafe("start")
    facts = {
        "incarnation": F.max("incarnation"),
        "monotonic_ms": F.max_by("monotonic_ms", _when()),
        "wall_ms": F.max_by("wall_ms", _when()),
        "records": F.count("*"),
        "greened": F.coalesce(F.sum(F.when(event == "green", F.size("ids"))), F.lit(0)),
        "green": F.max(green),
        "yellow": _last(F.when(event.isin(*_LINED), F.col("yellow"))),
        "length": _last(length),
        "view": _last(F.when(event == "view", F.col("view"))),
        "members": _last(F.when(event == "view", nodes_of(F.col("members")))),
        "fewest": F.min_by(nodes_of(F.col("members")), F.when(is_view, F.size("members"))),
        "stage": _last(F.when(event == "stage", F.col("stage"))),
        "committed": _last(F.when(event == "stage", F.col("committed"))),
        "roster": _last(F.when(event == "started", F.col("roster"))),
        "lost": F.coalesce(F.sum(F.when(event == "gap", F.col("count"))), F.lit(0)),
        "stopped": F.max_by(event == "stopped", _when()),
    }
    summed = records.groupBy("cluster", "node").agg(*(made.alias(name) for name, made in facts.items()))
    return conform(summed, NODE_FACTS)


def green_claims(records: DataFrame) -> DataFrame:
    """Returns ORDER, a row for each message that a record calls green."""
    events = message_events(records.where(F.col("event") == "green"))
    return events.select(*ORDER)


def compared(known: DataFrame, claims: DataFrame) -> DataFrame:
    """Returns what is known of each position together with what is new: `claims`, of which the first is kept, and
    whether they contradict each other."""
    both = known.withColumn("is_new", F.lit(False)).unionByName(claims.withColumn("is_new", F.lit(True)))
    claim = F.struct("is_new", "node", "id")
    return (
        both.groupBy("cluster", "position")
        .agg(F.array_sort(F.collect_set(claim)).alias("claims"), F.count_distinct("id").alias("ids"))
        .withColumn("is_contradicted", F.col("ids") > 1)
    )


def contradictions(compared_positions: DataFrame) -> DataFrame:
    """Returns CONTRADICTIONS."""
    pairs = F.transform("claims", lambda one: F.struct(one["node"].alias("node"), one["id"].alias("id")))
    found = compared_positions.where("is_contradicted").withColumn("claims", F.array_distinct(pairs))
    return found.select(*CONTRADICTIONS)


def kept_order(compared_positions: DataFrame, bounds: Mapping[str, int]) -> DataFrame:
    """Returns ORDER: of each position from its cluster's bound on the claim that was first."""
    kept = compared_positions.where(F.col("position") >= bound_of(F.col("cluster"), bounds))
    first = F.get("claims", F.lit(0))
    return kept.select("cluster", "position", first["id"].alias("id"), first["node"].alias("node"))


def bound_of(cluster: Column, bounds: Mapping[str, int]) -> Column:
    """The position from which on the order of a cluster is kept."""
    chosen = F.lit(0).cast("long")
    for name, bound in bounds.items():
        chosen = F.when(cluster == name, F.lit(bound).cast("long")).otherwise(chosen)
    return chosen


def waits(waiting: DataFrame, records: DataFrame) -> DataFrame:
    """Returns WAITING with `green_ms`, null for what is not green: of what was waiting, and of what the records
    say was sent."""
    events = message_events(records.where(F.col("event").isin("sent", "green")))
    own = events.where(sender_of(F.col("id")) == F.col("node"))
    is_sent = F.col("event") == "sent"
    times = own.select(
        "cluster",
        "node",
        "incarnation",
        "id",
        "color",
        F.when(is_sent, F.col("monotonic_ms")).alias("sent_ms"),
        F.when(~is_sent, F.col("monotonic_ms")).alias("green_ms"),
    )
    both = times.unionByName(waiting.withColumn("green_ms", F.lit(None).cast("double")))
    return both.groupBy("cluster", "node", "incarnation", "id").agg(
        F.max("color").alias("color"), F.min("sent_ms").alias("sent_ms"), F.min("green_ms").alias("green_ms")
    )


def lags(waited: DataFrame) -> DataFrame:
    """Returns LAGS of what has become green."""
    timed = waited.where("sent_ms is not null and green_ms is not null")
    histograms = counted(
        timed.withColumn("ms", F.col("green_ms") - F.col("sent_ms")), ["cluster", "node", "color"]
    )
    return conform(summarized(histograms, ["cluster", "node", "color"]), LAGS)


def youngest(waiting: DataFrame, share: float) -> DataFrame:
    """Returns about this share of WAITING, those that were sent last."""
    oldest = waiting.agg(F.percentile_approx("sent_ms", F.lit(1.0 - share)).alias("oldest_ms"))
    kept = waiting.join(F.broadcast(oldest), F.col("sent_ms") >= F.col("oldest_ms"))
    return conform(kept, WAITING)


def still_waiting(waited: DataFrame, incarnations: Mapping[tuple[str, str], int]) -> DataFrame:
    """Returns WAITING. What an incarnation that is over has sent becomes green in a later one, whose clock cannot
    be compared: it is not waited for."""
    waiting = waited.where("sent_ms is not null and green_ms is null")
    is_current = F.lit(False)
    for (cluster, node), incarnation in incarnations.items():
        here = (F.col("cluster") == cluster) & (F.col("node") == node)
        is_current = is_current | (here & (F.col("incarnation") == incarnation))
    return conform(waiting.where(is_current), WAITING)


def files_of(lines: DataFrame) -> DataFrame:
    """Returns FILES of the lines of journals."""
    counted_lines = lines.groupBy(F.col("of_cluster").alias("cluster"), "file").agg(
        F.max("node").alias("node"), F.count_if(F.col(CORRUPT).isNotNull()).alias("torn")
    )
    return conform(counted_lines, FILES)


def _when() -> Column:
    return F.struct("incarnation", "monotonic_ms")


def _last(value: Column) -> Column:
    """The last value that is not null."""
    return F.max_by(value, F.when(value.isNotNull(), _when()))
