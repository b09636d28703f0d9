"""Journals that grow, as a stream of records.

A stream reads finished files only (`journal-*.jsonl`), each once and as a whole, in the order in which they were
written. Nodes finish a file every `journal_file_s` seconds, so a follower is that far behind at the most."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.schemas import CORRUPT, JOURNAL_LINES

FILES_PER_BATCH = 64
"""How many files of each directory are read at once at the most: with the largest files of nodes, 1 GiB."""

FILE_AGE_MAX = "30d"
"""Spark remembers which files it has read for as long as they are at most so much older than the newest one. A
file that appears later than that, because its node was down, is not read."""


def journal_stream(spark: SparkSession, directories: Sequence[str]) -> DataFrame:
    """The lines of the journals below these directories, with `file` and `of_cluster`, as `records_of` takes
    them."""
    return reduce(DataFrame.unionByName, [_below(spark, directory) for directory in directories])


def _below(spark: SparkSession, directory: str) -> DataFrame:
    reader = (
        spark.readStream.schema(JOURNAL_LINES.ddl)
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", CORRUPT)
        .option("pathGlobFilter", "journal-*.jsonl")
        .option("recursiveFileLookup", "true")
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .option("maxFileAge", FILE_AGE_MAX)
        .option("ignoreMissingFiles", "true")
    )
    lines = reader.json(directory).select("*", F.col("_metadata.file_path").alias("file"))
    return lines.withColumn("of_cluster", cluster_in(F.col("file")))


def cluster_in(path: Column) -> Column:
    """The cluster that the last directory `cluster=` of a path names, "" if none does."""
    return F.regexp_extract(path, r"^.*/cluster=([^/]+)/", 1)
