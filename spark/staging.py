"""Frames that were computed once, and written down.

What several queries need is written as Parquet below a directory that all of Spark's processes see, and read back.
Compared with Spark's own cache, it takes no memory of the executors and does not go with one of them, queries
begin with a file instead of with everything that it was made from, and they read only the columns, and mostly only
the pages, that they need."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark.files import Files


class Staging:
    """Frames below a directory, which is emptied first."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._directory = directory
        self._files = Files(spark, directory)
        self._written = 0
        self._files.delete(directory)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Computes a frame, and returns it as it was written."""
        self._written += 1
        path = f"{self._directory}/{self._written:03}"
        frame.write.parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)

    def end(self) -> None:
        """Removes what was written. The frames cannot be read any more."""
        self._files.delete(self._directory)
