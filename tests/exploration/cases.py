"""The cases: which machines are in which view at first, what has been sent in it, and what may go wrong.

Where a view has several members, one or more of them lack a message of it: that may arrive at any time, be
required of the survivors, or never be delivered anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import NamedTuple

from tests.exploration.node import Node
from tests.exploration.world import Budget, Rules, World
from transport.messages import Machine, View, ViewId

A, B, C, D = (Machine(name, 1) for name in "abcd")


class Case(NamedTuple):
    """What is explored, perhaps in parts: in each, only the given machines crash, suspect others, or try to join.
    Together the parts are the whole case; each by itself fits into memory."""

    name: str
    about: str
    start: Callable[[Rules], World]
    parts: tuple[Rules, ...]
    depth_max: int | None = None
    """The depth at which the exploration ends, if there are too many states to be complete."""
    is_large: bool = False
    """Whether it is explored only when asked for by name."""

    def part_name(self, rules: Rules) -> str:
        """Says which machines do what in the part; empty if every machine may do everything."""
        names = [machine.name for machine in self.start(rules).machines]
        crashing = [f"{names[i]} crashes" for i in rules.crashing or ()]
        suspecting = [f"{names[i]} suspects {names[other]}" for i, other in rules.suspecting or ()]
        attempting = [f"{names[i]} tries" for i in rules.attempting or ()]
        return ", ".join([*attempting, *crashing, *suspecting])


def three(rules: Rules) -> World:
    """Returns one view of three, in which a has c's message and b does not."""
    view = View(ViewId(3, *B), (A, B, C), (A, B, C))
    held = {A: {A: 0, B: 0, C: 1}, B: {A: 0, B: 0, C: 0}, C: {A: 0, B: 0, C: 1}}
    return World([Node.start(me, view, 3, held[me]) for me in view.members], rules, {(view.id, C): 1})


def four(rules: Rules) -> World:
    """Returns one view of four, in which of the others only a has d's message."""
    view = View(ViewId(3, *B), (A, B, C, D), (A, B, C, D))
    held = {me: {A: 0, B: 0, C: 0, D: int(me in (A, D))} for me in view.members}
    return World([Node.start(me, view, 3, held[me]) for me in view.members], rules, {(view.id, D): 1})


def two(rules: Rules) -> World:
    """Returns two machines, each alone in its view."""
    return World([_alone(A), _alone(B)], rules, {})


def scattered(rules: Rules) -> World:
    """Returns three machines, each alone in its view."""
    return World([_alone(A), _alone(B), _alone(C)], rules, {})


def _alone(me: Machine) -> Node:
    return Node.start(me, View(ViewId(1, *me), (me,), (me,)), 1, {me: 0})


def merge(rules: Rules) -> World:
    """Returns a view of two, in which b lacks a message of a's, and a machine alone in its view."""
    pair = View(ViewId(3, *B), (A, B), (A, B))
    start = [Node.start(A, pair, 3, {A: 1, B: 0}), Node.start(B, pair, 3, {A: 0, B: 0}), _alone(C)]
    return World(start, rules, {(pair.id, A): 1})


_MERGE = Rules(Budget(attempts=1), is_fifo=True, is_resentful=True, is_mid_join=True)
_SMALL = _MERGE._replace(is_alpha_long=True)
_CRASH, _SUSPICION = Budget(crashes=1, attempts=1), Budget(suspicions=1, attempts=1)


def _crashes(rules: Rules) -> tuple[Rules, ...]:
    """Returns a part for each pair of a machine that tries to join and one that crashes. Only a has its message,
    so a's crash is an excuse for a timeout."""
    return tuple(
        rules._replace(budget=_CRASH, crashing=(dead,), attempting=(eager,), is_crash_an_excuse=dead == 0)
        for eager, dead in product(range(3), range(3))
    )


def _suspicions(rules: Rules, pairs: Iterable[tuple[int, int]]) -> tuple[Rules, ...]:
    """Returns a part for each pair of a machine that tries to join and a suspicion."""
    return tuple(
        rules._replace(budget=_SUSPICION, suspecting=(pair,), attempting=(eager,))
        for eager, pair in product(range(3), pairs)
    )


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
    Case("four", "4 machines, two crash; in order", four, (Rules(Budget(crashes=2), is_fifo=True),)),
    Case("two", "1+1 machines join, a loss", two, (Rules(Budget(losses=1, attempts=2, give_ups=2)),)),
    Case(
        "two-crash",
        "1+1 machines join, a crash, a loss",
        two,
        (Rules(Budget(losses=1, crashes=1, attempts=2, give_ups=2)),),
    ),
    Case(
        "two-suspicion",
        "1+1 machines join, a false suspicion, and join again",
        two,
        (Rules(Budget(suspicions=1, attempts=2)),),
        depth_max=13,
    ),
    Case(
        "scattered",
        "1+1+1 machines join, a tries",
        scattered,
        (Rules(Budget(attempts=1), attempting=(0,)),),
        depth_max=12,
    ),
    Case("merge", "2+1 machines join, a loss", merge, (Rules(Budget(losses=1, attempts=1)),)),
    Case(
        "merge-small",
        "2+1 machines join, a loss; in order, long α",
        merge,
        (Rules(Budget(losses=1, attempts=1), is_fifo=True, is_alpha_long=True),),
    ),
    Case(
        "merge-give-up",
        "2+1 machines join, α expires too early for somebody; in order",
        merge,
        (Rules(Budget(attempts=1, give_ups=1), is_fifo=True),),
        depth_max=14,
    ),
    Case("merge-small-crash", "2+1 machines join, a crash; in order, long α", merge, _crashes(_SMALL)),
    Case(
        "merge-small-suspicion",
        "2+1 machines join, a false suspicion of or by c; in order, long α",
        merge,
        _suspicions(_SMALL, ((2, 0), (2, 1), (1, 2), (0, 2))),
    ),
    Case("merge-crash", "2+1 machines join, a crash; in order", merge, _crashes(_MERGE), is_large=True),
    Case(
        "merge-suspicion",
        "2+1 machines join, a false suspicion between a and b; in order, long α",
        merge,
        _suspicions(_SMALL, ((0, 1), (1, 0))),
        depth_max=18,
        is_large=True,
    ),
)
