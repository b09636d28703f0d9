"""The world around the protocols: what can happen in each state, and the state after it.

A state is a tuple of small numbers: every machine's node (0 if it has crashed), the copies of control messages in
flight, what may still go wrong, and the views that were installed. Each number stands for an entry of a table.

The model, where it is not obvious:

- A control message is broadcast: a copy for every other machine that lives, member or not. Copies arrive in any
  order; or, to have fewer states, those of one sender at one receiver in the order sent, but for lost ones.
- A copy that was lost, or was not wanted when it arrived, is repeated to the machine that lacks it by one that has
  it, under the conditions of `Group`. A crashed sender's copies stay in flight, and may never arrive.
- A message of the view may arrive whenever the transport would let it in, from any holder or late from a dead one.
- A machine may break with a crashed one at any time; with a live one at the cost of the budget, or for free where
  nothing else happens any more: that is what the timeouts of `Group` do.
- A machine considers its view whole, so that it may be invited, if every member has ever installed it. `Group`
  knows that from heartbeats, which may be old.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from membership.stages import Cause, Stage
from tests.exploration import safety
from tests.exploration.node import Install, Node, Violation
from tests.exploration.nodes import Facts, Nodes, Step, Table
from transport.messages import Machine, ViewId

State: TypeAlias = tuple[int, ...]
"""The machines' nodes, then the copies in flight, the budget and the installations."""

Copies: TypeAlias = tuple[tuple[int, int], ...]
"""The control message and the receiver of each copy in flight."""

_CRASHED = 0


class Budget(NamedTuple):
    """How often something may still go wrong, or be tried."""

    losses: int = 0
    crashes: int = 0
    suspicions: int = 0
    """Breaks with live machines."""
    attempts: int = 0
    give_ups: int = 0
    """Expiries of α when no machine has answered, while answers are in flight. Every repeated invitation could be
    given up again, so without a bound there would be no end."""


class Rules(NamedTuple):
    """What may happen at all. Machines are given by their indices; `None` means all of them."""

    budget: Budget
    is_fifo: bool = False
    """Whether copies of one sender arrive in order at each receiver."""
    is_alpha_long: bool = False
    """Whether α expires only when nothing is in flight to the machine any more."""
    is_resentful: bool = False
    """Whether a machine that has left, or did not join, is never joined with again; `Group` makes it back off."""
    is_mid_join: bool = False
    """Whether crashes and suspicions happen only while a machine is joining."""
    is_crash_an_excuse: bool = False
    """Whether a timeout may be needed after a crash too. So it is if the dead machine alone had a message that its
    JOIN covers: a foreign machine may follow that JOIN, but members of the view cannot, nor what follows it."""
    crashing: tuple[int, ...] | None = None
    suspecting: tuple[tuple[int, int], ...] | None = None
    """The pairs of a machine and one that it may suspect falsely."""
    attempting: tuple[int, ...] | None = None


class Action(NamedTuple):
    """Something that happens at a machine; `other` is a machine too, or -1 if there is no other."""

    kind: str
    machine: int
    other: int = -1
    control: int = 0


