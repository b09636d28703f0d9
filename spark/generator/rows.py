"""The rows of a synthetic node's exported log, of messages of the order; all but their digests."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.generator.order import (
    APART,
    RED,
    TOGETHER,
    Sql,
    applied_writes,
    first_cycle,
    in_frame,
    incarnation_of,
    revision_after,
    steps,
    view_of,
)
from spark.generator.records import wall_us
from spark.generator.shape import Shape
from spark.generator.transfers import key_of

IDEMPOTENCY_POSITIONS = 1_000_000


def with_content(shape: Shape, positions: DataFrame, with_bodies: bool) -> DataFrame:
    """The columns of exported rows that are the same at every node, of rows with a `position`."""
    messages = in_frame(positions, steps(shape)).withColumnsRenamed({"writes": "write_count"})
    split = f"(cycle * {shape.cycle}L + {shape.together})"
    line = f"""case phase when {TOGETHER} then cycle * {shape.cycle}L + round * {shape.nodes}
        when {APART} then {split} + round * {shape.majority} else {split} - {shape.nodes} end"""
    view = view_of(shape, "cycle", f"if(phase = {RED} and round = 0, {TOGETHER}, phase)", "index")
    body = body_of(shape, "id", "bytes")
    made = {
        "view": view,
        "body": f"cast({body} as binary)" if with_bodies else "cast(null as binary)",
        "body_bytes": "bytes",
        "body_sha256": f"unhex(sha2({body}, 256))",
        "accepted_ms": f"{wall_us(shape, 'sender', 'sent_us')} div 1000",
        "expires": f"line + {IDEMPOTENCY_POSITIONS}",
        "basis_line": f"if(phase = {RED} and round > 0, null, line)",
        "basis_revision": revision_after("(line - 1)"),
        "basis_known": _known(shape),
        "writes": _writes(shape),
    }
    rows = messages.withColumn("line", F.expr(line))
    return rows.withColumns({name: F.expr(expression) for name, expression in made.items()})


def at_node(shape: Shape, rows: DataFrame, index: Sql) -> DataFrame:
    """Adds what differs from node to node: when a message came, and in which primary component."""
    is_majority = f"{index} < {shape.majority}"
    primary = f"""case when phase = {TOGETHER} then 2 * cycle + 1
        when phase = {APART} and {is_majority} then 2 * cycle + 2
        when phase = {RED} and round = 0 and not {is_majority} then 2 * cycle + 1 else 0L end"""
    arrival = f"""position + 1 + case when {is_majority} or phase = {TOGETHER} then 0
        when phase = {RED} then -{shape.apart} else {shape.reds} end"""
    return rows.withColumns({"primary": F.expr(primary), "arrival": F.expr(arrival)})


def body_of(shape: Shape, message_id: Sql, size: Sql) -> Sql:
    """What stands for a body: text of its size, which is not a batch of writes."""
    return f"rpad(concat({message_id}, ' {shape.seed} '), cast({size} as int), 'x')"


def _known(shape: Shape) -> Sql:
    """What a node had that was not green when it sent a message: nothing in a primary component; after being cut
    off, the last message of every node while all were together, and of the minority those of the round before."""
    known = []
    for index, name in enumerate(shape.names):
        is_minority = index >= shape.majority
        rounds = shape.red_rounds if is_minority else shape.apart_rounds
        earlier = f"(cycle - {first_cycle(f'{index}L', 'cycle')}) * {rounds + shape.together_rounds}"
        last = f"{earlier} + {shape.together_rounds}" + (" + round" if is_minority else "")
        known.append(f"concat('{name}.', {incarnation_of(f'{index}L', 'cycle')}), {last}")
    return f"if(phase = {RED}, map({', '.join(known)}), cast(map() as map<string, bigint>))"


def _writes(shape: Shape) -> Sql:
    """Each write puts a key. Where one is rejected, it is the last one, because of a condition."""
    applied = applied_writes("position")
    is_applied = f"k < {applied}"
    key = key_of(shape, "position", "k")
    put = f"named_struct('kind', 'put', 'key', {key}, 'value_bytes', 100L, 'by', cast(null as bigint))"
    fields = {
        "operations": f"array({put})",
        "otherwise": "cast(null as array<struct<kind: string, key: string, value_bytes: bigint, by: bigint>>)",
        "conditions": f"if({is_applied}, 0L, 1L)",
        "idempotency_key": "cast(null as string)",
        "merge": "'last'",
        "outcome": f"if({is_applied}, 'applied', 'rejected')",
        "revision": f"if({is_applied}, revision - {applied} + 1 + k, revision)",
        "reason": f"if({is_applied}, '', 'condition_failed')",
        "first": "cast(null as string)",
    }
    made = ", ".join(f"'{name}', {expression}" for name, expression in fields.items())
    return f"transform(sequence(0L, write_count - 1), k -> named_struct({made}))"
