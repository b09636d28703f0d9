"""Digests: every body has the SHA-256 that its row says, every row continues the digest of the row before it, and
manifests, and earlier audits, have the digest that the order has at their line. So what two audits found, months
apart, can be compared by one number.

Needs: exports. Of a log that does not begin at 0, because its node has truncated it, the first digest is taken
from its manifest, and is compared with what other exports have there.

Scales: bodies are hashed in the one pass that sums up all rows. The chain is checked once where exports are alike,
by a window over a segment of 65,536 positions: one shuffle of about 150 bytes per position, not per node. What is
before a segment, and the lines of manifests and audits, are looked up by position in one more pass."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.audit.evidence import Evidence, export_source, rows_in
from spark.audit.findings import checked, incomplete, text, violations
from spark.schemas import columns

DIGESTS = "digests"
SEGMENT_BITS = 16

LINES = columns(cluster="string", line="long", digest="string", nodes="array<string>")
"""What an audit records: the digest of the order, in hex, at a line, and the nodes whose exports it is of."""


def wrong_bodies(logs: DataFrame, file_blocks: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: rows whose body has another hash than they say."""
    bad = file_blocks.where("bad_bodies > 0").select("cluster", "source", "block").distinct()
    rows = rows_in(logs.withColumn("source", export_source()), bad, "cluster", "source", "block")
    wrong = rows.where(F.sha2("body", 256) != _hex("body_sha256"))
    detail = text("its body in %s is not what was hashed", F.col("source"))
    return violations(wrong, DIGESTS, nodes=F.array("node"), detail=detail)


def suspicious_links(evidence: Evidence) -> DataFrame:
    """Returns the rows of exports that stand for all, and those that are not green, which do not continue the row
    before them in the same source and segment: (cluster, node, source, export, position, id, body_sha256, digest,
    is_loose). A row is loose if there is none before it, so that it has to be looked up."""
    others = evidence.logs.where("not is_final and color <> 'green'").withColumn("source", export_source())
    names = ("cluster", "node", "source", "export", "position", "id", "body_sha256", "digest")
    rows = evidence.rows.select(*names).unionByName(others.select(*names))
    segment = F.shiftright("position", SEGMENT_BITS)
    window = Window.partitionBy("cluster", "source", segment).orderBy("position")
    is_next = F.lag("position").over(window) == F.col("position") - 1
    linked = rows.withColumn("previous", F.when(is_next, F.lag("digest").over(window)))
    is_loose = F.col("previous").isNull()
    marked = linked.withColumn("is_loose", is_loose).where(is_loose | ~_continues(F.col("previous")))
    return marked.drop("previous")


