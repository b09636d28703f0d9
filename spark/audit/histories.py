"""The history of a few messages at every node: everything that journals and exports say of them.

Scales: one pass over both, which keeps only the rows of these messages."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.schemas import columns

HISTORIES = columns(
    cluster="string",
    id="string",
    wall_ms="double",
    node="string",
    incarnation="long",
    event="string",
    color="string",
    position="long",
    revision="long",
    view="string",
    source="string",
)
"""One thing that happened to a message at a node. For exported rows `event` is `exported`, and the time that of
the export."""


def histories(
    named: DataFrame, events: DataFrame, answers: DataFrame, logs: DataFrame, manifests: DataFrame
) -> DataFrame:
    """Returns HISTORIES of the messages in `named` (cluster, id), of which there are few."""
    few = F.broadcast(named.select("cluster", "id").distinct())
    of_events = events.join(few, ["cluster", "id"], "left_semi")
    of_answers = answers.join(few, ["cluster", "id"], "left_semi")
    times = manifests.groupBy("cluster", "export").agg(F.max("exported_ms").alias("wall_ms"))
    of_logs = logs.join(few, ["cluster", "id"], "left_semi").drop("incarnation", "view")
    exported = of_logs.join(F.broadcast(times), ["cluster", "export"], "left")
    return (
        _select(of_events, source=F.lit("journal"))
        .unionByName(
            _select(of_answers, event=F.concat_ws(" ", F.lit("acknowledged"), "outcome"), source=F.lit("journal"))
        )
        .unionByName(_select(exported, event=F.lit("exported"), source=F.col("file")))
    )


def _select(frame: DataFrame, **own: Column) -> DataFrame:
    nothing = F.lit(None)
    return frame.select(
        *(
            own.get(name, F.col(name) if name in frame.columns else nothing).cast(kind).alias(name)
            for name, kind in HISTORIES.items()
        )
    )
