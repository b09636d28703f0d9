"""Every exported log has every position once, as its manifests and the names of its files say: no message is
missing from it, and no file is damaged.

Needs: exports. A file that cannot be read to its end was changed after it was written.

Scales: works on blocks. Rows are looked at only in blocks that have too few or too many."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.audit.evidence import BLOCK_BITS, Evidence, block_of, export_source, rows_in
from spark.audit.findings import checked, text, violations

MISSING = "missing_messages"
DAMAGED = "damaged_files"

_IN_NAME = r"part-(\d+)-(\d+)\.parquet$"


def damaged_files(files: DataFrame, file_blocks: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: files of final rows that have fewer rows, or more, than their names say."""
    named = files.where("is_final").select(
        "cluster",
        "node",
        "file",
        F.regexp_extract("file", _IN_NAME, 1).cast("long").alias("first"),
        F.regexp_extract("file", _IN_NAME, 2).cast("long").alias("last"),
    )
    counts = file_blocks.groupBy("cluster", "file").agg(F.sum("count").alias("found"))
    joined = named.join(counts, ["cluster", "file"], "left").withColumn("found", F.coalesce("found", F.lit(0)))
    expected = F.col("last") - F.col("first") + 1
    wrong = joined.where(F.col("found") != expected)
    detail = text("%s has %d rows that can be read, of %d", F.col("file"), F.col("found"), expected)
    return violations(wrong, DAMAGED, position=F.col("first"), nodes=F.array("node"), detail=detail)


def expected_extents(manifests: DataFrame) -> DataFrame:
    """Returns (cluster, node, source, start, end) for the final part of each export, as its last manifest has it,
    and for the tail of each run."""
    final = manifests.groupBy("cluster", "node", F.col("export").alias("source")).agg(
        F.min("first").alias("start"), F.max("final").alias("end")
    )
    tail = manifests.select(
        "cluster",
        "node",
        F.concat_ws("#", "export", "number").alias("source"),
        F.col("final").alias("start"),
        F.col("length").alias("end"),
    )
    return final.unionByName(tail).where(F.col("end") > F.col("start"))


def wrong_blocks(extents: DataFrame, file_blocks: DataFrame) -> DataFrame:
    """Returns the blocks of exports that have fewer rows, or more, than they should: (cluster, node, source,
    block, start, end)."""
    spread = extents.withColumn(
        "block", F.explode(F.sequence(block_of("start"), F.shiftright(F.col("end") - 1, BLOCK_BITS)))
    )
    start = F.greatest(F.col("start"), F.shiftleft("block", BLOCK_BITS))
    end = F.least(F.col("end"), F.shiftleft(F.col("block") + 1, BLOCK_BITS))
    keys = ["cluster", "source", "block"]
    counts = file_blocks.groupBy(*keys).agg(F.sum("count").alias("found"))
    joined = spread.select("cluster", "node", "source", "block", start.alias("start"), end.alias("end"))
    found = F.coalesce("found", F.lit(0))
    return joined.join(counts, keys, "left").where(found != F.col("end") - F.col("start")).drop("found")


def missing_messages(wrong: DataFrame, logs: DataFrame, order: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of the positions that `wrong` blocks lack or repeat. The id of a missing message is known
    if another source has it."""
    rows = rows_in(logs.withColumn("source", export_source()), wrong, "cluster", "source", "block")
    counts = rows.groupBy("cluster", "source", "position").agg(F.count("*").alias("found"))
    positions = F.explode(F.sequence(F.col("start"), F.col("end") - 1)).alias("position")
    expected = wrong.select("cluster", "node", "source", positions)
    joined = expected.join(counts, ["cluster", "source", "position"], "left")
    found = F.coalesce("found", F.lit(0))
    bad = joined.where(found != 1).join(order.select("cluster", "position", "id"), ["cluster", "position"], "left")
    detail = F.when(found == 0, text("%s lacks it", F.col("source"))).otherwise(
        text("%s has %d rows of it", F.col("source"), found)
    )
    return violations(bad, MISSING, nodes=F.array("node"), detail=detail).distinct()


def positions_checked(evidence: Evidence, extents: DataFrame) -> list[DataFrame]:
    return [
        checked(extents, MISSING, "positions of exports", F.col("end") - F.col("start")),
        checked(evidence.files.where("is_final"), DAMAGED, "files"),
    ]