class Offence(Exception):
    """The state, or the one after the action, is forbidden."""

    def __init__(self, reason: str, action: Action | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.action = action


class World:
    """All states that a case can reach. `sent` says how many messages each machine has sent in its first view."""

    def __init__(self, start: list[Node], rules: Rules, sent: dict[tuple[ViewId, Machine], int]) -> None:
        self.machines = [node.me for node in start]
        self.rules = rules
        self.nodes = Nodes(self.machines, sent)
        self._flights: Table[Copies] = Table()
        self._budgets: Table[Budget] = Table()
        self._histories: Table[tuple[int, ...]] = Table()
        self._next_histories: dict[tuple[int, int], int] = {}
        self._whole: dict[tuple[int, ViewId], bool] = {}
        for node in start:
            node.grudges = frozenset() if rules.is_resentful else None
        first = [Install(node.me, None, node.protocol.view, (), (), None, ()) for node in start]
        history = tuple(map(self.nodes.installs.number, first))
        self.start: State = (
            *map(self.nodes.add, start),
            self._flights.number(()),
            self._budgets.number(rules.budget),
            self._histories.number(history),
        )

    # What can happen

    def successors(self, state: State) -> tuple[list[tuple[Action, State]], bool]:
        """Returns all actions that are possible, with the states after them, and whether every machine is at rest,
        so that none of them has to happen. Raises `Offence` if the state or one after it is forbidden."""
        facts = self._facts(state)
        forced: list[Action] = []
        optional: list[Action] = []
        for index in facts:
            self._arrivals(state, index, facts, forced, optional)
            self._own_moves(state, index, facts, forced, optional)
        self._mishaps(state, facts, optional)
        forced_states = self._all_after(state, forced)
        optional_states = self._all_after(state, optional)
        if forced_states:
            return forced_states + optional_states, False
        timeouts = [Action("alpha", index) for index in facts if facts[index].stage is Stage.GATHERING]
        timeouts = timeouts or self._timeouts(state, facts)
        if timeouts:
            return self._all_after(state, timeouts) + optional_states, False
        self._check_rest(facts)
        return optional_states, True

    def _arrivals(
        self, state: State, index: int, facts: dict[int, Facts], forced: list[Action], optional: list[Action]
    ) -> None:
        ours, places = facts[index], self.nodes.places
        repeats: dict[int, int] = {}
        for holder, theirs in facts.items():
            if holder != index:
                for control in self.nodes.repeats(theirs, ours):
                    repeats.setdefault(control, holder)
        copies = [control for control, receiver in self._flights[state[-3]] if receiver == index]
        overtaken: set[int] = set()
        if self.rules.is_fifo:
            copies.sort(key=places.__getitem__)
        for control in copies:
            sender = places[control][0]
            is_dead = state[sender] == _CRASHED
            is_repeated = repeats.pop(control, None) is not None and is_dead
            if sender not in overtaken or is_repeated:
                (optional if is_dead and not is_repeated else forced).append(
                    Action("deliver", index, sender, control)
                )
            if self.rules.is_fifo:
                overtaken.add(sender)
        forced.extend(Action("repeat", index, holder, control) for control, holder in repeats.items())
        for sender, sequence in ours.fetchable:
            others = (state[holder] for holder in facts if holder != index)
            is_live = any(self.nodes.could_answer(holder, ours.view, sender, sequence) for holder in others)
            (forced if is_live else optional).append(Action("fetch", index, sender))

    def _own_moves(
        self, state: State, index: int, facts: dict[int, Facts], forced: list[Action], optional: list[Action]
    ) -> None:
        ours, budget, rules = facts[index], self._budgets[state[-2]], self.rules
        if ours.stage is Stage.GATHERING:
            if not ours.would_give_up:
                if not (rules.is_alpha_long and self._is_expecting(forced, index)):
                    forced.append(Action("alpha", index))
            elif budget.give_ups:
                optional.append(Action("give up", index))
        elif ours.stage is Stage.IDLE and budget.attempts and self._is_whole(state[-1], ours):
            is_allowed = rules.attempting is None or index in rules.attempting
            if is_allowed and any(other in facts for other in ours.foreign):
                optional.append(Action("attempt", index))
        for other in ours.watched:
            if other not in facts:
                forced.append(Action("break", index, other))
            elif budget.suspicions and (rules.suspecting is None or (index, other) in rules.suspecting):
                optional.append(Action("suspect", index, other))

    def _mishaps(self, state: State, facts: dict[int, Facts], optional: list[Action]) -> None:
        budget, rules = self._budgets[state[-2]], self.rules
        if budget.losses:
            optional.extend(
                Action("lose", receiver, -1, control) for control, receiver in self._flights[state[-3]]
            )
        if budget.crashes:
            optional.extend(Action("crash", i) for i in facts if rules.crashing is None or i in rules.crashing)
        if rules.is_mid_join and all(theirs.stage not in _JOINING for theirs in facts.values()):
            optional[:] = [action for action in optional if action.kind not in ("crash", "suspect")]

    def _timeouts(self, state: State, facts: dict[int, Facts]) -> list[Action]:
        """Where nothing else happens, a machine breaks with those that do not answer or are in another view."""
        timeouts: list[Action] = []
        for index, ours in facts.items():
            if ours.stage is not Stage.IDLE:
                if not ours.awaited:
                    raise Offence(f"{self.machines[index]} is in {ours.stage} for ever, and waits for nobody else")
                timeouts.append(Action("unresponsive", index))
            elif self._departed(ours, facts):
                timeouts.append(Action("departed", index))
        left, budget = self._budgets[state[-2]], self.rules.budget
        is_excused = self.rules.is_crash_an_excuse and left.crashes < budget.crashes
        if timeouts and left.suspicions == budget.suspicions and not is_excused:
            who = " and ".join(str(self.machines[timeout.machine]) for timeout in timeouts)
            raise Offence(f"nobody is suspected falsely, but only a timeout helps {who}")
        return timeouts

    def _check_rest(self, facts: dict[int, Facts]) -> None:
        for index, ours in facts.items():
            for other in ours.members:
                if other not in facts or facts[other].view != ours.view:
                    raise Offence(
                        f"{self.machines[index]} is in {ours.view} for ever, {self.machines[other]} is not"
                    )

    # The states after it

    def _all_after(self, state: State, actions: Iterable[Action]) -> list[tuple[Action, State]]:
        states: list[tuple[Action, State]] = []
        for action in actions:
            try:
                after = self._after(state, action)
            except Violation as violation:
                raise Offence(str(violation), action) from violation
            if after != state:
                states.append((action, after))
        return states

    def _after(self, state: State, action: Action) -> State:
        kind, index = action.kind, action.machine
        if kind == "lose":
            return self._lose(state, (action.control, index))
        if kind == "crash":
            return self._crash(state, index)
        step = self.step(state, action)
        budget = state[-2]
        if kind in _COSTS:
            cost, left = _COSTS[kind], self._budgets[budget]
            budget = self._budgets.number(left._replace(**{cost: getattr(left, cost) - 1}))
        return (
            *state[:index],
            step.node,
            *state[index + 1 : -3],
            self._flight_after(state, action, step),
            budget,
            self._history_after(state[-1], step),
        )

    def step(self, state: State, action: Action) -> Step:
        """Returns the result of the action for the machine's node."""
        kind, number, nodes = action.kind, state[action.machine], self.nodes
        if kind in ("deliver", "repeat"):
            facts = nodes.facts(number)
            is_whole = facts.stage is not Stage.IDLE or self._is_whole(state[-1], facts)
            return nodes.step(number, "offer", action.control, is_whole)
        if kind == "fetch":
            return nodes.step(number, "fetch", action.other)
        if kind in ("alpha", "give up"):
            return nodes.step(number, "alpha")
        if kind == "attempt":
            return nodes.step(number, "attempt")
        if kind == "unresponsive":
            return nodes.step(number, Cause.UNRESPONSIVE, _bits(nodes.facts(number).awaited))
        if kind == "departed":
            everybody = self._facts(state)
            departed = self._departed(everybody[action.machine], everybody)
            return nodes.step(number, Cause.DEPARTED, _bits(departed))
        return nodes.step(number, Cause.SILENT, 1 << action.other)

    def _flight_after(self, state: State, action: Action, step: Step) -> int:
        """Returns the copies in flight after a step. A copy that its receiver has by now is in flight no more."""
        index, flight = action.machine, self._flights[state[-3]]
        delivered = (action.control, index)
        facts, has = self.nodes.facts(step.node), self.nodes.has
        after = [copy for copy in flight if copy != delivered and not (copy[1] == index and has(facts, copy[0]))]
        if not step.emitted and len(after) == len(flight):
            return state[-3]
        others = [other for other in range(len(self.machines)) if other != index and state[other] != _CRASHED]
        after += [(control, other) for control in step.emitted for other in others]
        after.sort()
        return self._flights.number(tuple(after))

    def _history_after(self, history: int, step: Step) -> int:
        for install in step.installs:
            after = self._next_histories.get((history, install))
            if after is None:
                installs, others = self.nodes.installs, self._histories[history]
                safety.check(installs[install], [installs[other] for other in others])
                after = self._histories.number(tuple(sorted((*others, install))))
                self._next_histories[(history, install)] = after
            history = after
        return history

    def _lose(self, state: State, copy: tuple[int, int]) -> State:
        budget = self._budgets[state[-2]]
        flight = tuple(other for other in self._flights[state[-3]] if other != copy)
        left = self._budgets.number(budget._replace(losses=budget.losses - 1))
        return (*state[:-3], self._flights.number(flight), left, state[-1])

    def _crash(self, state: State, index: int) -> State:
        budget = self._budgets[state[-2]]
        flight = tuple(copy for copy in self._flights[state[-3]] if copy[1] != index)
        left = self._budgets.number(budget._replace(crashes=budget.crashes - 1))
        nodes = (*state[:index], _CRASHED, *state[index + 1 : -3])
        return (*nodes, self._flights.number(flight), left, state[-1])

    # Lookups

    def _is_expecting(self, forced: list[Action], index: int) -> bool:
        return any(action.machine == index and action.kind in ("deliver", "repeat") for action in forced)

    def _facts(self, state: State) -> dict[int, Facts]:
        """Returns the facts about the machines that have not crashed."""
        return {i: self.nodes.facts(state[i]) for i in range(len(self.machines)) if state[i] != _CRASHED}

    def _departed(self, ours: Facts, facts: dict[int, Facts]) -> list[int]:
        return [other for other in ours.members if other in facts and facts[other].view != ours.view]

    def _is_whole(self, history: int, ours: Facts) -> bool:
        key = (history, ours.view)
        is_whole = self._whole.get(key)
        if is_whole is None:
            installs = [self.nodes.installs[install] for install in self._histories[history]]
            there = {install.machine for install in installs if install.view.id == ours.view}
            is_whole = self._whole[key] = all(self.machines[member] in there for member in ours.members)
        return is_whole


_JOINING = (Stage.GATHERING, Stage.COMMITTED)
_COSTS = {"attempt": "attempts", "give up": "give_ups", "suspect": "suspicions"}


def _bits(indices: Iterable[int]) -> int:
    return sum(1 << index for index in indices)
