"""What clients asked for: hot keys, sizes, rates, the mix of operations, conflicts and repeats.

Needs LOGS for what only the log has (keys, operations, values, outcomes of writes): the longest export of each
cluster is taken, with what was not final then. Needs MESSAGE_EVENTS, ANSWERS and a timeline for what the journals
tell without an export. `source` says in RATES and OUTCOMES which of the two it is from, `log` or `journal`; they
need not cover the same time. Yields `Workload`.

Hot keys are exact: every operation is counted. A transaction is a write of several operations. Operations are
those that a write does if its conditions hold, whatever became of it: exports do not say which writes did their
`otherwise`.

How it scales: one shuffle of operations by key, counted before it, for hot keys; the most of each of 64 groups of
keys are found first, so no task sorts all of them. The other results are aggregated before their shuffle, to nodes
times prefixes, sizes or windows. If keys have as many first segments as there are keys, so have MIX and CONFLICTS
rows: prefixes beyond `PREFIXES_MAX` are counted together."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from spark.columns import conform, prefix_of, sender_of, size_name, size_rank
from spark.schemas import columns
from spark.timeline import Timeline

HOT_KEYS = 50
"""How many of the most used keys are told, per cluster."""

PREFIXES_MAX = 200
"""Most prefixes that are told apart, per cluster; what is left is under `OTHERS`."""

OTHERS = "(others)"

KEYS = columns(
    cluster="string",
    rank="int",
    key="string",
    prefix="string",
    operations="long",
    share="double",
    value_bytes="long",
    senders="long",
)
"""The keys with the most operations, exactly counted. `share` is of all operations; `senders` how many nodes took
them."""

SIZES = columns(
    cluster="string", what="string", size="string", rank="long", count="long", bytes="long", largest="long"
)
"""How many values (`value`) and messages (`message`, of many writes) there are of each size."""

RATES = columns(
    cluster="string",
    source="string",
    node="string",
    window_ms="long",
    messages="long",
    writes="long",
    operations="long",
    bytes="long",
    per_second="double",
)
"""What each node sent within a window: messages, writes, operations (null from journals), bytes of bodies, and
writes a second."""

MIX = columns(
    cluster="string", node="string", prefix="string", kind="string", operations="long", value_bytes="long"
)
"""Operations by kind, the node that took them, and key prefix."""

WRITES = columns(
    cluster="string",
    node="string",
    writes="long",
    transactions="long",
    conditional="long",
    with_otherwise="long",
    keep_green="long",
    idempotent="long",
    operations="long",
    messages="long",
)
"""What sort of writes each node took: with several operations, with conditions, with an `otherwise`, with a merge
policy other than the default, with an idempotency key."""

CONFLICTS = columns(
    cluster="string",
    node="string",
    prefix="string",
    writes="long",
    applied="long",
    rejected="long",
    yielded="long",
    expired="long",
    duplicate="long",
    undecided="long",
    changed_by_merge="long",
    conflict_rate="double",
)
"""What became of writes, by node and by the prefix of their first key: `duplicate` are repeats of an idempotency
key, `undecided` is not green yet. `changed_by_merge` is how many met a change that their node did not know (from
journals). `conflict_rate` is the share of decided writes that were rejected or yielded."""

OUTCOMES = columns(cluster="string", source="string", node="string", outcome="string", writes="long")
"""What became of writes, from the log, and what clients were told, from the journals."""

_GROUPS = 64
_MESSAGE = ["cluster", "id", "sender", "window_ms"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What the job yields."""

    keys: DataFrame
    sizes: DataFrame
    rates: DataFrame
    mix: DataFrame
    writes: DataFrame
    conflicts: DataFrame
    outcomes: DataFrame


def workload(
    logs: DataFrame, records: DataFrame, events: DataFrame, answers: DataFrame, timeline: Timeline
) -> Workload:
    """Sums up what clients asked for, and what became of it."""
    log = longest_logs(logs)
    asked = writes_of(log, timeline).persist()
    done = operations_of(asked)
    return Workload(
        hot_keys(done),
        sizes(done, log),
        log_rates(asked, log, timeline).unionByName(journal_rates(events, timeline)),
        mix(done),
        kinds_of_writes(asked),
        conflicts(asked, records),
        log_outcomes(asked).unionByName(told_outcomes(answers)),
    )


def longest_logs(logs: DataFrame) -> DataFrame:
    """Returns the messages of the longest export of each cluster: those that are final, and after them those that
    were not when it was made last."""
    exports = logs.groupBy("cluster", "node", "export").agg(
        F.max("position").alias("last"), F.max("run").alias("last_run")
    )
    order = Window.partitionBy("cluster").orderBy(F.desc("last"), "node", "export")
    longest = exports.withColumn("rank", F.row_number().over(order)).where(F.col("rank") == 1)
    mine = logs.join(F.broadcast(longest), ["cluster", "node", "export"])
    return mine.where(F.col("is_final") | (F.col("run") == F.col("last_run"))).drop("rank", "last", "last_run")


