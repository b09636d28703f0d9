"""Yellow: what any node made green in a primary component is yellow or green, at the same place, at every node
that has committed to that component or to a later one.

Needs: journals (`stage`, `yellow`, `demoted`, `committed`, `states_exchanged` and `green` records) and exports'
tails, as far as there are any. How far green went in a component is the highest green line that any node had while
that was the last component it had committed to. A node that has left a component has everything yellow that was or
will be made green in it, so its lines are compared with that; a node that is still in it may not have received all
yet, and is compared with the components before.

Scales: lines are compared by stage records, which are few. Yellow zones and demoted messages, which are those of
partitions, are written down and then joined to the order by position and by message: a shuffle of the order, 30
bytes per message, if they do not fit into every task's memory."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.audit.evidence import key_of
from spark.audit.findings import checked, text, violations
from spark.schemas import columns

YELLOW = "yellow"

_INCARNATION = ("cluster", "node", "incarnation")


def reached_lines(records: DataFrame, manifests: DataFrame) -> DataFrame:
    """Returns (cluster, number, line): how far green went, by any journal or export, at a node whose last
    committed primary component was of this number, or of a lower one."""
    told = _told_lines(records).unionByName(
        manifests.select("cluster", F.col("committed").alias("number"), F.col("green").alias("line"))
    )
    lines = told.where("number > 0").groupBy("cluster", "number").agg(F.max("line").alias("line"))
    up_to = Window.partitionBy("cluster").orderBy("number").rowsBetween(Window.unboundedPreceding, 0)
    return lines.withColumn("line", F.max("line").over(up_to))


def _told_lines(records: DataFrame) -> DataFrame:
    """What stage records tell, and what became green after the last of an incarnation, if that was the beginning
    of a primary component and nothing of the journal is missing."""
    stages = records.where("event = 'stage'")
    told = stages.select("cluster", F.col("committed").alias("number"), F.col("green").alias("line"))
    last = stages.groupBy(*_INCARNATION).agg(F.max(F.struct("monotonic_ms", "stage", "committed")).alias("last"))
    line = F.max(F.when(F.col("event") == "green", F.col("position") + F.size("ids")))
    ends = records.where(F.col("event").isin("green", "gap")).groupBy(*_INCARNATION)
    green = ends.agg(line.alias("line"), F.count_if(F.col("event") == "gap").alias("gaps"))
    joined = last.join(green.where("gaps = 0 and line is not null"), list(_INCARNATION))
    rest = joined.where("last.stage = 'primary'").select(
        "cluster", F.col("last.committed").alias("number"), "line"
    )
    return told.unionByName(rest)


def line_at(frame: DataFrame, reached: DataFrame, number: Column) -> DataFrame:
    """Adds `line`: how far green went in any primary component up to this number; 0 if nowhere."""
    lists = reached.groupBy("cluster").agg(F.sort_array(F.collect_list(F.struct("number", "line"))).alias("lines"))
    joined = frame.withColumn("up_to", number).join(F.broadcast(lists), "cluster", "left")
    within = F.filter("lines", lambda one: one["number"] <= F.col("up_to"))
    line = F.coalesce(F.array_max(F.transform(within, lambda one: one["line"])), F.lit(0))
    return joined.withColumn("line", line).drop("lines", "up_to")


def low_lines(records: DataFrame, manifests: DataFrame, reached: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: nodes whose yellow line is below what was green in a component that they knew of. A node
    that is establishing a component may have committed to it already."""
    is_inside = F.col("stage").isin("establishing", "primary")
    stages = records.where("event = 'stage'").select(
        "cluster",
        "node",
        "committed",
        "yellow",
        (F.col("committed") - is_inside.cast("int")).alias("left"),
        text("in view %s, %s", F.col("view"), F.col("stage")).alias("where"),
    )
    exports = manifests.select(
        "cluster",
        "node",
        "committed",
        "yellow",
        (F.col("committed") - 1).alias("left"),
        F.col("file").alias("where"),
    )
    joined = line_at(stages.unionByName(exports), reached, F.col("left"))
    wrong = joined.where(F.col("yellow") < F.col("line"))
    template = "%s knows of primary %d, but is yellow to %d only, not %d (%s)"
    detail = text(template, F.col("node"), F.col("committed"), F.col("yellow"), F.col("line"), F.col("where"))
    return violations(wrong, YELLOW, position=F.col("yellow"), nodes=F.array("node"), detail=detail)


