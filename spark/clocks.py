"""How the wall clocks of nodes differ, estimated from the messages that they exchange.

Needs MESSAGE_EVENTS, of which `sent` and `received` are used. The difference between the wall clock at which one
node received a message and the one at which another sent it is the time that the message took, plus the difference
of the clocks. In the other direction the difference of the clocks counts the other way. So with the least of each
direction within a window, half their difference is how far one clock is ahead of the other, and half their sum,
half a round trip, is the most by which that can be wrong: that is the rule of NTP.

Windows are those of the node's own clock, so clocks may differ by hours, and a clock that is set back or forward
costs the windows around that moment only. A window in which the least round trip is negative, because the clock
was changed in it, is not used. One without an estimate (a partition, or silence) has that of the window before it,
or else of the one after.

All clocks are compared with one reference per cluster: the node with the most neighbours, of those the one with
the most messages. Nodes that never exchange messages with it directly are compared through others, on the path of
the least error. What cannot be compared is reported as `unknown` and taken as it is; a node of which there are
messages but no records is `no_journal`.

Yields `Clocks`: NODE_CLOCKS (one row per node), CLOCK_OFFSETS (node and window), CLOCK_PAIRS (node, other node and
window).

How it scales: one pass for the spans of the nodes (aggregated before the shuffle), then one shuffle of the `sent`
and `received` events of at most `SAMPLED_MESSAGES` messages (roughly, by a hash of the id), with a window function
over the few events of one message. What comes out is of the size nodes² times windows, at most 4,096 of these, and
is kept (`persist`), because every other job needs it; the paths are found on the driver from one row per pair."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from spark.columns import conform, sender_of
from spark.schemas import columns
from spark.timeline import SECOND, WINDOWS_MAX, Timeline, width_for, window_of

CLOCK_WINDOWS_MAX = 4_096
"""Most windows per node in which its clock is estimated anew. More of them follow a drifting clock more
closely."""

CLOCK_WIDTH_MS_MIN = 10 * SECOND
"""In a shorter time there may be too few messages for one that met no queue."""

SAMPLED_MESSAGES = 1_000_000
"""About so many messages are looked at if there are more."""

CLOCK_PAIRS = columns(
    cluster="string",
    node="string",
    peer="string",
    window_ms="long",
    offset_ms="double",
    round_trip_ms="double",
    messages_to_peer="long",
    messages_from_peer="long",
)
"""How far `node`'s clock is ahead of `peer`'s, by the least delays in both directions in a window of `node`'s
clock."""

CLOCK_OFFSETS = columns(
    cluster="string",
    node="string",
    window_ms="long",
    offset_ms="double",
    error_ms="double",
    is_measured="boolean",
)
"""How far a node's clock is ahead of the reference's in a window of the node's clock. What is not measured in the
window itself is of the nearest one before it, or else after."""

NODE_CLOCKS = columns(
    cluster="string",
    node="string",
    state="string",
    reference="string",
    path="array<string>",
    offset_ms="double",
    offset_min_ms="double",
    offset_max_ms="double",
    drift_ppm="double",
    error_ms="double",
    windows_measured="long",
    windows="long",
)
"""The clock of a node: `reference`, `measured`, `unknown` or `no_journal`, and through which nodes it was
compared. `offset_ms` is the mean over the windows; `drift_ppm` how many milliseconds a million it gains (least
squares)."""


class Span(NamedTuple):
    """From when to when a node's clock is seen, and how many messages it sent."""

    cluster: str
    node: str
    first_ms: float
    last_ms: float
    sent: int


class Comparison(NamedTuple):
    """How a node's clock is compared with the reference's."""

    state: str
    reference: str | None
    path: list[str]
    """From the node to the reference, both included."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the job yields. `timeline` takes the differences out of other frames."""

    nodes: DataFrame
    offsets: DataFrame
    pairs: DataFrame
    timeline: Timeline


