"""The messages of a synthetic cluster: what each is, computed from its final position alone.

Everything here is text of Spark's SQL, because PySpark takes much longer to put an expression of this size
together from columns than Spark takes to parse it. The steps name columns in braces, so they can be applied to
the rows of a frame and to the elements of an array alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.generator.shape import (
    APPLIED_BY_PLACE,
    FIRST_INCARNATION,
    MERGE_US,
    RESTART_CYCLES,
    ROUND_US,
    SPLIT_US,
    START_US,
    WRITES_BY_PLACE,
    Shape,
)

TOGETHER, APART, RED = 0, 1, 2
"""The phases of a cycle in which messages are sent; the last two at the same time, by different nodes."""

Sql: TypeAlias = str
Step: TypeAlias = dict[str, Sql]
"""Names of new columns, and how they are made of those before them."""


def steps(shape: Shape) -> list[Step]:
    """What there is to know of a message, from its `position`."""
    return [_place(shape), _round(shape), _sender(shape), _identity(shape), _content(shape)]


def in_frame(frame: DataFrame, of: Sequence[Step]) -> DataFrame:
    """Adds the columns of the steps."""
    for step in of:
        names = _Names("")
        frame = frame.withColumns({name: F.expr(made.format_map(names)) for name, made in step.items()})
    return frame


def in_array(positions: Sql, of: Sequence[Step]) -> Sql:
    """An array of structures, one for each of the positions."""
    known, array = ["position"], f"transform({positions}, p -> named_struct('position', p))"
    for step in of:
        fields = [f"'{name}', m.{name}" for name in known]
        fields += [f"'{name}', {made.format_map(_Names('m.'))}" for name, made in step.items()]
        array = f"transform({array}, m -> named_struct({', '.join(fields)}))"
        known += step
    return array


class _Names(dict[str, str]):
    """The columns of a row or of an array's element, by their names."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def __missing__(self, name: str) -> str:
        return f"{self._prefix}{name}"


# Parts of expressions


def drawn(shape: Shape, bound: int, label: str, *of: Sql) -> Sql:
    """A whole number below the bound that looks random, and is the same whenever it is asked for."""
    return f"pmod(xxhash64({shape.seed}L, '{label}', {', '.join(of)}), {bound}L)"


def looked_up(values: Sequence[int] | Sequence[str], index: Sql) -> Sql:
    literals = ", ".join(f"'{value}'" if isinstance(value, str) else f"{value}L" for value in values)
    return f"element_at(array({literals}), cast({index} as int) + 1)"


def first_cycle(index: Sql, cycle: Sql) -> Sql:
    """The cycle in which the incarnation began that the node of this index has in a cycle."""
    return f"greatest(0L, ({cycle} + {index}) div {RESTART_CYCLES} * {RESTART_CYCLES} - {index})"


def incarnation_of(index: Sql, cycle: Sql) -> Sql:
    return f"({first_cycle(index, cycle)} + {FIRST_INCARNATION}L)"


def cycle_start_us(shape: Shape, cycle: Sql) -> Sql:
    return f"({cycle} * {shape.cycle_us}L + {START_US}L)"


def split_us(shape: Shape, cycle: Sql) -> Sql:
    """When the network is cut."""
    return f"({cycle_start_us(shape, cycle)} + {MERGE_US + shape.together_rounds * ROUND_US}L)"


def round_us(shape: Shape, cycle: Sql, phase: Sql, index: Sql) -> Sql:
    """When a round begins. The first round of red messages is in time the last one together at the minority."""
    red_round_us = shape.apart_rounds * ROUND_US // shape.red_rounds
    split = split_us(shape, cycle)
    together = f"{cycle_start_us(shape, cycle)} + {MERGE_US}L"
    return f"""(case when {phase} = {TOGETHER} then {together} + {index} * {ROUND_US}L
        when {phase} = {APART} then {split} + {SPLIT_US}L + {index} * {ROUND_US}L
        when {index} > 0 then {split} + {SPLIT_US}L + {index} * {red_round_us}L
        else {split} end)"""


