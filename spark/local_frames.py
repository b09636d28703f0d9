"""Frames of a few rows that this process has.

`createDataFrame` with a list has Python processes started beside the executors, only to hand the rows over: slow,
and on a cluster it needs the same Python on every machine. Through Arrow the JVM takes the rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def local_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], ddl: str) -> DataFrame:
    """Returns a frame of rows whose values are in the order of the columns."""
    schema = cast(StructType, StructType.fromDDL(ddl))
    named = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(named, schema=to_arrow_schema(schema)), schema)