def broken_links(suspicious: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of `suspicious_links`: rows that do not continue the one before them."""
    detail = text("its digest in %s does not continue that of the message before it", F.col("source"))
    return violations(suspicious.where("not is_loose"), DIGESTS, nodes=F.array("node"), detail=detail)


def digests_at(logs: DataFrame, positions: DataFrame) -> DataFrame:
    """Returns (cluster, position, export, digest) of all exports at these (cluster, position) pairs."""
    keys = ["cluster", "position"]
    wanted = F.broadcast(positions.select(*keys).distinct())
    return logs.select(*keys, "export", F.col("digest").alias("found")).join(wanted, keys, "left_semi").distinct()


def positions_before(loose: DataFrame) -> DataFrame:
    return loose.where("position > 0").select("cluster", (F.col("position") - 1).alias("position"))


def positions_of_lines(lines: DataFrame) -> DataFrame:
    return lines.where("line > 0").select("cluster", (F.col("line") - 1).alias("position"))


def broken_loose_links(loose: DataFrame, found: DataFrame, manifests: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: rows at the beginning of a segment, a file or a tail that continue no export's digest at
    the position before them. At the beginning of a log that is its manifest's."""
    firsts = manifests.where("first > 0").select(
        "cluster",
        (F.col("first") - 1).alias("position"),
        F.unhex("first_digest").alias("found"),
    )
    before = found.select("cluster", "position", "found").unionByName(firsts)
    known = before.groupBy("cluster", (F.col("position") + 1).alias("position")).agg(
        F.collect_set("found").alias("all")
    )
    joined = loose.join(F.broadcast(known), ["cluster", "position"], "left")
    start = F.unhex(F.lit("00" * 32))
    candidates = F.when(F.col("position") == 0, F.array(start)).otherwise(F.col("all"))
    wrong = joined.where(candidates.isNotNull() & ~F.exists(candidates, _continues))
    detail = text("its digest in %s continues none that any export has before it", F.col("source"))
    return violations(wrong, DIGESTS, nodes=F.array("node"), detail=detail)


def beginnings(manifests: DataFrame) -> DataFrame:
    """Returns (cluster, node, file, position, told): the digest that each log which does not begin at 0 says the
    order has before its first row, at this position."""
    return manifests.where("first > 0").select(
        "cluster", "node", "file", (F.col("first") - 1).alias("position"), F.lower("first_digest").alias("told")
    )


def wrong_beginnings(manifests: DataFrame, found: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: logs that were cut where another log has another digest. What was before the cut is
    proven by that digest, and by the rows of the other log."""
    others = found.select("cluster", "position", _hex("found").alias("theirs")).distinct()
    wrong = beginnings(manifests).join(others, ["cluster", "position"]).where(F.col("told") != F.col("theirs"))
    detail = text(
        "%s begins after the digest %s, and others have %s", F.col("file"), F.col("told"), F.col("theirs")
    )
    return violations(wrong, DIGESTS, nodes=F.array("node"), detail=detail).distinct()


def lines_of(manifests: DataFrame) -> DataFrame:
    """Returns LINES: what the manifests say of the order."""
    told = manifests.where("final > 0").groupBy(
        "cluster", F.col("final").alias("line"), F.lower("final_digest").alias("digest")
    )
    return told.agg(F.array_sort(F.collect_set("node")).alias("nodes"))


def wrong_manifests(manifests: DataFrame, found: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: manifests whose final digest is not that of their log."""
    told = manifests.where("final > 0").select(
        "cluster",
        "node",
        "export",
        "file",
        (F.col("final") - 1).alias("position"),
        F.lower("final_digest").alias("told"),
    )
    joined = told.join(found, ["cluster", "export", "position"])
    wrong = joined.where(F.col("told") != _hex("found"))
    detail = text("%s has the digest %s, its log %s", F.col("file"), F.col("told"), _hex("found"))
    return violations(wrong, DIGESTS, nodes=F.array("node"), detail=detail)


def changed_lines(earlier: DataFrame, found: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: lines of an earlier audit at which the order has another digest now."""
    told = earlier.where("line > 0").select(
        "cluster", (F.col("line") - 1).alias("position"), F.lower("digest").alias("told"), "nodes"
    )
    wrong = told.join(found, ["cluster", "position"]).where(F.col("told") != _hex("found"))
    detail = text("an earlier audit found the digest %s here, now it is %s", F.col("told"), _hex("found"))
    return violations(wrong, DIGESTS, detail=detail).distinct()


def lines_not_found(earlier: DataFrame, found: DataFrame) -> DataFrame:
    """Returns INCOMPLETE: lines of an earlier audit that no export reaches."""
    told = earlier.where("line > 0").withColumn("position", F.col("line") - 1)
    lost = told.join(found, ["cluster", "position"], "left_anti").groupBy("cluster").count()
    return incomplete(lost, DIGESTS, "lines of an earlier audit that are in no export")


def digests_checked(evidence: Evidence, earlier: DataFrame) -> list[DataFrame]:
    return [
        checked(evidence.file_blocks, DIGESTS, "rows of exports", F.col("count")),
        checked(evidence.manifests, DIGESTS, "manifests"),
        checked(earlier, DIGESTS, "lines of an earlier audit"),
    ]


def _continues(previous: Column) -> Column:
    """Returns whether a row's digest follows from the one before it."""
    hashed = F.sha2(F.concat(previous, F.col("id").cast("binary"), F.col("body_sha256")), 256)
    return F.unhex(hashed) == F.col("digest")


def _hex(name: str) -> Column:
    return F.lower(F.hex(name))