def clocks(events: DataFrame, windows_max: int = WINDOWS_MAX) -> Clocks:
    """Estimates the clocks from MESSAGE_EVENTS, and chooses the windows in which all results are told."""
    session = events.sparkSession
    spans = [Span(**row.asDict()) for row in node_spans(events).collect()]
    width = width_for(_longest(spans), CLOCK_WINDOWS_MAX, CLOCK_WIDTH_MS_MIN)
    pairs = clock_pairs(exchanges(events, _one_in(spans)), width).persist()
    comparisons = compared({(span.cluster, span.node): span.sent for span in spans}, _errors(pairs))
    offsets = clock_offsets(session, pairs, spans, comparisons, width).persist()
    silent = [(row.cluster, row.node) for row in senders(events).collect()]
    comparisons |= {node: Comparison("no_journal", None, []) for node in silent if node not in comparisons}
    nodes = node_clocks(session, offsets, comparisons)
    return Clocks(nodes, offsets, pairs, Timeline(offsets, width, width_for(_duration(offsets), windows_max)))


def node_spans(events: DataFrame) -> DataFrame:
    """Returns from when to when there are events of each node, by its own clock."""
    return events.groupBy("cluster", "node").agg(
        F.min("wall_ms").alias("first_ms"),
        F.max("wall_ms").alias("last_ms"),
        F.count_if(F.col("event") == "sent").alias("sent"),
    )


def senders(events: DataFrame) -> DataFrame:
    """Returns the nodes whose messages others have."""
    theirs = events.where(F.col("event").isin("received", "recovered"))
    return theirs.select("cluster", sender_of(F.col("id")).alias("node")).distinct()


def exchanges(events: DataFrame, one_in: int = 1) -> DataFrame:
    """Returns a row for each receipt of a message whose sender's record is there: `sender`, `receiver`, and the
    time by the clock of each. Of many messages, one in so many is taken."""
    steps = events.where(F.col("event").isin("sent", "received"))
    if one_in > 1:
        steps = steps.where(F.pmod(F.xxhash64("id"), F.lit(one_in)) == 0)
    of_message = Window.partitionBy("cluster", "id")
    sent = F.when(F.col("event") == "sent", F.col("wall_ms"))
    return (
        steps.select("cluster", "id", "node", "event", "wall_ms")
        .withColumn("sent_ms", F.min(sent).over(of_message))
        .where((F.col("event") == "received") & F.col("sent_ms").isNotNull())
        .select(
            "cluster",
            sender_of(F.col("id")).alias("sender"),
            F.col("node").alias("receiver"),
            "sent_ms",
            F.col("wall_ms").alias("received_ms"),
        )
    )


def clock_pairs(exchanged: DataFrame, width_ms: int) -> DataFrame:
    """Returns CLOCK_PAIRS: what each node's clock is compared with those of the nodes it exchanges messages
    with."""
    delay = F.col("received_ms") - F.col("sent_ms")
    sides = F.array(
        _side("sender", "receiver", "sent_ms", width_ms, delay, F.lit(None)),
        _side("receiver", "sender", "received_ms", width_ms, F.lit(None), delay),
    )
    least = (
        exchanged.select("cluster", F.inline(sides))
        .groupBy("cluster", "node", "peer", "window_ms")
        .agg(
            F.min("to_ms").alias("to_ms"),
            F.min("from_ms").alias("from_ms"),
            F.count("to_ms").alias("messages_to_peer"),
            F.count("from_ms").alias("messages_from_peer"),
        )
    )
    both = least.withColumn("offset_ms", (F.col("from_ms") - F.col("to_ms")) / 2).withColumn(
        "round_trip_ms", F.col("from_ms") + F.col("to_ms")
    )
    return conform(both.where(F.col("round_trip_ms") >= 0), CLOCK_PAIRS)


def _side(node: str, peer: str, clock: str, width_ms: int, to: Column, from_: Column) -> Column:
    return F.struct(
        F.col(node).alias("node"),
        F.col(peer).alias("peer"),
        window_of(F.col(clock), width_ms).alias("window_ms"),
        to.cast("double").alias("to_ms"),
        from_.cast("double").alias("from_ms"),
    )


