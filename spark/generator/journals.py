"""The journals of a synthetic cluster: rounds of messages, and the changes between them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark.generator.changes import changes_of
from spark.generator.order import APART, RED, TOGETHER, Sql, drawn, in_array, round_us, steps, view_of
from spark.generator.records import (
    applied,
    at_nodes,
    green,
    lines,
    queued,
    record,
    text,
    texts,
    told_green,
    told_pending,
    unpacked,
)
from spark.generator.shape import Shape
from spark.generator.transfers import merges, mine, splits
from spark.local_frames import local_frame

PLAIN = "cycle long, node string, incarnation long, us long, event string, rest string"


def journal_lines(spark: SparkSession, shape: Shape, tasks: int) -> DataFrame:
    """Columns `cycle`, `node`, `incarnation`, `us`, `event` and `line`, of all nodes."""
    cycles = spark.range(0, shape.cycles, 1, tasks).withColumnRenamed("id", "cycle")
    plain = [change for cycle in range(shape.cycles) for change in changes_of(shape, cycle)]
    records = rounds(shape, cycles).unionByName(local_frame(spark, plain, PLAIN))
    for transfers in (splits, merges):
        records = records.unionByName(transfers(shape, cycles))
    return lines(shape, records)


def rounds(shape: Shape, cycles: DataFrame) -> DataFrame:
    """The records of rounds of messages."""
    kinds = [
        (TOGETHER, shape.together_rounds, 0, shape.nodes),
        (APART, shape.apart_rounds, shape.together, shape.majority),
        (RED, shape.red_rounds, shape.together + shape.apart, shape.minority),
    ]
    each = [
        f"""transform(sequence(0L, {count - 1}L), k -> named_struct('phase', {phase}, 'round', k,
            'first', cycle * {shape.cycle}L + {first} + k * {width}, 'width', {width}L))"""
        for phase, count, first, width in kinds
    ]
    rows = cycles.selectExpr("cycle", f"inline(concat({', '.join(each)}))")
    messages = in_array("sequence(first, first + width - 1)", steps(shape))
    begins = round_us(shape, "cycle", "phase", "round")
    rows = rows.selectExpr("cycle", "phase", "round", "first", f"{messages} as messages", f"{begins} as begins")
    takes_part = f"phase = {TOGETHER} or (phase = {APART}) = (index < {shape.majority})"
    return unpacked(at_nodes(shape, rows).filter(takes_part), _round_records(shape))


def _round_records(shape: Shape) -> Sql:
    """One round at one node: its own message is sent and the others' arrive; in a primary component they become
    green, but for the last round before the network is cut."""
    others = "filter(messages, m -> m.index != index)"
    is_red = f"phase = {RED} and round > 0"
    is_green = f"phase = {APART} or (phase = {TOGETHER} and round < {shape.together_rounds - 1})"
    view = view_of(shape, "cycle", f"if(phase = {RED} and round = 0, {TOGETHER}, phase)", "index")
    color = f"if({is_red}, 'red', 'yellow')"
    before = f"(first - if(phase = {RED}, {shape.apart}, 0))"

    def later(us: int, spread: int, label: str) -> Sql:
        return f"(begins + {us} + {drawn(shape, spread, label, 'cycle', 'phase', 'round', 'index')})"

    sent = queued(
        "sent", f"{mine('messages')}.sent_us", view, color, f"array({mine('messages')})", f"{before} + 1"
    )
    received = queued("received", later(1_000, 400, "received"), view, color, others, f"{before} + size(messages)")
    return f"""array(
        {sent},
        if(size({others}) > 0, {received}, null),
        {record(later(1_600, 600, "logged"), "logged", color=text(color), ids=texts("messages.id"))},
        if({is_green}, {green(later(2_600, 400, "green"), "first", "messages")}, null),
        if({is_green}, {applied(later(3_100, 100, "applied"), "messages")}, null),
        if({is_green}, {told_green(later(3_300, 100, "told"), mine("messages"))}, null),
        if({is_red}, {told_pending(later(2_400, 100, "told"), mine("messages"), "red")}, null))"""