def view_numbers(records: DataFrame) -> DataFrame:
    """Returns (cluster, node, incarnation, view, number): the last primary component that a node knew of, or
    committed to, in a view."""
    told = records.where(F.col("event").isin("states_exchanged", "committed"))
    number = F.max(F.coalesce("number", "committed")).alias("number")
    return told.groupBy(*_INCARNATION, "view").agg(number)


def known_numbers(records: DataFrame) -> DataFrame:
    """Returns (cluster, node, incarnation, view, number): what the states of a view's members told of."""
    told = records.where("event = 'states_exchanged'")
    return told.groupBy(*_INCARNATION, "view").agg(F.max("committed").alias("number"))


PLACES = columns(cluster="string", node="string", position="long", id="string", where="string")
"""Where a node had messages that were not green, at positions at which others knew by then what is green; `where`
is told of those that were at the wrong one."""


def zone_places(events: DataFrame, numbers: DataFrame, reached: DataFrame) -> DataFrame:
    """Returns PLACES of yellow zones. `numbers` are `view_numbers`."""
    zones = events.where("event = 'yellow'").select(*_INCARNATION, "view", "position", "id")
    numbered = zones.join(F.broadcast(numbers), [*_INCARNATION, "view"])
    where = text("%s had it yellow in view %s", F.col("node"), F.col("view"))
    return _settled(line_at(numbered, reached, F.col("number")), where)


def tail_places(logs: DataFrame, manifests: DataFrame, reached: DataFrame) -> DataFrame:
    """Returns PLACES of exported messages that are not green."""
    rows = logs.where("not is_final and color <> 'green'").select(
        "cluster", "node", "export", "run", "position", "id"
    )
    numbers = manifests.select("cluster", "export", F.col("number").alias("run"), "committed")
    numbered = rows.join(F.broadcast(numbers), ["cluster", "export", "run"])
    where = text("%s, which is not green, in run %d of %s", F.col("id"), F.col("run"), F.col("export"))
    return _settled(line_at(numbered, reached, F.col("committed") - 1), where)


def _settled(rows: DataFrame, where: Column) -> DataFrame:
    return rows.where(F.col("position") < F.col("line")).withColumn("where", where).select(*PLACES)


def misplaced(places: DataFrame, order: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of PLACES: positions at which the order has another message."""
    green = order.select("cluster", "position", F.col("id").alias("green_id"))
    wrong = places.join(green, ["cluster", "position"]).where(F.col("id") != F.col("green_id")).distinct()
    detail = text("%s, where %s is green", F.col("where"), F.col("green_id"))
    return violations(wrong, YELLOW, nodes=F.array("node"), detail=detail)


def demoted_lines(events: DataFrame, numbers: DataFrame, reached: DataFrame) -> DataFrame:
    """Returns (cluster, node, view, key, line): messages that became red, and how far green was where their node
    knew of it. `numbers` are `known_numbers`."""
    demoted = events.where("event = 'demoted'").select(*_INCARNATION, "view", key_of(F.col("id")).alias("key"))
    numbered = demoted.join(F.broadcast(numbers), [*_INCARNATION, "view"])
    return line_at(numbered, reached, F.col("number")).select("cluster", "node", "view", "key", "line")


def lost_demoted(demoted: DataFrame, order: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of `demoted_lines`: messages that became red at a node that knew of a primary component
    in which they were green."""
    wrong = order.join(demoted, ["cluster", "key"]).where(F.col("position") < F.col("line"))
    detail = text("%s made it red in view %s, and it was green", F.col("node"), F.col("view"))
    return violations(wrong, YELLOW, nodes=F.array("node"), detail=detail).distinct()


def yellow_checked(counts: DataFrame, manifests: DataFrame) -> list[DataFrame]:
    """`counts` are EVENT_COUNTS."""
    return [
        checked(counts.where("event = 'stage'"), YELLOW, "stages", F.col("records")),
        checked(counts.where("event = 'yellow'"), YELLOW, "yellow messages", F.col("messages")),
        checked(manifests, YELLOW, "exports"),
    ]