def compared(
    sent: Mapping[tuple[str, str], int], errors: Mapping[tuple[str, str, str], float]
) -> dict[tuple[str, str], Comparison]:
    """Returns how each node is compared. `sent` says how many messages each node with a journal has sent, `errors`
    the mean error of each pair that can be compared (cluster, node, peer)."""
    found: dict[tuple[str, str], Comparison] = {}
    for cluster in sorted({cluster for cluster, _ in sent}):
        nodes = {node: count for (its, node), count in sent.items() if its == cluster}
        reach: dict[str, dict[str, float]] = {node: {} for node in nodes}
        for (its, node, peer), error in errors.items():
            if its == cluster:
                reach.setdefault(peer, {})[node] = error
                reach.setdefault(node, {})
        reference = min(nodes, key=lambda node: (-len(reach[node]), -nodes[node], node))
        paths = _shortest_paths(reference, reach)
        for node in sorted({*nodes, *reach}):
            state = "reference" if node == reference else "measured" if node in paths else "unknown"
            found[cluster, node] = Comparison(state, reference, paths.get(node, []))
    return found


def _shortest_paths(reference: str, reach: Mapping[str, Mapping[str, float]]) -> dict[str, list[str]]:
    """Returns the path of the least error from each node that there is one from (Dijkstra's algorithm)."""
    paths: dict[str, list[str]] = {}
    queue = [(0.0, [reference])]
    while queue:
        error, path = heapq.heappop(queue)
        if path[0] in paths:
            continue
        paths[path[0]] = path
        for node, more in reach[path[0]].items():
            if node not in paths:
                heapq.heappush(queue, (error + more, [node, *path]))
    return paths


def clock_offsets(
    session: SparkSession,
    pairs: DataFrame,
    spans: Iterable[Span],
    comparisons: Mapping[tuple[str, str], Comparison],
    width_ms: int,
) -> DataFrame:
    """Returns CLOCK_OFFSETS, for every window in which there is a record of a node that can be compared."""
    grid = _grid(session, spans, width_ms)
    references = _hops(session, comparisons, 0)
    known = grid.join(F.broadcast(references), ["cluster", "node"]).select(
        "cluster",
        "node",
        "window_ms",
        F.lit(0.0).alias("offset_ms"),
        F.lit(0.0).alias("error_ms"),
        F.lit(True).alias("is_measured"),
    )
    deepest = max((len(comparison.path) - 1 for comparison in comparisons.values()), default=0)
    offsets = known
    for hops in range(1, deepest + 1):
        measured = _through_parents(
            pairs.join(F.broadcast(_hops(session, comparisons, hops)), _PAIR), known, width_ms
        )
        windows = grid.join(F.broadcast(_hops(session, comparisons, hops)).drop("peer"), ["cluster", "node"])
        known = _filled(windows.join(measured, ["cluster", "node", "window_ms"], "left"))
        offsets = offsets.unionByName(known)
    return conform(offsets, CLOCK_OFFSETS)


_PAIR = ["cluster", "node", "peer"]


def _grid(session: SparkSession, spans: Iterable[Span], width_ms: int) -> DataFrame:
    """Returns all windows of each node."""
    rows = [(span.cluster, span.node, span.first_ms, span.last_ms) for span in spans]
    frame = session.createDataFrame(rows, "cluster string, node string, first_ms double, last_ms double")
    windows = F.sequence(
        window_of(F.col("first_ms"), width_ms), window_of(F.col("last_ms"), width_ms), F.lit(width_ms).cast("long")
    )
    return frame.select("cluster", "node", F.explode(windows).alias("window_ms"))


def _hops(session: SparkSession, comparisons: Mapping[tuple[str, str], Comparison], hops: int) -> DataFrame:
    """Returns the nodes that are so many steps from their reference, and the next node on the way to it."""
    rows = [
        (cluster, node, comparison.path[1] if hops else None)
        for (cluster, node), comparison in comparisons.items()
        if len(comparison.path) == hops + 1
    ]
    return session.createDataFrame(rows, "cluster string, node string, peer string")


