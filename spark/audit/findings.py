"""The frames that rules return, and how they are put together."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.local_frames import local_frame
from spark.schemas import VIOLATIONS, Columns, columns

CHECKED = columns(cluster="string", rule="string", what="string", count="long")
"""How much a rule has looked at: a rule that is silent because there was nothing to look at can be told from one
that is silent because all is well."""

INCOMPLETE = columns(cluster="string", rule="string", node="string", what="string", count="long")
"""What a rule could not prove, because a log lacks something."""


def violations(frame: DataFrame, rule: Column | str, **own: Column) -> DataFrame:
    """Returns VIOLATIONS of one rule. Columns that are not given are the frame's own; those that it has not are
    null."""
    given = {"rule": F.lit(rule), **own}
    return _select(frame, VIOLATIONS, given)


def checked(frame: DataFrame, rule: str, what: str, amount: Column | None = None) -> DataFrame:
    """Returns CHECKED, a row for each row of the frame, with 1 or `amount` as its count. Whoever wants totals sums
    them up (`summed`), for all rules at once."""
    count = F.lit(1) if amount is None else F.coalesce(amount, F.lit(0))
    return _select(frame, CHECKED, {"rule": F.lit(rule), "what": F.lit(what), "count": count})


def summed(counted: DataFrame) -> DataFrame:
    """Returns CHECKED with a row for each cluster, rule and thing that was looked at."""
    return counted.groupBy("cluster", "rule", "what").agg(F.sum("count").alias("count")).select(*CHECKED)


def incomplete(frame: DataFrame, rule: str, what: Column | str, **own: Column) -> DataFrame:
    """Returns INCOMPLETE, a row for each row of the frame; `node` and `count` are its own if it has them."""
    text = F.lit(what) if isinstance(what, str) else what
    return _select(frame, INCOMPLETE, {"rule": F.lit(rule), "what": text, **own})


def union(spark: SparkSession, schema: Columns, frames: list[DataFrame]) -> DataFrame:
    """Returns all rows of these frames."""
    if not frames:
        return local_frame(spark, [], schema.ddl)
    return reduce(DataFrame.unionByName, frames)


def text(template: str, *parts: Column | str) -> Column:
    """Returns a sentence with these columns in it."""
    return F.format_string(template, *parts)


def _select(frame: DataFrame, schema: Columns, given: dict[str, Column]) -> DataFrame:
    own = {name: F.col(name) if name in frame.columns else F.lit(None) for name in schema} | given
    return frame.select(*(own[name].cast(kind).alias(name) for name, kind in schema.items()))
