"""Records of a synthetic journal as text, the way a node writes them; expressions are text of Spark's SQL.

A record is a structure of the time, the event, and its fields as the end of a JSON object. `lines` puts the
beginning before it, which all records of a node share."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from kvstore.journal_schema import SCHEMA
from spark.generator.order import Sql, applied_writes, drawn, incarnation_of, looked_up
from spark.generator.shape import START_US, Shape

RECORD_MESSAGES_MAX = 512
"""Most messages that one record names, as in a real journal."""

NO_RECORDS: Sql = "cast(array() as array<struct<us: bigint, event: string, rest: string>>)"


def at_nodes(shape: Shape, rows: DataFrame) -> DataFrame:
    """A row for each node, with its `index`, `node` and `incarnation`."""
    each = rows.selectExpr("*", f"explode(sequence(0L, {shape.nodes - 1}L)) as index")
    node, incarnation = looked_up(shape.names, "index"), incarnation_of("index", "cycle")
    return each.selectExpr("*", f"{node} as node", f"{incarnation} as incarnation")


def unpacked(rows: DataFrame, records: Sql) -> DataFrame:
    """Columns `cycle`, `node`, `incarnation`, `us`, `event` and `rest` of an array of records, which may be null,
    for each row."""
    return rows.selectExpr("cycle", "node", "incarnation", f"inline(filter({records}, r -> r is not null))")


def lines(shape: Shape, records: DataFrame) -> DataFrame:
    """Columns `cycle`, `node`, `incarnation`, `us`, `event` and `line`."""
    monotonic = _milliseconds(f"(us - {START_US}L + {drawn(shape, 1_000_000_000, 'boot', 'node')})")
    wall = _milliseconds(wall_us(shape, "node", "us"))
    line = f"""concat('{{"version":{SCHEMA.version},"node":"', node, '","incarnation":', incarnation,
        ',"monotonic_ms":', {monotonic}, ',"wall_ms":', {wall}, ',"event":"', event, '"', rest)"""
    return records.selectExpr("cycle", "node", "incarnation", "us", "event", f"{line} as line")


def wall_us(shape: Shape, node: Sql, at_us: Sql) -> Sql:
    """The time by the wall clock of a node, which is up to a second off."""
    return f"({at_us} + {drawn(shape, 2_000_000, 'skew', node)} - 1000000L)"


def _milliseconds(us: Sql) -> Sql:
    return f"concat({us} div 1000, '.', lpad({us} % 1000, 3, '0'))"


# Records


def record(at_us: Sql, event: str, **fields: Sql) -> Sql:
    """A record of this event. The fields are JSON already: see `text`, `texts`, `number`, `numbers`."""
    parts = "".join(f"""',"{name}":', {value}, """ for name, value in fields.items())
    return f"named_struct('us', {at_us}, 'event', '{event}', 'rest', concat({parts}'}}'))"


def queued(event: str, at_us: Sql, view: Sql, color: Sql, messages: Sql, length: Sql) -> Sql:
    """Messages that are new in the queue, which then has this length."""
    return record(
        at_us,
        event,
        view=text(view),
        color=text(color),
        length=number(length),
        ids=texts(f"{messages}.id"),
        clocks=numbers(f"{messages}.clock"),
        sizes=numbers(f"{messages}.bytes"),
    )


def green(at_us: Sql, position: Sql, messages: Sql) -> Sql:
    return record(at_us, "green", position=number(position), ids=texts(f"{messages}.id"))


def applied(at_us: Sql, messages: Sql) -> Sql:
    return record(
        at_us,
        "applied",
        position=number(f"element_at({messages}, 1).position"),
        ids=texts(f"{messages}.id"),
        writes=numbers(f"{messages}.writes"),
        revisions=numbers(f"{messages}.revision"),
    )


def told_pending(at_us: Sql, message: Sql, color: str) -> Sql:
    """Clients are told that their writes are accepted."""
    return record(
        at_us,
        "acknowledged",
        id=text(f"{message}.id"),
        color=word(color),
        firsts="'[0]'",
        counts=numbers(f"array({message}.writes)"),
        outcomes="""'["pending"]'""",
        revisions="'[null]'",
    )


def told_green(at_us: Sql, message: Sql) -> Sql:
    """Clients are told that their writes are applied, or of the last one that it is rejected."""
    count, writes, revision = applied_writes(f"{message}.position"), f"{message}.writes", f"{message}.revision"
    first = f"({revision} - {count} + 1)"
    has_rejected = f"{writes} > {count}"
    return record(
        at_us,
        "acknowledged",
        id=text(f"{message}.id"),
        color=word("green"),
        firsts=numbers(f"if({has_rejected}, array(0L, {writes} - 1), array(0L))"),
        counts=numbers(f"if({has_rejected}, array({writes} - 1, 1L), array({writes}))"),
        outcomes=texts(f"if({has_rejected}, array('applied', 'rejected'), array('applied'))"),
        revisions=numbers(f"if({has_rejected}, array({first}, {revision}), array({first}))"),
    )


def in_parts(messages: Sql, make: Callable[[Sql, Sql], Sql]) -> Sql:
    """Records of many messages. `make` gets a part of them, and how many are before it."""
    part = f"slice({messages}, k * {RECORD_MESSAGES_MAX} + 1, {RECORD_MESSAGES_MAX})"
    last = f"(size({messages}) - 1) div {RECORD_MESSAGES_MAX}"
    return f"transform(sequence(0, cast({last} as int)), k -> {make(part, f'(k * {RECORD_MESSAGES_MAX})')})"


# JSON


def text(value: Sql) -> Sql:
    return f"""'"', {value}, '"'"""


def word(value: str) -> Sql:
    return f"""'"{value}"'"""


def texts(values: Sql) -> Sql:
    """A list that is not empty."""
    return f"""'["', array_join({values}, '","'), '"]'"""


def number(value: Sql) -> Sql:
    return f"cast({value} as string)"


def numbers(values: Sql) -> Sql:
    return f"""'[', array_join(cast({values} as array<string>), ','), ']'"""