def writes_of(log: DataFrame, timeline: Timeline) -> DataFrame:
    """Returns a row for each write of these messages. The window is that in which its node took it, by the node's
    corrected clock."""
    at = log.select(
        "cluster", "id", F.col("sender").alias("node"), F.col("accepted_ms").alias("wall_ms"), "writes"
    )
    timed = timeline.corrected(at).withColumn("window_ms", timeline.window()).withColumnRenamed("node", "sender")
    return timed.select(*_MESSAGE, F.posexplode("writes").alias("index", "write")).select(
        *_MESSAGE, "index", "write.*"
    )


def operations_of(asked: DataFrame) -> DataFrame:
    """Returns a row for each operation of these writes."""
    return asked.select(*_MESSAGE, F.inline("operations")).withColumn("prefix", prefix_of(F.col("key")))


def hot_keys(done: DataFrame, most: int = HOT_KEYS) -> DataFrame:
    """Returns KEYS, from operations."""
    counted = done.groupBy("cluster", "key").agg(
        F.count("*").alias("operations"),
        F.sum(F.coalesce("value_bytes", F.lit(0))).alias("value_bytes"),
        F.count_distinct("sender").alias("senders"),
    )
    totals = done.groupBy("cluster").agg(F.count("*").alias("total"))
    by_use = [F.desc("operations"), F.asc("key")]
    group = F.pmod(F.xxhash64("key"), F.lit(_GROUPS))
    best = _first(
        counted.withColumn("group", group), Window.partitionBy("cluster", "group").orderBy(*by_use), most
    )
    ranked = _first(best, Window.partitionBy("cluster").orderBy(*by_use), most).join(
        F.broadcast(totals), "cluster"
    )
    told = ranked.withColumn("prefix", prefix_of(F.col("key"))).withColumn(
        "share", F.col("operations") / F.col("total")
    )
    return conform(told, KEYS)


def _first(frame: DataFrame, order: WindowSpec, most: int) -> DataFrame:
    return frame.withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= most)


def sizes(done: DataFrame, log: DataFrame) -> DataFrame:
    """Returns SIZES, from operations and messages."""
    values = done.where("value_bytes is not null").select(
        "cluster", F.lit("value").alias("what"), F.col("value_bytes").alias("bytes")
    )
    messages = log.select("cluster", F.lit("message").alias("what"), F.col("body_bytes").alias("bytes"))
    summed = (
        values.unionByName(messages)
        .withColumn("rank", size_rank(F.col("bytes")))
        .groupBy("cluster", "what", "rank")
        .agg(F.count("*").alias("count"), F.sum("bytes").alias("bytes"), F.max("bytes").alias("largest"))
    )
    return conform(summed.withColumn("size", size_name(F.col("rank"))), SIZES)


def log_rates(asked: DataFrame, log: DataFrame, timeline: Timeline) -> DataFrame:
    """Returns RATES of the log."""
    counted = asked.groupBy("cluster", F.col("sender").alias("node"), "window_ms").agg(
        F.count_if(F.col("index") == 0).alias("messages"),
        F.count("*").alias("writes"),
        F.sum(F.size("operations")).alias("operations"),
    )
    at = log.select("cluster", F.col("sender").alias("node"), F.col("accepted_ms").alias("wall_ms"), "body_bytes")
    bodies = (
        timeline.corrected(at.where("wall_ms is not null"))
        .withColumn("window_ms", timeline.window())
        .groupBy("cluster", "node", "window_ms")
        .agg(F.sum("body_bytes").alias("bytes"))
    )
    return _rates(counted.join(bodies, ["cluster", "node", "window_ms"], "left"), "log", timeline)


def journal_rates(events: DataFrame, timeline: Timeline) -> DataFrame:
    """Returns RATES of the journals: what nodes have sent, and the writes of their own messages that they
    applied."""
    event = F.col("event")
    own = events.where(event.isin("sent", "applied") & (sender_of(F.col("id")) == F.col("node")))
    counted = (
        timeline.corrected(own)
        .groupBy("cluster", "node", timeline.window().alias("window_ms"))
        .agg(
            F.count_if(event == "sent").alias("messages"),
            F.coalesce(F.sum(F.when(event == "applied", F.col("writes"))), F.lit(0)).alias("writes"),
            F.lit(None).alias("operations"),
            F.coalesce(F.sum(F.when(event == "sent", F.col("bytes"))), F.lit(0)).alias("bytes"),
        )
    )
    return _rates(counted, "journal", timeline)


