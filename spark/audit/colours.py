"""Colours: green is final, and yellow becomes red only in a recovery, which records it (`demoted`).

Needs: journals. A message that is red in an export although its node logged it in a primary component, or that a
node retransmits as red although it was yellow there, must have been demoted in between. Where the journal is known
to lack something, that cannot be proven.

Scales: demoted and red messages are few; they are joined to the events of the same node by message."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.audit.evidence import key_of
from spark.audit.findings import checked, incomplete, text, violations

COLOURS = "colours"

_INCARNATION = ["cluster", "node", "incarnation"]


def demoted_messages(events: DataFrame) -> DataFrame:
    """Returns (cluster, node, incarnation, view, key, id, demoted_ms)."""
    return events.where("event = 'demoted'").select(
        *_INCARNATION, "view", key_of(F.col("id")).alias("key"), "id", F.col("monotonic_ms").alias("demoted_ms")
    )


def demoted_green(demoted: DataFrame, events: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: messages that an incarnation demoted after it had made them green."""
    green = events.where("event = 'green'").select(
        *_INCARNATION, key_of(F.col("id")).alias("key"), "position", F.col("monotonic_ms").alias("green_ms")
    )
    wrong = green.join(demoted, [*_INCARNATION, "key"]).where(F.col("green_ms") <= F.col("demoted_ms"))
    detail = text("%s made it red in view %s, after it had been green there", F.col("node"), F.col("view"))
    return violations(wrong, COLOURS, nodes=F.array("node"), detail=detail)


