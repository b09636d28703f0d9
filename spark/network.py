"""What came over each link, what was lost, and what flow control held back.

Needs RECORDS and a timeline. Yields `Network`: LINKS and LINK_WINDOWS (from one node to another, in all and over
time), RETRANSMISSIONS (who sent again whose packets), BLOCKED (how long a node's messages were held back, and
why), STUCK (who was waited for), DROPPED (what broke a rule).

The transport counts per link and writes what it counted every ten seconds, so a node that was killed has not told
of its last ten seconds, and what is told in a window may have come up to ten seconds before it. Loss is an
estimate: a packet that came as a retransmission and was not here yet was lost on its first way.

How it scales: the records of messages are filtered out first; the rest grows with time and with what is unusual on
the network. One aggregation, made before the shuffle, per result. The time between two records of flow control
comes from a window function over one hour of one incarnation."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.columns import conform, node_of
from spark.schemas import Columns, columns
from spark.timeline import SECOND, Timeline, window_of

COUNTED_MS = 10 * SECOND
"""How long the transport counts what comes over a link before it tells."""

_COUNTS = columns(
    packets="long",
    bytes="long",
    retransmissions="long",
    duplicates="long",
    requested_units="long",
    repeated_units="long",
    nacks="long",
    nacked_units="long",
    renacked_units="long",
    dropped="long",
    lost_packets="long",
    loss="double",
)

LINKS = Columns({"cluster": "string", "sender": "string", "receiver": "string", **_COUNTS})
"""What a node received from another: packets (retransmissions by it included), what the receiver asked for again,
and what it dropped. `requested_units` and `repeated_units` are as the link was counted, `nacked_units` and
`renacked_units` as each request was told: they differ by what was not yet counted at the end. `loss` is the share
of packets that did not arrive the first time."""

LINK_WINDOWS = Columns(
    {"cluster": "string", "sender": "string", "receiver": "string", "window_ms": "long", **_COUNTS}
)
"""The same over time. Windows are at least as long as the transport counts before it tells, `COUNTED_MS`."""

RETRANSMISSIONS = columns(
    cluster="string", node="string", origin="string", window_ms="long", packets="long", bytes="long"
)
"""Packets of `origin` that `node` sent again."""

BLOCKED = columns(
    cluster="string", node="string", reason="string", window_ms="long", times="long", blocked_ms="double"
)
"""How long flow control held back a node's messages within a window, and how often that began in it."""

STUCK = columns(cluster="string", node="string", laggard="string", reason="string", window_ms="long", times="long")

DROPPED = columns(
    cluster="string", sender="string", receiver="string", reason="string", window_ms="long", datagrams="long"
)

_LINK_EVENTS = ("links", "nacked", "dropped")
_COUNTED = ("packets", "bytes", "retransmissions", "duplicates", "requested_units", "repeated_units")
_HOUR = 3_600 * SECOND
_INCARNATION = ["cluster", "node", "incarnation"]


@dataclass(frozen=True, slots=True)
class Network:
    """What the job yields."""

    links: DataFrame
    link_windows: DataFrame
    retransmissions: DataFrame
    blocked: DataFrame
    stuck: DataFrame
    dropped: DataFrame


def network(records: DataFrame, timeline: Timeline) -> Network:
    """Sums up what the transport has told."""
    events = (*_LINK_EVENTS, "retransmitted", "blocked", "unblocked", "stopped", "stuck")
    unusual = timeline.corrected(records.where(F.col("event").isin(*events)))
    timed = unusual.withColumn("window_ms", timeline.window()).persist()
    return Network(
        links(timed),
        link_windows(timed, max(timeline.width_ms, COUNTED_MS)),
        retransmissions(timed),
        blocked(timed, timeline.width_ms),
        stuck(timed),
        dropped(timed),
    )


def links(timed: DataFrame) -> DataFrame:
    """Returns LINKS."""
    return conform(_summed_links(timed, ["cluster", "sender", "receiver"]), LINKS)


def link_windows(timed: DataFrame, width_ms: int) -> DataFrame:
    """Returns LINK_WINDOWS, in windows of this width."""
    wide = timed.withColumn("window_ms", window_of(F.col("time_ms"), width_ms))
    return conform(_summed_links(wide, ["cluster", "sender", "receiver", "window_ms"]), LINK_WINDOWS)