def _rates(counted: DataFrame, source: str, timeline: Timeline) -> DataFrame:
    per_second = F.col("writes") * 1_000 / timeline.width_ms
    return conform(counted.withColumn("source", F.lit(source)).withColumn("per_second", per_second), RATES)


def mix(done: DataFrame) -> DataFrame:
    """Returns MIX, from operations."""
    summed = _few_prefixes(done).groupBy("cluster", F.col("sender").alias("node"), "prefix", "kind")
    return conform(
        summed.agg(
            F.count("*").alias("operations"), F.sum(F.coalesce("value_bytes", F.lit(0))).alias("value_bytes")
        ),
        MIX,
    )


def _few_prefixes(frame: DataFrame) -> DataFrame:
    """Counts all prefixes but the most used ones as `OTHERS`."""
    counted = frame.groupBy("cluster", "prefix").agg(F.count("*").alias("uses"))
    by_use = [F.desc("uses"), F.asc("prefix")]
    group = F.pmod(F.xxhash64("prefix"), F.lit(_GROUPS))
    best = _first(
        counted.withColumn("group", group), Window.partitionBy("cluster", "group").orderBy(*by_use), PREFIXES_MAX
    )
    kept = _first(best, Window.partitionBy("cluster").orderBy(*by_use), PREFIXES_MAX)
    names = F.broadcast(kept.select("cluster", "prefix", F.lit(True).alias("is_kept")))
    joined = frame.join(names, ["cluster", "prefix"], "left")
    return joined.withColumn("prefix", F.when(F.col("is_kept"), F.col("prefix")).otherwise(F.lit(OTHERS))).drop(
        "is_kept"
    )


def kinds_of_writes(asked: DataFrame) -> DataFrame:
    """Returns WRITES."""
    summed = asked.groupBy("cluster", F.col("sender").alias("node")).agg(
        F.count("*").alias("writes"),
        F.count_if(F.size("operations") > 1).alias("transactions"),
        F.count_if(F.col("conditions") > 0).alias("conditional"),
        F.count_if(F.size("otherwise") > 0).alias("with_otherwise"),
        F.count_if(F.col("merge") == "keep_green").alias("keep_green"),
        F.count("idempotency_key").alias("idempotent"),
        F.sum(F.size("operations")).alias("operations"),
        F.count_if(F.col("index") == 0).alias("messages"),
    )
    return conform(summed, WRITES)


def conflicts(asked: DataFrame, records: DataFrame) -> DataFrame:
    """Returns CONFLICTS, from writes and what journals tell of merges."""
    met = records.where(F.col("event") == "outcome_changed").select("cluster", "write").distinct()
    first_key = F.coalesce(F.get("operations", F.lit(0))["key"], F.get("otherwise", F.lit(0))["key"], F.lit(""))
    named = asked.select(
        "cluster",
        F.col("sender").alias("node"),
        prefix_of(first_key).alias("prefix"),
        "outcome",
        F.concat_ws(".", "id", "index").alias("write"),
    )
    joined = _few_prefixes(named).join(met.withColumn("is_met", F.lit(True)), ["cluster", "write"], "left")
    summed = joined.groupBy("cluster", "node", "prefix").agg(
        F.count("*").alias("writes"),
        *(
            F.count_if(F.col("outcome") == outcome).alias(outcome)
            for outcome in ("applied", "rejected", "yielded", "expired", "duplicate")
        ),
        F.count_if(F.col("outcome").isNull()).alias("undecided"),
        F.count("is_met").alias("changed_by_merge"),
    )
    return conform(summed.withColumn("conflict_rate", _conflict_rate()), CONFLICTS)


def _conflict_rate() -> Column:
    decided = F.col("writes") - F.col("undecided")
    return F.when(decided > 0, (F.col("rejected") + F.col("yielded")) / decided)


def log_outcomes(asked: DataFrame) -> DataFrame:
    """Returns OUTCOMES of the log."""
    outcome = F.coalesce("outcome", F.lit("undecided")).alias("outcome")
    summed = asked.groupBy("cluster", F.col("sender").alias("node"), outcome).agg(F.count("*").alias("writes"))
    return conform(summed.withColumn("source", F.lit("log")), OUTCOMES)


def told_outcomes(answers: DataFrame) -> DataFrame:
    """Returns OUTCOMES of the journals. A client that was told `pending` and asks again is not told here."""
    summed = answers.groupBy("cluster", "node", "outcome").agg(F.sum("count").alias("writes"))
    return conform(summed.withColumn("source", F.lit("journal")), OUTCOMES)
