"""What the logs say of the green order, in a form in which few rows have to be compared.

A *place* is a claim: this source has this message at this position of the green order. Sources are exported logs
(the final part, and the tail of each run) and journals (the `green` and the `applied` records of each
incarnation). Where n nodes agree, every claim is made many times. So all claims are summed up first, per source
and block of `BLOCK_POSITIONS` positions: how many, from where to where, and hashes that do not depend on the order
of rows. That takes one pass and a shuffle of a few bytes per thousand rows. Blocks in which all sources say the
same need no further comparison: what holds for the rows of one source holds for all. The rows of the others, at
the edges of logs and where something is wrong, are compared one by one.

The rows that stand for all, and those that have to be compared, are written down once with what rules need of
them (ROWS, ORDER). So a rule reads some columns of one log, however many nodes there are.

Hashes are 64 bits wide; a message is known by that of its id (`key`), and an incarnation of a node by that of its
name and number (`life`): what is grouped and joined by numbers takes half as long as by strings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.schemas import columns

BLOCK_BITS = 10
BLOCK_POSITIONS = 1 << BLOCK_BITS
"""How many positions are summed up together. Fewer mean fewer rows to compare where sources begin and end, and
more blocks."""

PLACES = columns(
    cluster="string",
    node="string",
    source="string",
    is_export="boolean",
    position="long",
    id="string",
    content="long",
    outcomes="long",
    revision="long",
)
"""`content` is a hash of what the message is (body, timestamp, view), and `outcomes` of what became of its writes;
null where the source does not say."""

BLOCKS = columns(
    cluster="string",
    node="string",
    source="string",
    is_export="boolean",
    block="long",
    count="long",
    first="long",
    last="long",
    order_hash="long",
    content_hash="long",
    outcomes_hash="long",
    revision_hash="long",
    digest_hash="long",
    bad_bodies="long",
)

_FACETS = ("order_hash", "content_hash", "outcomes_hash", "revision_hash", "digest_hash")


def block_of(position: str = "position") -> Column:
    return F.shiftright(position, BLOCK_BITS)


def key_of(message_id: Column) -> Column:
    return F.xxhash64(message_id)


def life_of() -> Column:
    return F.xxhash64("cluster", "node", "incarnation")


def moment_of() -> Column:
    """Returns the time of an event at its node in microseconds, as far as journals tell it."""
    return (F.col("monotonic_ms") * 1_000 + F.lit(0.5)).cast("long")


def sequence_of(message_id: str) -> Column:
    return F.substring_index(message_id, ".", -1).cast("long")


def stream_of(message_id: str) -> Column:
    """Returns the stream of a message id, with the point after it."""
    length = F.length(message_id) - F.length(F.substring_index(message_id, ".", -1))
    return F.col(message_id).substr(F.lit(1), length)


def export_source() -> Column:
    """Names the part of an export that a row of LOGS is of."""
    return F.when(F.col("run").isNull(), F.col("export")).otherwise(F.concat_ws("#", "export", "run"))


def journal_source() -> Column:
    """Names the part of a journal that a row of MESSAGE_EVENTS is of."""
    return F.concat_ws(" ", F.lit("journal"), "node", "incarnation", "event")


DECIDED = "array<struct<outcome:string,revision:bigint>>"

ROWS = columns(
    **PLACES,
    export="string",
    is_final="boolean",
    is_unlike="boolean",
    body_sha256="binary",
    digest="binary",
    basis_known="map<string,bigint>",
    decided=DECIDED,
)
"""Green rows of exports that are looked at one by one, with what became of their writes (`decided`)."""


def exported_rows(logs: DataFrame, chosen: DataFrame) -> DataFrame:
    """Returns ROWS of the green rows of exports in CHOSEN blocks."""
    green = logs.where(F.col("color") == "green").withColumn("source", export_source())
    decided = F.transform("writes", lambda one: F.struct(one["outcome"], one["revision"]))
    own = {
        "is_export": F.lit(True),
        "content": F.xxhash64("body_sha256", "clock", "view"),
        "outcomes": F.when(F.col("is_final"), F.xxhash64("writes")),
        "revision": F.when(F.col("is_final"), F.col("revision")),
        "decided": F.when(F.col("is_final"), decided),
    }
    rows = chosen_rows(green, chosen)
    return rows.select(*(own.get(name, F.col(name)).alias(name) for name in ROWS))


def journaled_places(events: DataFrame, chosen: DataFrame) -> DataFrame:
    """Returns PLACES, with `is_unlike`, of what MESSAGE_EVENTS say of green messages in CHOSEN blocks."""
    green = events.where(F.col("event").isin("green", "applied")).withColumn("source", journal_source())
    nothing = F.lit(None).cast("long")
    own = {"is_export": F.lit(False), "content": nothing, "outcomes": nothing}
    rows = chosen_rows(green, chosen)
    return rows.select(*(own.get(name, F.col(name)).alias(name) for name in (*PLACES, "is_unlike")))


def blocks_of_logs(logs: DataFrame) -> DataFrame:
    """Returns FILE_BLOCKS: BLOCKS of the rows of exports, for each file, and apart for green rows and others."""
    is_final, is_green = F.col("is_final"), F.col("color") == "green"
    is_bad = F.col("body").isNotNull() & (F.sha2("body", 256) != F.lower(F.hex("body_sha256")))
    keys = ("cluster", "node", "source", "file", "is_green")
    sourced = logs.withColumns({"source": export_source(), "is_green": F.coalesce(is_green, F.lit(False))})
    return sourced.groupBy(*keys, block_of().alias("block")).agg(
        *_extent(),
        F.bit_xor(F.xxhash64("position", "id")).alias("order_hash"),
        F.bit_xor(F.xxhash64("position", "body_sha256", "clock", "view")).alias("content_hash"),
        F.bit_xor(F.when(is_final, F.xxhash64("position", "writes"))).alias("outcomes_hash"),
        F.bit_xor(F.when(is_final, F.xxhash64("position", "revision"))).alias("revision_hash"),
        F.bit_xor(F.xxhash64("position", "digest")).alias("digest_hash"),
        F.count_if(is_bad).alias("bad_bodies"),
        F.count("basis_known").alias("bases"),
    )


def blocks_of_files(file_blocks: DataFrame) -> DataFrame:
    """Returns BLOCKS of the green rows that FILE_BLOCKS sum up."""
    keys = ("cluster", "node", "source", "block")
    summed = (
        file_blocks.where("is_green")
        .groupBy(*keys)
        .agg(
            F.sum("count").alias("count"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            *(F.bit_xor(name).alias(name) for name in _FACETS),
            F.sum("bad_bodies").alias("bad_bodies"),
        )
    )
    return summed.withColumn("is_export", F.lit(True)).select(*BLOCKS)


def blocks_of_events(events: DataFrame) -> DataFrame:
    """Returns BLOCKS of what MESSAGE_EVENTS say of green messages."""
    green = events.where(F.col("event").isin("green", "applied"))
    nothing = F.lit(None).cast("long")
    summed = green.groupBy("cluster", "node", "incarnation", "event", block_of().alias("block")).agg(
        *_extent(),
        F.bit_xor(F.xxhash64("position", "id")).alias("order_hash"),
        F.bit_xor(F.when(F.col("revision").isNotNull(), F.xxhash64("position", "revision"))).alias(
            "revision_hash"
        ),
    )
    own = {
        "source": journal_source(),
        "is_export": F.lit(False),
        "content_hash": nothing,
        "outcomes_hash": nothing,
        "digest_hash": nothing,
        "bad_bodies": F.lit(0).cast("long"),
    }
    return summed.select(*(own.get(name, F.col(name)).alias(name) for name in BLOCKS))


def _extent() -> tuple[Column, Column, Column]:
    return (
        F.count("*").alias("count"),
        F.min("position").alias("first"),
        F.max("position").alias("last"),
    )


def unlike_blocks(blocks: DataFrame) -> DataFrame:
    """Returns the (cluster, block) pairs in which sources differ, or one of them lacks or repeats a position."""
    is_alike = reduce(
        lambda one, other: one & other,
        [(F.min(name) == F.max(name)) | (F.count(name) == 0) for name in ("count", "first", "last", *_FACETS)],
        F.max("count") == F.max("last") - F.min("first") + 1,
    )
    return (
        blocks.groupBy("cluster", "block").agg(is_alike.alias("is_alike")).where("not is_alike").drop("is_alike")
    )


CHOSEN = columns(cluster="string", source="string", is_export="boolean", block="long", is_unlike="boolean")
"""The blocks of sources whose rows are looked at: where sources are alike, of the one that stands for all, an
export if there is one; where they are not, of all sources."""


def chosen_blocks(blocks: DataFrame, unlike: DataFrame) -> DataFrame:
    """Returns CHOSEN."""
    marked = blocks.join(unlike.withColumn("is_unlike", F.lit(True)), ["cluster", "block"], "left")
    of_block = Window.partitionBy("cluster", "block")
    is_best = F.max(F.struct("is_export", "source")).over(of_block) == F.struct("is_export", "source")
    is_unlike = F.col("is_unlike").isNotNull()
    return (
        marked.withColumn("is_best", is_best)
        .where(is_unlike | F.col("is_best"))
        .select("cluster", "source", "is_export", "block", is_unlike.alias("is_unlike"))
    )


def chosen_rows(rows: DataFrame, chosen: DataFrame) -> DataFrame:
    """Returns the rows, which have a `source`, of chosen blocks, with `is_unlike`. The table of these is small
    enough for every task to have it."""
    table = F.broadcast(chosen.select("cluster", "source", "block", "is_unlike"))
    return rows.withColumn("block", block_of()).join(table, ["cluster", "source", "block"]).drop("block")


def rows_in(rows: DataFrame, table: DataFrame, *keys: str) -> DataFrame:
    """Returns the rows whose block is in a table of blocks, which is small enough for every task to have it."""
    marked = rows.withColumn("block", block_of())
    return marked.join(F.broadcast(table.select(*keys)), list(keys), "left_semi")


ORDER = columns(cluster="string", position="long", id="string", key="long", key_before="long")
"""The green order, a row for each position. `key` is that of the id, and `key_before` that of the message before
it in its stream, null for the first. Where sources differ, it is what most nodes say, so that rules which look at
the order do not repeat what `agreement` says."""


def order_of(places: DataFrame) -> DataFrame:
    """Returns ORDER of (cluster, position, id)."""
    before = F.concat(stream_of("id"), (sequence_of("id") - 1).cast("string"))
    return places.select(
        "cluster",
        "position",
        "id",
        key_of(F.col("id")).alias("key"),
        F.when(sequence_of("id") > 1, key_of(before)).alias("key_before"),
    )


def settled_places(places: DataFrame) -> DataFrame:
    """Returns (cluster, position, id) of PLACES where sources differ: of each position, what most nodes say."""
    votes = places.groupBy("cluster", "position", "id").agg(F.count_distinct("node").alias("votes"))
    best = votes.groupBy("cluster", "position").agg(F.max(F.struct("votes", "id")).alias("best"))
    return best.select("cluster", "position", "best.id")


PLACED = columns(cluster="string", key="long", position="long", decided=DECIDED)
"""The messages of the green order, with what became of their writes, null where no export says."""


def placed_messages(rows: DataFrame, journaled: DataFrame, settled: DataFrame) -> DataFrame:
    """Returns PLACED of ROWS, of PLACES of journals, and of `settled_places`."""
    decided = F.first("decided", ignorenulls=True).alias("decided")
    names = ["cluster", "position", "id"]
    disputed = rows.where("is_unlike").groupBy(*names).agg(decided)
    parts = [
        rows.where("not is_unlike").select(*names, "decided"),
        journaled.where("not is_unlike").select(*names, F.lit(None).cast(DECIDED).alias("decided")),
        settled.join(disputed, names, "left").select(*names, "decided"),
    ]
    return reduce(DataFrame.unionByName, parts).withColumn("key", key_of(F.col("id"))).select(*PLACED)


EVENT_COUNTS = columns(cluster="string", event="string", records="long", messages="long", writes="long")
"""How many records of an event there are, how many messages they name, and how many writes they answer."""


def event_counts_of(records: DataFrame) -> DataFrame:
    """Returns EVENT_COUNTS."""
    answered = F.aggregate("counts", F.lit(0).cast("long"), lambda total, one: total + one)
    return records.groupBy("cluster", "event").agg(
        F.count("*").alias("records"),
        F.sum(F.coalesce(F.size("ids"), F.lit(0))).cast("long").alias("messages"),
        F.sum(F.when(F.col("event") == "acknowledged", answered)).alias("writes"),
    )


COVERED = columns(cluster="string", start="long", end="long")
"""The first position of a cluster's order that any source has, and the first one after it that none has."""