def view_of(shape: Shape, cycle: Sql, phase: Sql, index: Sql) -> Sql:
    """The view in which messages of a phase are sent by the side that the node of this index is on."""
    apart_clock = 2 * (shape.together + shape.minority) + 15
    first = f"if({phase} = {TOGETHER} or {index} < {shape.majority}, 0L, {shape.majority}L)"
    return f"""concat({cycle} * {2 * shape.cycle}L + if({phase} = {TOGETHER}, 15L, {apart_clock}L), '.',
        {looked_up(shape.names, first)}, '.', {incarnation_of(first, cycle)})"""


def revision_after(position: Sql) -> Sql:
    """The revision of the green state after the message at this position, or before any if it is negative."""
    places, sums = len(APPLIED_BY_PLACE), list(accumulate(APPLIED_BY_PLACE))
    after = f"{position} div {places} * {sums[-1]} + {looked_up(sums, f'{position} % {places}')}"
    return f"if({position} < 0, 0L, {after})"


def applied_writes(position: Sql) -> Sql:
    """How many of a message's writes are applied."""
    return looked_up(APPLIED_BY_PLACE, f"{position} % {len(APPLIED_BY_PLACE)}")


# Steps


def _place(shape: Shape) -> Step:
    offset = f"({{position}} % {shape.cycle}L)"
    return {
        "cycle": f"{{position}} div {shape.cycle}L",
        "offset": offset,
        "phase": f"if({offset} < {shape.together}, {TOGETHER}, if({offset} < {shape.together + shape.apart}, "
        f"{APART}, {RED}))",
    }


def _by_phase(together: int, apart: int, red: int) -> Sql:
    return f"if({{phase}} = {TOGETHER}, {together}L, if({{phase}} = {APART}, {apart}L, {red}L))"


def _round(shape: Shape) -> Step:
    within = f"({{offset}} - {_by_phase(0, shape.together, shape.together + shape.apart)})"
    width = _by_phase(shape.nodes, shape.majority, shape.minority)
    return {"round": f"{within} div {width}", "place": f"{within} % {width}", "width": width}


def _sender(shape: Shape) -> Step:
    """In each round the members take turns from another one on."""
    turn = f"pmod(xxhash64({shape.seed}L, {{cycle}}, {{phase}}, {{round}}), {{width}})"
    return {"index": f"({{place}} + {turn}) % {{width}} + {_by_phase(0, 0, shape.majority)}"}


def _identity(shape: Shape) -> Step:
    began = first_cycle("{index}", "{cycle}")
    rounds = f"if({{index}} < {shape.majority}, {shape.apart_rounds}, {shape.red_rounds})"
    sequence = f"""(({{cycle}} - {began}) * ({rounds} + {shape.together_rounds})
        + if({{phase}} = {TOGETHER}, 0, {shape.together_rounds}) + {{round}} + 1)"""
    sender, incarnation = looked_up(shape.names, "{index}"), incarnation_of("{index}", "{cycle}")
    return {
        "sender": sender,
        "incarnation": incarnation,
        "sequence": sequence,
        "id": f"concat({sender}, '.', {incarnation}, '.', {sequence})",
    }


def _content(shape: Shape) -> Step:
    """Even clocks are of messages, odd ones of views. On both sides they go on from when the network was cut."""
    moved = f"if({{phase}} = {TOGETHER}, 0, if({{phase}} = {APART}, {shape.minority}, -{shape.apart}))"
    writes = looked_up(WRITES_BY_PLACE, f"{{position}} % {len(WRITES_BY_PLACE)}")
    begins = round_us(shape, "{cycle}", "{phase}", "{round}")
    return {
        "clock": f"({{position}} + {moved}) * 2 + 16",
        "writes": writes,
        "bytes": f"{writes} * 120 + 60 + {drawn(shape, 64, 'bytes', '{position}')}",
        "revision": revision_after("{position}"),
        "sent_us": f"{begins} + {drawn(shape, 300, 'sent', '{position}')}",
    }
