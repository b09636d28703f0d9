"""What synthetic nodes journal when the network changes, but for the records that name messages (`transfers`).

These are few, some dozen for each node and cycle, so they are made here one by one, in the order in which a real
node writes them and at fixed times after the change began."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from spark.generator.shape import APPLIED_BY_PLACE, ROUND_US, SPLIT_US, Shape


class Plain(NamedTuple):
    """A record, its fields as the end of a JSON object."""

    cycle: int
    node: str
    incarnation: int
    us: int
    event: str
    rest: str


@dataclass(frozen=True, slots=True)
class _Lines:
    """Where the colours of a node's queue end."""

    green: int
    yellow: int
    length: int

    def fields(self) -> dict[str, int]:
        return {"green": self.green, "yellow": self.yellow, "length": self.length}


def changes_of(shape: Shape, cycle: int) -> Iterator[Plain]:
    """The records of all changes in one cycle, at all nodes."""
    for index in range(shape.nodes):
        node = _Node(shape, cycle, index)
        yield from node.begins() if cycle == 0 else node.merges()
        yield from node.splits()
        yield from node.network()
        if cycle == shape.cycles - 1:
            yield node.record(shape.start_us(cycle + 1) - 100, "stopped", reason="closed")


class _Node:
    """One node in one cycle."""

    def __init__(self, shape: Shape, cycle: int, index: int) -> None:
        self.shape = shape
        self.cycle = cycle
        self.index = index
        self.base = cycle * shape.cycle
        self.is_majority = index < shape.majority
        self.random = Random(f"{shape.seed} {cycle} {index}")
        self.mine = shape.side(cycle, self.is_majority)
        self.others = shape.side(cycle, not self.is_majority)
        self.machine = shape.machine(index, cycle)

    def record(self, at_us: int, event: str, **fields: object) -> Plain:
        rest = json.dumps(fields, separators=(",", ":"))
        incarnation = self.shape.incarnation(self.index, self.cycle)
        return Plain(self.cycle, self.shape.names[self.index], incarnation, at_us, event, f",{rest[1:]}")

    def begins(self) -> Iterator[Plain]:
        """The cluster's first primary component."""
        shape, start = self.shape, self.shape.start_us(0)
        empty = _Lines(0, 0, 0)
        yield from self._starts(start, empty, 0)
        yield from self._view(start + 100_000, shape.view_together(0), shape.machines(0), [self.machine], empty, 0)
        yield from self._establishes(start + 300_000, shape.view_together(0), 1, empty, 0, shape.machines(0))

    def merges(self) -> Iterator[Plain]:
        """All nodes are together again; some have just been restarted."""
        shape, start = self.shape, self.shape.start_us(self.cycle)
        split = self.base - shape.cycle + shape.together
        line = split + shape.apart
        lines = _Lines(line, line, line)
        if not self.is_majority:
            lines = _Lines(split - shape.nodes, split + shape.minority, split + shape.reds)
        known = 2 * self.cycle - (0 if self.is_majority else 1)
        if shape.restarts(self.index, self.cycle):
            before = shape.incarnation(self.index, self.cycle - 1)
            yield self.record(start + 10_000, "stopped", reason="closed")._replace(incarnation=before)
            yield from self._starts(start, lines, known)
        view, everyone = shape.view_together(self.cycle), shape.machines(self.cycle)
        yield from self._view(start + 100_000, view, everyone, self._came_along(), lines, known)
        states = {"committed": 2 * self.cycle, "representative": everyone[0], "green": line, "yellow": line}
        states["priority_from"] = split - shape.nodes
        yield self.record(start + 120_000, "states_exchanged", view=view, reason="states", **states)
        if not self.is_majority:
            adopted = _Lines(line, line, line + shape.reds)
            yield self.record(start + 166_000, "reordered", **adopted.fields())
        if self.index == shape.majority:
            fields = {"view": view, "reason": "states", "count": shape.reds}
            yield self.record(start + 167_000, "retransmitting", **fields)
        merged = _Lines(line, line, self.base)
        yield self.record(start + 250_000, "reds_merged", view=view, reason="recovered")
        yield self.record(start + 250_100, "reordered", **merged.fields())
        number = 2 * self.cycle + 1
        yield from self._establishes(start + 300_000, view, number, merged, number - 1, everyone)

    def splits(self) -> Iterator[Plain]:
        """The minority is cut off. The majority forms the next primary component."""
        shape, start = self.shape, self.shape.split_us(self.cycle)
        line = self.base + shape.together
        length = line if self.is_majority else line + shape.minority
        lines = _Lines(line - shape.nodes, length, length)
        view = shape.view_apart(self.cycle, self.is_majority)
        number = 2 * self.cycle + 1
        together = shape.view_together(self.cycle)
        yield self.record(start + 400_000, "suspected", view=together, reason="silent", machines=self.others)
        yield from self._view(start + 402_000, view, self.mine, self.mine, lines, number)
        states = {"committed": number, "representative": self.mine[0], "green": lines.green, "yellow": length}
        fields = {"view": view, "reason": "states", **states, "priority_from": None}
        yield self.record(start + 415_000, "states_exchanged", **fields)
        if self.is_majority:
            yield from self._establishes(start + 416_000, view, number + 1, lines, number, self.mine)
        else:
            yield self._stage(start + 416_000, view, "non_primary", "no_majority", lines, number, number)

    def network(self) -> Iterator[Plain]:
        """What came over the links, with some loss, and flow control that held the node back for a while."""
        shape, lossy = self.shape, self.shape.split_us(self.cycle) - ROUND_US
        ends = self.shape.split_us(self.cycle) + SPLIT_US + (shape.apart_rounds - 1) * ROUND_US
        sequence = self.cycle * 100 + 1
        for machine in shape.machines(self.cycle):
            if machine == self.machine:
                continue
            lost = self.random.randrange(5)
            if lost:
                fields = {"machine": machine, "reason": "new", "firsts": [sequence], "counts": [lost]}
                yield self.record(lossy, "nacked", **fields)
            yield self.record(
                ends,
                "links",
                machine=machine,
                packets=shape.together_rounds + lost,
                bytes=400 * (shape.together_rounds + lost),
                retransmissions=lost,
                duplicates=lost // 2,
                requested_units=lost,
                repeated_units=0,
            )
        resent = {"machine": self.machine, "first": sequence, "last": sequence, "bytes": 400}
        yield self.record(lossy + 700, "retransmitted", **resent)
        yield self.record(lossy + 900, "blocked", reason="window_full", window_messages=64)
        yield self.record(lossy + 1_900, "unblocked", reason="window_open", window_messages=2)

    def _starts(self, start_us: int, lines: _Lines, known: int) -> Iterator[Plain]:
        """The node begins, alone in its view."""
        alone = f"{2 * lines.green + 1}.{self.machine}"
        names, revision = self.shape.names, revision_at(lines.green)
        fields = {"cluster": "synthetic", "roster": names, "software": "synthetic", **lines.fields()}
        yield self.record(start_us + 20_000, "started", **fields, revision=revision)
        members = {"members": [self.machine], "transitional": [self.machine]}
        yield self.record(start_us + 20_100, "view", view=alone, reason="start", **members)
        yield self._stage(start_us + 21_000, alone, "recovering", "view_changed", lines, known, known)
        yield self._stage(start_us + 30_000, alone, "non_primary", "no_majority", lines, known, known)

    def _view(
        self, at_us: int, view: str, members: Sequence[str], transitional: Sequence[str], lines: _Lines, known: int
    ) -> Iterator[Plain]:
        fields = {"view": view, "reason": "assented", "members": members, "transitional": transitional}
        yield self.record(at_us, "view", **fields)
        yield self._stage(at_us + 1_000, view, "recovering", "view_changed", lines, known, known)

    def _establishes(
        self, at_us: int, view: str, number: int, lines: _Lines, known: int, members: Sequence[str]
    ) -> Iterator[Plain]:
        """The three phases of Fig. 3. What is in the queue becomes yellow, then green."""
        length = lines.length
        done = _Lines(length, length, length)
        majority = {"view": view, "reason": "majority"}
        yield self._stage(at_us, view, "establishing", "majority", lines, known, number)
        yield self.record(at_us + 1_000, "attempted", **majority, number=number)
        yellow = _Lines(lines.green, length, length)
        yield self.record(at_us + 20_000, "reordered", **yellow.fields())
        yield self.record(at_us + 21_000, "committed", **majority, number=number, length=length)
        yield self._stage(at_us + 50_000, view, "primary", "committed_by_all", done, number, number)
        fields = {"view": view, "reason": "committed_by_all", "number": number, "members": members}
        yield self.record(at_us + 51_000, "established", **fields)

    def _stage(
        self, at_us: int, view: str, stage: str, reason: str, lines: _Lines, committed: int, attempted: int
    ) -> Plain:
        numbers = {"committed": committed, "attempted": attempted}
        return self.record(at_us, "stage", view=view, reason=reason, stage=stage, **lines.fields(), **numbers)

    def _came_along(self) -> list[str]:
        """The members of the view in which all are together that come from the same view as this node."""
        shape = self.shape
        if shape.restarts(self.index, self.cycle):
            return [self.machine]
        side = range(shape.majority) if self.is_majority else range(shape.majority, shape.nodes)
        return [shape.machine(index, self.cycle) for index in side if not shape.restarts(index, self.cycle)]


def revision_at(line: int) -> int:
    """The revision of the green state when so many messages are applied."""
    whole, rest = divmod(line, len(APPLIED_BY_PLACE))
    return whole * sum(APPLIED_BY_PLACE) + sum(APPLIED_BY_PLACE[:rest])
