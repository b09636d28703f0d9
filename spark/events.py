"""Journal records, which are batches, as a row for each message, and for each run of answers.

Both are one pass over the records without a shuffle: they scale with the number of records alone."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.schemas import ANSWERS, MESSAGE_EVENTS

MESSAGE_EVENT_NAMES = (
    *("sent", "received", "recovered", "logged", "yellow", "green", "applied", "demoted", "copies_sent"),
)
"""The events whose records name messages in `ids`."""

_PLACE = "place"


def message_events(records: DataFrame) -> DataFrame:
    """Returns MESSAGE_EVENTS: a row for each message that a record names. The position is that of the message, and
    `clock`, `bytes`, `writes` and `revision` are its own."""
    named = records.where(F.col("event").isin(*MESSAGE_EVENT_NAMES))
    spread = named.select("*", F.posexplode("ids").alias(_PLACE, "one"))
    own = {
        "id": F.col("one"),
        "clock": _own("clocks"),
        "bytes": _own("sizes"),
        "position": F.col("position") + F.col(_PLACE),
        "writes": _own("writes"),
        "revision": _own("revisions"),
    }
    return spread.select(*(own.get(name, F.col(name)).alias(name) for name in MESSAGE_EVENTS))


def answers(records: DataFrame) -> DataFrame:
    """Returns ANSWERS: a row for each run of writes that were told the same."""
    told = records.where(F.col("event") == "acknowledged")
    spread = told.select("*", F.posexplode("firsts").alias(_PLACE, "one"))
    own = {
        "first": F.col("one"),
        "count": _own("counts"),
        "outcome": _own("outcomes"),
        "revision": _own("revisions"),
    }
    return spread.select(*(own.get(name, F.col(name)).alias(name) for name in ANSWERS))


def _own(parallel: str) -> Column:
    """Returns the element of an array that runs in parallel to the one that was spread."""
    return F.get(parallel, F.col(_PLACE))
