"""The cases: who is in which view at first, what has been sent in it, and what may go wrong.

Where a view has several members, one of them lacks a message of it: that may arrive at any time, be required of
the survivors, or never be delivered anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from typing import NamedTuple

from tests.exploration.node import Node
from tests.exploration.world import Budget, Rules, World
from transport.messages import Machine, View, ViewId

A, B, C = (Machine(name, 1) for name in "abc")


class Case(NamedTuple):
    """What is explored, perhaps in parts: nobody but the given machines fails, suspects, or tries to join in each.
    Together they are the whole; each alone fits the memory."""

    name: str
    about: str
    start: Callable[[Rules], World]
    parts: tuple[Rules, ...]
    depth_max: int | None = None
    """Where the exploration ends, if there is too much to be complete."""

    def worlds(self) -> list[World]:
        return [self.start(rules) for rules in self.parts]


def three(rules: Rules) -> World:
    """One view of three. Of c's message a knows, and b does not."""
    view = View(ViewId(3, *B), (A, B, C), (A, B, C))
    held = {A: {A: 0, B: 0, C: 1}, B: {A: 0, B: 0, C: 0}, C: {A: 0, B: 0, C: 1}}
    return World([Node.start(me, view, 3, held[me]) for me in view.members], rules, {(view.id, C): 1})


def two(rules: Rules) -> World:
    """Two machines, each alone."""
    views = [View(ViewId(1, *me), (me,), (me,)) for me in (A, B)]
    return World([Node.start(view.members[0], view, 1, {view.members[0]: 0}) for view in views], rules, {})


def merge(rules: Rules) -> World:
    """A view of two, in which b lacks a message of a's, and a machine alone."""
    pair, alone = View(ViewId(3, *B), (A, B), (A, B)), View(ViewId(1, *C), (C,), (C,))
    start = [
        Node.start(A, pair, 3, {A: 1, B: 0}),
        Node.start(B, pair, 3, {A: 0, B: 0}),
        Node.start(C, alone, 1, {C: 0}),
    ]
    return World(start, rules, {(pair.id, A): 1})


_MERGE = Rules(Budget(attempts=1), is_fifo=True, is_resentful=True, is_mid_join=True)
_CRASH, _SUSPICION = Budget(crashes=1, attempts=1), Budget(suspicions=1, attempts=1)
_PAIRS = tuple(permutations(range(3), 2))

CASES = (
    Case("three-crash", "3 machines, a crash, a loss", three, (Rules(Budget(losses=1, crashes=1)),)),
    Case(
        "three-suspicion", "3 machines, a false suspicion, a loss", three, (Rules(Budget(losses=1, suspicions=1)),)
    ),
    Case(
        "three-both",
        "3 machines, a crash, a false suspicion, a loss",
        three,
        (Rules(Budget(losses=1, crashes=1, suspicions=1)),),
    ),
    Case("two", "1+1 machines join, a loss", two, (Rules(Budget(losses=1, attempts=2, give_ups=2)),)),
    Case(
        "two-crash",
        "1+1 machines join, a crash, a loss",
        two,
        (Rules(Budget(losses=1, crashes=1, attempts=2, give_ups=2)),),
    ),
    Case(
        "merge-small",
        "2+1 machines join, a loss; in order, long α",
        merge,
        (Rules(Budget(losses=1, attempts=1), is_fifo=True, is_alpha_long=True),),
    ),
    Case(
        "merge-small-crash",
        "2+1 machines join, c tries and crashes; in order, long α",
        merge,
        (_MERGE._replace(budget=_CRASH, is_alpha_long=True, crashing=(2,), attempting=(2,)),),
    ),
    Case(
        "merge-small-suspicion",
        "2+1 machines join, c tries, a suspects c; in order, long α",
        merge,
        (_MERGE._replace(budget=_SUSPICION, is_alpha_long=True, suspecting=((0, 2),), attempting=(2,)),),
    ),
    Case("merge", "2+1 machines join, a loss", merge, (Rules(Budget(losses=1, attempts=1)),)),
    Case(
        "merge-crash",
        "2+1 machines join, a crash; in order",
        merge,
        tuple(
            _MERGE._replace(budget=_CRASH, crashing=(dead,), attempting=(eager,))
            for dead, eager in product(range(3), range(3))
        ),
    ),
)