def covered_of(blocks: DataFrame, unlike: DataFrame, order: DataFrame) -> DataFrame:
    """Returns COVERED. There is a row for every block, so to put those of a cluster in order is little work.
    `order` is what there is of it where sources differ."""
    alike = blocks.join(unlike, ["cluster", "block"], "left_anti").groupBy("cluster", "block")
    extents = alike.agg(F.max("count").alias("count"), F.min("first").alias("first"), F.max("last").alias("last"))
    others = order.groupBy("cluster", block_of().alias("block")).agg(*_extent())
    by_block = Window.partitionBy("cluster").orderBy("block")
    joined = extents.unionByName(others).withColumn("before", F.lag("last").over(by_block))
    is_whole = F.col("count") == F.col("last") - F.col("first") + 1
    is_next = F.col("before").isNull() | (F.col("first") == F.col("before") + 1)
    broken = F.when(~is_next, F.col("before") + 1).when(~is_whole, F.col("first"))
    grouped = joined.groupBy("cluster").agg(
        F.min("first").alias("start"), F.min(broken).alias("broken"), F.max("last").alias("last")
    )
    return grouped.select("cluster", "start", F.coalesce("broken", F.col("last") + 1).alias("end"))


def settled_rows(rows: DataFrame, settled: DataFrame) -> DataFrame:
    """Returns those of ROWS that say what the order says: all where sources are alike, and where they differ those
    that have what is settled there (`settled_places`)."""
    alike, others = rows.where("not is_unlike"), rows.where("is_unlike")
    return alike.unionByName(others.join(settled, ["cluster", "position", "id"], "left_semi"))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rules look at. Frames that several of them need are kept."""

    keep: Callable[[DataFrame], DataFrame]
    """Writes a frame down for as long as the audit lasts."""
    records: DataFrame
    events: DataFrame
    answers: DataFrame
    logs: DataFrame
    told: DataFrame
    manifests: DataFrame
    files: DataFrame
    file_blocks: DataFrame
    blocks: DataFrame
    unlike: DataFrame
    rows: DataFrame
    """ROWS"""
    settled: DataFrame
    """Those of them that say what the order says."""
    unlike_places: DataFrame
    """PLACES, of exports and journals, where sources differ."""
    order: DataFrame
    placed: DataFrame
    """PLACED"""
    covered: DataFrame
    event_counts: DataFrame
    incarnations: DataFrame
    lossy: DataFrame
    """(cluster, node): whose journals are known to lack something."""