def _through_parents(pairs: DataFrame, parents: DataFrame, width_ms: int) -> DataFrame:
    """Adds what the parent is ahead of the reference to what the node is ahead of its parent."""
    middle = F.col("window_ms") + width_ms / 2 - F.col("offset_ms")
    parent = parents.select(
        "cluster",
        F.col("node").alias("peer"),
        F.col("window_ms").alias("peer_ms"),
        F.col("offset_ms").alias("parent_ms"),
        F.col("error_ms").alias("parent_error_ms"),
    )
    joined = pairs.withColumn("peer_ms", window_of(middle, width_ms)).join(
        F.broadcast(parent), ["cluster", "peer", "peer_ms"]
    )
    return joined.select(
        "cluster",
        "node",
        "window_ms",
        (F.col("offset_ms") + F.col("parent_ms")).alias("offset_ms"),
        (F.col("round_trip_ms") / 2 + F.col("parent_error_ms")).alias("error_ms"),
    )


def _filled(windows: DataFrame) -> DataFrame:
    """Gives windows without an estimate that of the nearest window before, or else after. The window function goes
    over the windows of one node, at most `CLOCK_WINDOWS_MAX`."""
    order = Window.partitionBy("cluster", "node").orderBy("window_ms")
    before = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    after = order.rowsBetween(Window.currentRow, Window.unboundedFollowing)

    def nearest(name: str) -> Column:
        return F.coalesce(F.last(name, ignorenulls=True).over(before), F.first(name, ignorenulls=True).over(after))

    return windows.select(
        "cluster",
        "node",
        "window_ms",
        nearest("offset_ms").alias("offset_ms"),
        nearest("error_ms").alias("error_ms"),
        F.col("offset_ms").isNotNull().alias("is_measured"),
    )


def node_clocks(
    session: SparkSession, offsets: DataFrame, comparisons: Mapping[tuple[str, str], Comparison]
) -> DataFrame:
    """Returns NODE_CLOCKS."""
    rows = [(cluster, node, *comparison) for (cluster, node), comparison in comparisons.items()]
    nodes = session.createDataFrame(
        rows, "cluster string, node string, state string, reference string, path array<string>"
    )
    summed = offsets.groupBy("cluster", "node").agg(
        F.avg("offset_ms").alias("offset_ms"),
        F.min("offset_ms").alias("offset_min_ms"),
        F.max("offset_ms").alias("offset_max_ms"),
        (F.regr_slope("offset_ms", F.col("window_ms").cast("double")) * 1e6).alias("drift_ppm"),
        F.avg("error_ms").alias("error_ms"),
        F.count_if("is_measured").alias("windows_measured"),
        F.count("*").alias("windows"),
    )
    return conform(nodes.join(summed, ["cluster", "node"], "left"), NODE_CLOCKS)


def _errors(pairs: DataFrame) -> dict[tuple[str, str, str], float]:
    rows: list[Row] = pairs.groupBy("cluster", "node", "peer").agg(F.avg("round_trip_ms").alias("error")).collect()
    return {(row.cluster, row.node, row.peer): row.error / 2 for row in rows}


def _one_in(spans: Iterable[Span]) -> int:
    return max(1, sum(span.sent for span in spans) // SAMPLED_MESSAGES)


def _longest(spans: Iterable[Span]) -> float:
    return max((span.last_ms - span.first_ms for span in spans), default=0.0)


def _duration(offsets: DataFrame) -> float:
    """Returns how long the longest of the clusters is seen, by its reference's clock."""
    time = F.col("window_ms") - F.col("offset_ms")
    by_cluster = offsets.groupBy("cluster").agg((F.max(time) - F.min(time)).alias("duration_ms"))
    longest = by_cluster.agg(F.max("duration_ms").alias("duration_ms")).collect()[0].duration_ms
    return float(longest or 0.0)
