"""Primary components: one view for each number, each a majority of the roster's weight, any two with a common
member.

Needs: journals of as many members as possible (`attempted`, `committed`, `established`, `view`, `started`). A
component of which no journal tells is not seen.

Scales: with the number of views, not of messages. Every primary component is compared with those of the same
number and with the one before it. That any two share a member follows where each is a majority of one roster."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.audit.findings import checked, text, violations

PRIMARIES = "primaries"


def components(records: DataFrame) -> DataFrame:
    """Returns a row for each number and view in which a node committed to a primary component: (cluster, number,
    view, members, nodes, is_established), where `members` are names of nodes, null if no journal tells."""
    phases = records.where(F.col("event").isin("committed", "established")).select(
        "cluster", "number", "view", "node", (F.col("event") == "established").alias("is_established")
    )
    grouped = phases.groupBy("cluster", "number", "view").agg(
        F.array_sort(F.collect_set("node")).alias("nodes"), F.max("is_established").alias("is_established")
    )
    told = records.where(F.col("event").isin("view", "established") & F.col("members").isNotNull())
    members = told.groupBy("cluster", "view").agg(F.max(names_of("members")).alias("members"))
    return grouped.join(members, ["cluster", "view"], "left")


def names_of(machines: str) -> Column:
    """Returns the nodes of machines, `<node>.<incarnation>` each."""
    names = F.transform(machines, lambda one: F.regexp_replace(one, r"\.\d+$", ""))
    return F.array_sort(F.array_distinct(names))


def two_views_of_a_number(found: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: numbers that were committed to in two views. A commitment comes after the attempts of
    all members are on disk, so that nobody attempts that number again."""
    views = F.array_sort(F.collect_set("view"))
    grouped = found.groupBy("cluster", "number").agg(
        views.alias("views"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("nodes")))).alias("nodes"),
    )
    wrong = grouped.where("size(views) > 1")
    detail = text("primary %d was committed to in the views %s", F.col("number"), F.concat_ws(" and ", "views"))
    return violations(wrong, PRIMARIES, detail=detail)


def rosters(records: DataFrame) -> DataFrame:
    """Returns (cluster, weights, total): how much each node of a cluster counts."""
    started = records.where("event = 'started' and roster is not null")
    ones = F.transform("roster", lambda _: F.lit(1).cast("long"))
    weights = F.map_from_arrays("roster", F.coalesce("weights", ones))
    entries = F.array_sort(F.map_entries(weights))
    one = started.groupBy("cluster").agg(F.max(entries).alias("entries"))
    total = F.aggregate("entries", F.lit(0).cast("long"), lambda sum_, entry: sum_ + entry["value"])
    return one.select("cluster", F.map_from_entries("entries").alias("weights"), total.alias("total"))


def no_majorities(found: DataFrame, roster: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: primary components that were established by no majority."""
    joined = found.where("is_established and members is not null").join(F.broadcast(roster), "cluster")
    weight = F.aggregate(
        "members",
        F.lit(0).cast("long"),
        lambda sum_, name: sum_ + F.coalesce(F.try_element_at("weights", name), F.lit(0).cast("long")),
    )
    wrong = joined.where(2 * weight <= F.col("total"))
    detail = text(
        "primary %d of %s has %d of %d votes",
        F.col("number"),
        F.concat_ws(", ", "members"),
        weight,
        F.col("total"),
    )
    return violations(wrong, PRIMARIES, nodes=F.col("members"), detail=detail)


def without_common_member(found: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: primary components that share no member with the one before them."""
    established = found.where("is_established and members is not null")
    by_number = Window.partitionBy("cluster").orderBy("number", "view")
    before = established.withColumns(
        {"before": F.lag("members").over(by_number), "number_before": F.lag("number").over(by_number)}
    )
    wrong = before.where(~F.arrays_overlap("before", "members"))
    detail = text("primaries %d and %d have no member in common", F.col("number_before"), F.col("number"))
    return violations(wrong, PRIMARIES, nodes=F.array_union("before", "members"), detail=detail)


def primaries_checked(found: DataFrame) -> list[DataFrame]:
    return [checked(found.where("is_established"), PRIMARIES, "primary components established")]