def demoted_green_before(demoted: DataFrame, order: DataFrame, incarnations: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: messages that an incarnation demoted although they were green on its disk when it
    began."""
    begun = incarnations.where("started_green > 0").select(*_INCARNATION, "started_green")
    lines = demoted.join(F.broadcast(begun), _INCARNATION).drop("id")
    wrong = order.join(lines, ["cluster", "key"]).where(F.col("position") < F.col("started_green"))
    detail = text("%s made it red in view %s, and began with it green", F.col("node"), F.col("view"))
    return violations(wrong, COLOURS, nodes=F.array("node"), detail=detail).distinct()


def demoted_outside(demoted: DataFrame, records: DataFrame, lossy: DataFrame) -> DataFrame:
    """Returns VIOLATIONS: messages that were demoted in a view without a recovery."""
    recovered = records.where("event = 'states_exchanged'").select(*_INCARNATION, "view").distinct()
    outside = demoted.join(F.broadcast(recovered), [*_INCARNATION, "view"], "left_anti")
    wrong = outside.join(F.broadcast(lossy), ["cluster", "node"], "left_anti")
    detail = text("%s made it red in view %s, in which there was no recovery", F.col("node"), F.col("view"))
    return violations(wrong, COLOURS, nodes=F.array("node"), detail=detail)


def red_copies(records: DataFrame) -> DataFrame:
    """Returns (cluster, node, incarnation, key, id, copied_ms): messages that a node retransmitted as red."""
    copies = records.where("event = 'copies_sent' and kind = 'red'")
    spread = copies.select(*_INCARNATION, F.explode("ids").alias("id"), F.col("monotonic_ms").alias("copied_ms"))
    return spread.withColumn("key", key_of(F.col("id")))


def silently_red(copies: DataFrame, events: DataFrame, demoted: DataFrame) -> DataFrame:
    """Returns the `red_copies` of messages that were yellow in the same incarnation, and not demoted since."""
    is_yellow = (F.col("event") == "yellow") | ((F.col("event") == "logged") & (F.col("color") == "yellow"))
    yellow = events.where(is_yellow).select(
        *_INCARNATION, key_of(F.col("id")).alias("key"), F.col("monotonic_ms").alias("yellow_ms")
    )
    were = yellow.join(copies, [*_INCARNATION, "key"]).where(F.col("yellow_ms") < F.col("copied_ms"))
    last = were.groupBy(*_INCARNATION, "key", "id", "copied_ms").agg(F.max("yellow_ms").alias("yellow_ms"))
    falls = demoted.select(*_INCARNATION, "key", "demoted_ms")
    is_since = (F.col("demoted_ms") >= F.col("yellow_ms")) & (F.col("demoted_ms") <= F.col("copied_ms"))
    joined = last.join(falls, [*_INCARNATION, "key"], "left")
    grouped = joined.groupBy(*_INCARNATION, "id").agg(F.max(F.coalesce(is_since, F.lit(False))).alias("is_told"))
    return grouped.where("not is_told")


def exported_red(logs: DataFrame, demoted: DataFrame) -> DataFrame:
    """Returns (cluster, node, id, position, export, run) of exported messages that are red and were yellow, and
    that no journal of the node tells to have been demoted."""
    rows = logs.where("not is_final and color = 'red' and primary > 0").withColumn("key", key_of(F.col("id")))
    falls = demoted.select("cluster", "node", "key").distinct()
    told = rows.join(falls, ["cluster", "node", "key"], "left_anti")
    return told.select("cluster", "node", "key", "id", "position", "export", "run")


def whole_journals(incarnations: DataFrame, lossy: DataFrame, manifests: DataFrame) -> DataFrame:
    """Returns (cluster, export, run) of exports whose node's journals lack nothing that is known, and go as far as
    the export."""
    ends = incarnations.groupBy("cluster", "node").agg(
        F.max("last_wall_ms").alias("last_wall_ms"),
        F.max(F.col("is_last") & F.col("is_stopped")).alias("is_stopped"),
    )
    kept = ends.join(lossy, ["cluster", "node"], "left_anti")
    joined = manifests.join(F.broadcast(kept), ["cluster", "node"])
    reaches = F.col("is_stopped") | (F.col("exported_ms") <= F.col("last_wall_ms"))
    return joined.where(reaches).select("cluster", "export", F.col("number").alias("run"))


def never_demoted(red: DataFrame, whole: DataFrame, events: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of `exported_red`: where the journal is whole, and tells that the message was logged."""
    logged = events.where("event = 'logged'").select("cluster", "node", key_of(F.col("id")).alias("key"))
    proven = red.join(F.broadcast(whole), ["cluster", "export", "run"], "left_semi")
    wrong = logged.join(proven, ["cluster", "node", "key"]).distinct()
    detail = text("it was yellow at %s, is red in run %d of %s, and was never demoted", "node", "run", "export")
    return violations(wrong, COLOURS, nodes=F.array("node"), detail=detail)


def silent_violations(silent: DataFrame, lossy: DataFrame) -> DataFrame:
    """Returns VIOLATIONS of `silently_red`."""
    wrong = silent.join(F.broadcast(lossy), ["cluster", "node"], "left_anti")
    detail = text("%s retransmitted it as red, it had been yellow there, and was never demoted", F.col("node"))
    return violations(wrong, COLOURS, nodes=F.array("node"), detail=detail)


def colours_unknown(red: DataFrame, whole: DataFrame, silent: DataFrame, lossy: DataFrame) -> DataFrame:
    """Returns INCOMPLETE: messages that fell back to red where the journal lacks something, or does not begin
    early enough."""
    exported = red.join(F.broadcast(whole), ["cluster", "export", "run"], "left_anti").select(
        "cluster", "node", "id"
    )
    copied = silent.join(F.broadcast(lossy), ["cluster", "node"], "left_semi").select("cluster", "node", "id")
    counted = exported.unionByName(copied).distinct().groupBy("cluster", "node").count()
    return incomplete(counted, COLOURS, "messages that are red and were yellow, where the journal is not whole")


def colours_checked(counts: DataFrame, logs: DataFrame) -> list[DataFrame]:
    """`counts` are EVENT_COUNTS."""
    red = logs.where("not is_final and color = 'red' and primary > 0")
    return [
        checked(counts.where("event = 'demoted'"), COLOURS, "demoted messages", F.col("messages")),
        checked(counts.where("event = 'copies_sent'"), COLOURS, "retransmitted messages", F.col("messages")),
        checked(red, COLOURS, "exported messages that are red and were yellow"),
    ]