def _summed_links(timed: DataFrame, keys: list[str]) -> DataFrame:
    event, units = F.col("event"), F.aggregate("counts", F.lit(0).cast("long"), lambda total, one: total + one)
    is_new = F.col("reason") == "new"
    named = timed.where(event.isin(*_LINK_EVENTS) & F.col("machine").isNotNull())
    summed = (
        named.withColumn("sender", node_of(F.col("machine")))
        .withColumn("receiver", F.col("node"))
        .groupBy(*keys)
        .agg(
            *(_sum_where(event == "links", F.col(name)).alias(name) for name in _COUNTED),
            F.count_if(event == "nacked").alias("nacks"),
            _sum_where((event == "nacked") & is_new, units).alias("nacked_units"),
            _sum_where((event == "nacked") & ~is_new, units).alias("renacked_units"),
            _sum_where(event == "dropped", F.coalesce("count", F.lit(1))).alias("dropped"),
        )
    )
    originals = F.col("packets") - F.col("retransmissions")
    lost = F.greatest(F.col("retransmissions") - F.col("duplicates"), F.lit(0))
    return summed.withColumn("lost_packets", lost).withColumn(
        "loss",
        F.when(originals + F.col("lost_packets") > 0, F.col("lost_packets") / (originals + F.col("lost_packets"))),
    )


def _sum_where(condition: Column, value: Column) -> Column:
    return F.coalesce(F.sum(F.when(condition, value)), F.lit(0))


def retransmissions(timed: DataFrame) -> DataFrame:
    """Returns RETRANSMISSIONS."""
    again = timed.where(F.col("event") == "retransmitted").withColumn("origin", node_of(F.col("machine")))
    summed = again.groupBy("cluster", "node", "origin", "window_ms").agg(
        F.count("*").alias("packets"), F.sum("bytes").alias("bytes")
    )
    return conform(summed, RETRANSMISSIONS)


def blocked(timed: DataFrame, width_ms: int) -> DataFrame:
    """Returns BLOCKED. A time that reaches over several windows is divided among them."""
    held = _held_back(timed).withColumn("until_ms", F.col("time_ms") + F.col("held_ms"))
    windows = F.sequence(F.col("window_ms"), window_of(F.col("until_ms"), width_ms), F.lit(width_ms).cast("long"))
    spread = held.withColumn("began_ms", F.col("window_ms")).withColumn("window_ms", F.explode(windows))
    within = F.least("until_ms", F.col("window_ms") + F.lit(width_ms)) - F.greatest("time_ms", "window_ms")
    summed = spread.groupBy("cluster", "node", "reason", "window_ms").agg(
        F.count_if(F.col("began_ms") == F.col("window_ms")).alias("times"),
        F.sum(within).alias("blocked_ms"),
    )
    return conform(summed, BLOCKED)


def _held_back(timed: DataFrame) -> DataFrame:
    """Returns the records of `blocked` with how long each was in force: until the next record of flow control. The
    next one of another hour is that hour's first. One that nothing follows (the process was killed) is left
    out."""
    order, hour = Window.partitionBy(*_INCARNATION, "hour").orderBy("monotonic_ms"), [*_INCARNATION, "hour"]
    flow = timed.where(F.col("event").isin("blocked", "unblocked", "stopped")).withColumn(
        "hour", F.floor(F.col("monotonic_ms") / _HOUR)
    )
    firsts = flow.groupBy(*hour).agg(F.min("monotonic_ms").alias("first_ms"))
    hours = Window.partitionBy(*_INCARNATION).orderBy("hour")
    following = firsts.select(*hour, F.lead("first_ms").over(hours).alias("later_ms"))
    ended = F.coalesce(F.lead("monotonic_ms").over(order), F.col("later_ms"))
    held = flow.join(following, hour).withColumn("held_ms", ended - F.col("monotonic_ms"))
    return held.where((F.col("event") == "blocked") & F.col("held_ms").isNotNull())


def stuck(timed: DataFrame) -> DataFrame:
    """Returns STUCK."""
    laggards = F.explode(F.transform("machines", node_of))
    waits = timed.where(F.col("event") == "stuck").withColumn("laggard", laggards)
    summed = waits.groupBy("cluster", "node", "laggard", "reason", "window_ms").agg(F.count("*").alias("times"))
    return conform(summed, STUCK)


def dropped(timed: DataFrame) -> DataFrame:
    """Returns DROPPED."""
    broken = timed.where(F.col("event") == "dropped").select(
        "cluster",
        node_of(F.col("machine")).alias("sender"),
        F.col("node").alias("receiver"),
        "reason",
        "window_ms",
        F.coalesce("count", F.lit(1)).alias("count"),
    )
    summed = broken.groupBy("cluster", "sender", "receiver", "reason", "window_ms")
    return conform(summed.agg(F.sum("count").alias("datagrams")), DROPPED)
