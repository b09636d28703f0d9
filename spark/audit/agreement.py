"""Agreed Green and No Changes in Green: every position of the green order has one message, with one content, at
all nodes, in all exports and in all incarnations' journals. Revisions and outcomes: what became of a message is
the same everywhere.

Needs: exports and journals, as far as there are any; one source alone proves nothing.

Scales: blocks in which all sources say the same are not looked at again. Of the others all rows are grouped by
position: one shuffle of about a hundred bytes per row. If one node lacks a message in the middle, that is
everything after it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.audit.findings import checked, text, violations

AGREED_GREEN = "agreed_green"
NO_CHANGES = "no_changes_in_green"
REVISIONS = "revisions"


def disagreements(places: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of PLACES where sources differ: positions with more than one message, or one message with
    more than one content, outcome or revision."""
    claims = F.collect_set(F.struct("node", "id", "content", "outcomes", "revision")).alias("claims")
    differ = [_differ(name) for name in ("id", "content", "outcomes", "revision")]
    grouped = places.groupBy("cluster", "position").agg(F.min("id").alias("id"), claims, *differ)
    return _of_ids(grouped).unionByName(_of_outcomes(grouped))


def _of_ids(grouped: DataFrame) -> DataFrame:
    """A node that contradicts itself has changed what was green; nodes that contradict each other disagree."""
    wrong = grouped.where("differ_id or differ_content")
    said = F.array_distinct(F.transform("claims", lambda one: F.struct(one["node"], one["id"], one["content"])))
    told = F.filter(said, lambda one: one["content"].isNotNull() | F.col("differ_id"))
    nodes = F.array_distinct(F.transform(told, lambda one: one["node"]))
    ids = F.array_sort(
        F.array_distinct(F.transform(said, lambda one: F.concat_ws(" has ", one["node"], one["id"])))
    )
    own_ids = F.array_distinct(F.transform(told, lambda one: F.struct(one["node"], one["id"])))
    changed = F.when(F.col("differ_id"), F.size(own_ids) > F.size(nodes)).otherwise(F.size(told) > F.size(nodes))
    detail = F.when(F.col("differ_id"), F.concat_ws(", ", ids)).otherwise(
        text("%s has another body, timestamp or view at different nodes or times", F.col("id"))
    )
    rule = F.when(changed, NO_CHANGES).otherwise(AGREED_GREEN)
    return violations(wrong, rule, nodes=F.array_sort(nodes), detail=detail)


def _of_outcomes(grouped: DataFrame) -> DataFrame:
    wrong = grouped.where("not differ_id and (differ_outcomes or differ_revision)")
    told = F.filter("claims", lambda one: one["revision"].isNotNull())
    said = F.transform(told, lambda one: F.concat_ws(" says ", one["node"], one["revision"].cast("string")))
    detail = F.when(
        F.col("differ_revision"),
        F.concat(
            F.lit("the revision after it differs: "), F.concat_ws(", ", F.array_sort(F.array_distinct(said)))
        ),
    ).otherwise(F.lit("the outcomes of its writes differ"))
    return violations(wrong, REVISIONS, nodes=_nodes(), detail=detail)


def _nodes() -> Column:
    return F.array_sort(F.array_distinct(F.transform("claims", lambda one: one["node"])))


def _differ(name: str) -> Column:
    return F.coalesce(F.min(name) != F.max(name), F.lit(False)).alias(f"differ_{name}")


def agreement_checked(blocks: DataFrame) -> list[DataFrame]:
    """Returns CHECKED of BLOCKS: places by what they come from, and how many nodes told of them."""
    count = F.col("count")
    of_exports, of_journals = blocks.where("is_export"), blocks.where("not is_export")
    nodes = blocks.select("cluster", "node").distinct()
    return [
        checked(of_exports, AGREED_GREEN, "green messages of exports", count),
        checked(of_journals, AGREED_GREEN, "green messages of journals", count),
        checked(nodes, AGREED_GREEN, "nodes"),
        checked(blocks.where("revision_hash is not null"), REVISIONS, "revisions", count),
    ]
