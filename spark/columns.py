"""Columns that several jobs compute in the same way: who is meant by an id, classes of sizes, prefixes of keys.

All are native functions of one row: no shuffle."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.schemas import Columns

SIZE_CLASSES = (
    (256, "up to 256 B"),
    (1 << 10, "up to 1 KiB"),
    (4 << 10, "up to 4 KiB"),
    (16 << 10, "up to 16 KiB"),
    (64 << 10, "up to 64 KiB"),
    (256 << 10, "up to 256 KiB"),
    (1 << 20, "up to 1 MiB"),
)
"""The largest size of each class, in bytes, and what the class is called."""

LARGER = "over 1 MiB"

UNKNOWN_SIZE = "unknown"

_SIZE_NAMES = (*(name for _, name in SIZE_CLASSES), LARGER, UNKNOWN_SIZE)


def conform(frame: DataFrame, columns: Columns) -> DataFrame:
    """Returns the frame with exactly these columns, in their order and of their types."""
    return frame.select(*(F.col(name).cast(kind).alias(name) for name, kind in columns.items()))


def sender_of(message_id: Column) -> Column:
    """The node that sent a message, `<sender>.<incarnation>.<sequence>`."""
    return _without_last_parts(message_id, 2)


def node_of(machine: Column) -> Column:
    """The node of a machine, `<node>.<incarnation>`."""
    return _without_last_parts(machine, 1)


def message_of(write: Column) -> Column:
    """The message of a write, `<message id>.<index>`."""
    return _without_last_parts(write, 1)


def nodes_of(machines: Column) -> Column:
    """The nodes of machines, in alphabetical order."""
    return F.array_sort(F.array_distinct(F.transform(machines, node_of)))


def prefix_of(key: Column) -> Column:
    """The first segment of a key's path, with its slash; the whole key if it has no slash."""
    return F.when(F.contains(key, F.lit("/")), F.concat(F.substring_index(key, "/", 1), F.lit("/"))).otherwise(key)


def size_rank(size: Column) -> Column:
    """The place of a size's class among all, counted from 1."""
    chosen = F.when(size.isNull(), F.lit(len(_SIZE_NAMES)))
    for rank, (largest, _) in enumerate(SIZE_CLASSES, 1):
        chosen = chosen.when(size <= largest, F.lit(rank))
    return chosen.otherwise(F.lit(len(SIZE_CLASSES) + 1))


def size_name(rank: Column) -> Column:
    """What the class at this place is called; null without a place. (Spark takes an element of an array without
    nulls for one that cannot be null, and would write a file that cannot be read.)"""
    return F.when(rank.isNotNull(), F.element_at(F.array(*map(F.lit, _SIZE_NAMES)), rank))


def _without_last_parts(text: Column, count: int) -> Column:
    """The text before its last dots. Names of nodes may have dots too, so it is counted from the end."""
    rest = F.length(F.substring_index(text, ".", -count))
    return F.left(text, F.length(text) - rest - 1)
