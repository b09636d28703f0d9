"""What synthetic nodes journal of messages when the network changes: what is told as pending, retransmitted,
recovered, demoted, and becomes green with the next primary component."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame

from spark.generator.order import (
    APART,
    TOGETHER,
    Sql,
    applied_writes,
    cycle_start_us,
    drawn,
    in_array,
    split_us,
    steps,
    view_of,
)
from spark.generator.records import (
    NO_RECORDS,
    applied,
    at_nodes,
    green,
    in_parts,
    number,
    queued,
    record,
    text,
    texts,
    told_pending,
    unpacked,
    word,
)
from spark.generator.shape import Shape

CONFLICT_EVERY = 32
"""Of the positions of red messages, every so many overwrite what the majority wrote meanwhile."""


def splits(shape: Shape, cycles: DataFrame) -> DataFrame:
    """The records of the minority being cut off. The last messages of all together (`late`) become green in the
    majority's primary component; the minority keeps them, and what it has just sent (`reds`), as yellow."""
    split = f"(cycle * {shape.cycle}L + {shape.together})"
    rows = cycles.selectExpr(
        "cycle",
        f"{in_array(run(f'{split} - {shape.nodes}', shape.nodes), steps(shape))} as late",
        f"{in_array(run(f'{split} + {shape.apart}', shape.minority), steps(shape))} as reds",
        f"{split} - {shape.nodes} as line",
        f"{split_us(shape, 'cycle')} as start_us",
    )
    is_majority = f"index < {shape.majority}"
    view = view_of(shape, "cycle", str(APART), "index")
    yellow = record(_at(440_000), "yellow", view=text(view), position=number("line"), ids=texts("late.id"))
    records = f"""array(
        {told_pending(_at(401_000), mine("late"), "yellow")},
        if({is_majority}, null, {told_pending(_at(401_200), mine("reds"), "yellow")}),
        if({is_majority}, {yellow}, null),
        if({is_majority}, {green(_at(445_000), "line", "late")}, null),
        if({is_majority}, {applied(_at(468_000), "late")}, null))"""
    return unpacked(at_nodes(shape, rows), records)


def merges(shape: Shape, cycles: DataFrame) -> DataFrame:
    """The records of all nodes being together again after the cycle before: `apart` is what the majority sent
    meanwhile, `reds` what the minority did, `late` what the minority kept as yellow."""
    split = f"((cycle - 1) * {shape.cycle}L + {shape.together})"
    rows = cycles.filter("cycle > 0").selectExpr(
        "cycle",
        f"{in_array(run(f'{split} - {shape.nodes}', shape.nodes), steps(shape))} as late",
        f"{in_array(run(split, shape.apart), steps(shape))} as apart",
        f"{in_array(run(f'{split} + {shape.apart}', shape.reds), steps(shape))} as reds",
        f"{split} as split",
        f"{split} + {shape.apart} as line",
        f"{cycle_start_us(shape, 'cycle')} as start_us",
        f"{view_of(shape, 'cycle', str(TOGETHER), 'cycle')} as view",
    )
    is_majority = f"index < {shape.majority}"
    transfer = f"if({is_majority}, {_retransmissions()}, {_catching_up(shape)})"
    return unpacked(at_nodes(shape, rows), f"concat({transfer}, {_merged(shape)})")


def _retransmissions() -> Sql:
    """At the majority: the first node retransmits what the minority lacks, and the red messages arrive."""
    copies = partial(
        record, _at(121_000), "copies_sent", view=text("view"), reason=word("states"), kind=word("priority")
    )
    recovered = partial(queued, "recovered", _at(200_000), "view", "'red'")
    logged = partial(record, _at(210_000), "logged", color=word("red"))
    return f"""concat(
        if(index = 0, {in_parts("apart", lambda part, _: copies(ids=_ids(part)))}, {NO_RECORDS}),
        {in_parts("reds", lambda part, before: recovered(part, f"line + {before} + size({part})"))},
        {in_parts("reds", lambda part, _: logged(ids=_ids(part)))})"""


def _catching_up(shape: Shape) -> Sql:
    """At the minority: the majority's messages arrive and are green, what was yellow here alone is red again, and
    the first of these nodes retransmits the red messages."""
    taken = "concat(late, apart)"
    length = f"split + {shape.reds}"
    recovered = partial(queued, "recovered", _at(150_000), "view", "'red'")
    demoted = record(
        _at(165_000),
        "demoted",
        view=text("view"),
        reason=word("states"),
        count=f"'{shape.minority}'",
        ids=_ids(f"slice(reds, 1, {shape.minority})"),
    )
    copies = partial(
        record, _at(170_000), "copies_sent", view=text("view"), reason=word("states"), kind=word("red")
    )
    logged = partial(record, _at(180_000), "logged", color=word("red"))
    first = f"split - {shape.nodes}"
    return f"""concat(
        {in_parts("apart", lambda part, before: recovered(part, f"{length} + {before} + size({part})"))},
        {in_parts(taken, lambda part, before: green(_at(160_000), f"{first} + {before}", part))},
        array({demoted}),
        if(index = {shape.majority}, {in_parts("reds", lambda part, _: copies(ids=_ids(part)))}, {NO_RECORDS}),
        {in_parts("apart", lambda part, _: logged(ids=_ids(part)))},
        {in_parts(taken, lambda part, _: applied(_at(190_000), part))})"""


def _merged(shape: Shape) -> Sql:
    """At all nodes: with the next primary component the red messages become yellow, then green."""

    def yellow(part: Sql, before: Sql) -> Sql:
        return record(
            _at(340_000), "yellow", view=text("view"), position=number(f"line + {before}"), ids=_ids(part)
        )

    return f"""concat(
        {in_parts("reds", yellow)},
        {in_parts("reds", lambda part, before: green(_at(345_000), f"line + {before}", part))},
        {in_parts("reds", lambda part, _: applied(_at(352_000), part))},
        transform(filter(reds, m -> m.position % {CONFLICT_EVERY} = 0), m -> {_outcome_changed(shape)}))"""


def _outcome_changed(shape: Shape) -> Sql:
    other = "element_at(apart, 1)"
    return record(
        _at(352_500),
        "outcome_changed",
        write=text("concat(m.id, '.0')"),
        position=number("m.position"),
        kind=word("overwrote"),
        key=text(key_of(shape, "m.position", "0")),
        outcome=word("applied"),
        revision=number(f"m.revision - {applied_writes('m.position')} + 1"),
        other=text(f"concat({other}.id, '.0')"),
        other_revision=number(f"{other}.revision - {applied_writes(f'{other}.position')} + 1"),
    )


def key_of(shape: Shape, position: Sql, place: Sql) -> Sql:
    """The key that a write has, by the position of its message and its place in it: some are written often."""
    wide = drawn(shape, 10_000, "key", position, place)
    key = f"if({wide} % 4 = 0, {wide} % 10, {wide})"
    return f"concat(if({wide} % 3 = 0, 'users/', 'orders/'), {key})"


def run(first: Sql, count: int) -> Sql:
    """Positions from the first on."""
    return f"sequence({first}, {first} + {count - 1})"


def mine(messages: Sql) -> Sql:
    """The message of this node."""
    return f"element_at(filter({messages}, m -> m.index = index), 1)"


def _at(after_us: int) -> Sql:
    return f"(start_us + {after_us})"


def _ids(messages: Sql) -> Sql:
    return texts(f"{messages}.id")
