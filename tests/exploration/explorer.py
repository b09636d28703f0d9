"""Explores all states of a world breadth first, so that the trace of the first offence is a shortest one."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from membership.messages import AttemptJoin, Control, Join
from tests.exploration.node import Install, Violation
from tests.exploration.world import Action, Offence, State, World
from transport.messages import Machine

_TIMEOUTS = ("unresponsive", "departed")
_PROGRESS_EVERY = 4_096


@dataclass(slots=True)
class Exploration:
    """What an exploration found. It is complete if every state that can be reached was looked at."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    """The length of the longest of the shortest ways to each state."""
    at_rest: int = 0
    """States in which nothing needs to happen any more."""
    timeouts: int = 0
    """States in which only a timeout helps."""
    nodes: int = 0
    is_complete: bool = False
    cpu_seconds: float = 0.0
    offence: str = ""
    trace: list[str] = field(default_factory=list)


def explore(
    world: World,
    depth_max: int | None = None,
    states_max: int | None = None,
    progress: Callable[[int, int], None] = lambda states, depth: None,
) -> Exploration:
    """Looks at every state, or at those within the bounds, until one is an offence. It ends only between depths,
    so that a bound means the same every time. It calls `progress` now and then with the number of states and the
    depth."""
    is_collecting = gc.isenabled()
    gc.disable()  # there is no garbage, and looking for it among millions of objects takes half the time
    try:
        return _explore(world, depth_max, states_max, progress)
    finally:
        if is_collecting:
            gc.enable()


def _explore(
    world: World, depth_max: int | None, states_max: int | None, progress: Callable[[int, int], None]
) -> Exploration:
    found = Exploration()
    began = time.process_time()
    numbers: dict[State, int] = {world.start: 0}
    parents = array("Q", (0,))
    frontier = [world.start]
    while frontier and (depth_max is None or found.depth < depth_max):
        following: list[State] = []
        for place, state in enumerate(frontier):
            if place % _PROGRESS_EVERY == 0:
                progress(len(numbers), found.depth)
            try:
                successors, is_at_rest = world.successors(state)
            except Offence as offence:
                found.offence = offence.reason
                found.trace = _trace(world, list(numbers), parents, numbers[state], offence.action)
                following = []
                break
            found.at_rest += is_at_rest
            found.timeouts += bool(successors) and successors[0][0].kind in _TIMEOUTS
            found.transitions += len(successors)
            number = numbers[state]
            for _, after in successors:
                if after not in numbers:
                    numbers[after] = len(parents)
                    parents.append(number)
                    following.append(after)
        frontier = following
        found.depth += bool(frontier)
        if states_max is not None and len(numbers) >= states_max:
            break
    found.is_complete = not frontier and not found.offence
    found.states, found.nodes = len(numbers), len(world.nodes)
    found.cpu_seconds = time.process_time() - began
    return found


def _trace(world: World, states: list[State], parents: array[int], number: int, last: Action | None) -> list[str]:
    """Describes the actions that lead to a state, and the one that would come next, each with its results."""
    path = [number]
    while path[-1]:
        path.append(parents[path[-1]])
    path.reverse()
    lines: list[str] = []
    for before, after in pairwise(path):
        actions = world.successors(states[before])[0]
        action = next(action for action, state in actions if state == states[after])
        lines += _told(world, states[before], action)
    if last is not None:
        lines += _told(world, states[number], last)
    return lines


def _told(world: World, state: State, action: Action) -> list[str]:
    names = [machine.name for machine in world.machines]
    words = [names[action.machine], action.kind]
    if action.other >= 0:
        words.append(names[action.other])
    if action.control:
        words.append(_described(world.nodes.controls[action.control]))
    lines = [" ".join(words)]
    if action.kind in ("lose", "crash"):
        return lines
    try:
        step = world.step(state, action)
    except Violation as violation:
        return [*lines, f"    {violation}"]
    before, after = world.nodes.facts(state[action.machine]), world.nodes.facts(step.node)
    lines += [f"    sends {_described(world.nodes.controls[control])}" for control in step.emitted]
    lines += [f"    installs {_installed(world.nodes.installs[install])}" for install in step.installs]
    if after.stage is not before.stage:
        lines.append(f"    is {after.stage}")
    return lines


def _described(control: Control) -> str:
    body = control.body
    if isinstance(body, AttemptJoin):
        what = f"AJ {_names(body.joining.machines)}"
    elif isinstance(body, Join):
        what = f"JOIN {_names(body.machines)} without {_names(body.faults)}"
    else:
        what = f"FA {_names(body.faults)}"
    acks = ",".join(f"{machine.name}{sequence}" for machine, sequence in control.acks)
    return f"[{control.sender.name}{control.sequence} @{control.clock} {what}; follows {acks or '-'}]"


def _installed(install: Install) -> str:
    view = install.view
    covered = ",".join(f"{machine.name}{sequence}" for machine, sequence in install.covered)
    return (
        f"{view.id} of {_names(view.members)}, with {_names(view.transitional)} from {install.before}, {covered}"
    )


def _names(machines: Iterable[Machine]) -> str:
    return "".join(sorted(machine.name for machine in machines)) or "-"
