"""Percentiles from histograms of counts, which merge exactly whatever the number of tasks.

A duration is counted in a bucket whose bounds are 1 % apart, so a percentile is wrong by 0.5 % at the most
(durations below a microsecond count as 0); means, minima and maxima are exact. Unlike a sketch that depends on
which rows met in which task, the same rows have the same percentiles on one machine and on a cluster. Histograms
shrink before the shuffle to at most some thousand buckets per group."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

STEP = 1.01
SMALLEST_MS = 0.001

PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}


def bucket_of(ms: Column) -> Column:
    """The bucket of a duration; negative ones, which clocks that were not quite put right can cause, have their
    own."""
    place = F.floor(F.log(F.abs(ms) / SMALLEST_MS) / math.log(STEP)) + 1
    return F.when(F.abs(ms) < SMALLEST_MS, F.lit(0)).otherwise(F.signum(ms) * place).cast("int")


def middle_of(bucket: Column) -> Column:
    """The duration that stands for those of a bucket."""
    size = SMALLEST_MS * F.pow(F.lit(STEP), F.abs(bucket) - 0.5)
    return F.when(bucket == 0, F.lit(0.0)).otherwise(F.signum(bucket.cast("double")) * size)


def counted(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns histograms of the column `ms`: a row per bucket, with `messages`, `total_ms`, `min_ms`, `max_ms`."""
    return (
        frame.withColumn("bucket", bucket_of(F.col("ms")))
        .groupBy(*keys, "bucket")
        .agg(
            F.count("*").alias("messages"),
            F.sum("ms").alias("total_ms"),
            F.min("ms").alias("min_ms"),
            F.max("ms").alias("max_ms"),
        )
    )


def merged(histograms: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns histograms of larger groups."""
    return histograms.groupBy(*keys, "bucket").agg(
        F.sum("messages").alias("messages"),
        F.sum("total_ms").alias("total_ms"),
        F.min("min_ms").alias("min_ms"),
        F.max("max_ms").alias("max_ms"),
    )


def summarized(histograms: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns a row for each histogram: `messages`, `negative`, `mean_ms`, `min_ms`, `max_ms` and the percentiles.
    The window function goes over the buckets of one histogram."""
    whole = Window.partitionBy(*keys)
    so_far = whole.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = (
        histograms.withColumn("below", F.sum("messages").over(so_far))
        .withColumn("all", F.sum("messages").over(whole))
        .withColumn("middle_ms", F.least(F.greatest(middle_of(F.col("bucket")), "min_ms"), "max_ms"))
    )
    ranks = [
        F.min(F.when(F.col("below") >= F.ceil(F.col("all") * part), F.col("middle_ms"))).alias(name)
        for name, part in PERCENTILES.items()
    ]
    return ranked.groupBy(*keys).agg(
        F.sum("messages").alias("messages"),
        F.coalesce(F.sum(F.when(F.col("bucket") < 0, F.col("messages"))), F.lit(0)).alias("negative"),
        (F.sum("total_ms") / F.sum("messages")).alias("mean_ms"),
        F.min("min_ms").alias("min_ms"),
        *ranks,
        F.max("max_ms").alias("max_ms"),
    )
