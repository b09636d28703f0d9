"""Random schedules of bare protocols, drawn from a seed: anything that can happen at some moment may happen next.
Messages come in any order that their links allow, twice, or never; machines crash, or are declared faulty while
they live; α expires at any time. Every view is compared with those of all other machines.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from membership.messages import Control
from membership.stages import Cause, Installed, Output, Stage
from tests.membership.builders import machine, names, short_id
from tests.membership.harness import ROUNDS_MAX, Table
from transport.messages import Machine, ViewId


class Inconsistent(AssertionError):
    """Two machines disagree about a view, or about what came before it."""


class Adversary(Table):
    """A table on which a random generator chooses every event."""

    def __init__(self, seed: int, *components: str) -> None:
        super().__init__(*components)
        self.random = Random(seed)
        self.alive = "".join(sorted("".join(components)))
        self.happened: Counter[str] = Counter()
        self.before: dict[tuple[str, ViewId], ViewId] = {}
        """The view that each machine was in before each of its views."""
        self._is_open = True
        self._deaths_left = self.random.choice((0, 0, 1, 2))
        self._breaks_left = self.random.choice((0, 1, 2, 4))
        self._on_their_way: list[tuple[str, str, int, ViewId]] = []
        """Messages of a view in flight: the receiver, the sender, the sequence and the view."""
        self._voted: dict[Control, ViewId] = {}

    # Events

    def play(self, turns: int) -> None:
        rare = (self._talk, self._listen, self._listen, self._expire, self._try, self._kill, self._break)
        for _ in range(turns):
            self.random.choice((self._hand, *rare) if self.random.random() < 0.4 else (self._hand,))()

    def come_to_rest(self) -> int:
        """Ends the schedule: no machine starts a join any more, every message reaches every live machine, and
        machines that do not answer are extracted. Returns how many rounds of extractions it took until every
        machine had completed the protocol."""
        self._is_open = False
        for extractions in range(ROUNDS_MAX):
            self.settle(self.alive)
            busy = [name for name in self.alive if self[name].stage is not Stage.IDLE]
            if not busy:
                return extractions
            for name in busy:
                self._extract(name)
        raise Inconsistent(f"no rest: {[(name, self[name].stage, self[name].view) for name in self.alive]}")

    def _hand(self) -> None:
        """Hands a control message to a machine: mostly one that it lacks, sometimes an old one."""
        source, target = self.random.choice(self.alive), self.random.choice(self.alive)
        if source == target:
            return
        dag = self[source].dag
        controls = self.lacked(source, target)
        if not controls or self.random.random() < 0.1:
            controls = [control for sender in sorted(dag.logged()) for control in dag.since(sender, 0)]
        if controls:
            self.offer(self.random.choice(controls), target)
            if self.random.random() < 0.7:
                self.recover(target)

    def _talk(self) -> None:
        sender = self.random.choice(self.alive)
        if not self[sender].is_ending_view():
            self.say(sender)
            view = self[sender].view
            sequence = self.planes[sender].here[self[sender].me]
            others = [member.name for member in view.members if member.name != sender]
            self._on_their_way += [(other, sender, sequence, view.id) for other in others]

    def _listen(self) -> None:
        if self._on_their_way:
            target, sender, sequence, view = self._on_their_way.pop(self.random.randrange(len(self._on_their_way)))
            if target in self.alive and self[target].view.id == view:
                self.hear(target, sender, sequence)

    def _expire(self) -> None:
        self.alpha(self.random.choice(self.alive))

    def _try(self) -> None:
        name = self.random.choice(self.alive)
        if self._is_whole(name) and len(self[name].current) < len(self.alive):
            self.attempt(name)

    def _kill(self) -> None:
        if self._deaths_left and len(self.alive) > 2 and self.random.random() < 0.2:
            self._deaths_left -= 1
            self.alive = self.alive.replace(self.random.choice(self.alive), "")
            self.happened["deaths"] += 1

    def _break(self) -> None:
        if self._breaks_left and self.random.random() < 0.3:
            self._breaks_left -= 1
            name = self.random.choice(self.alive)
            self.break_with(name, self.random.choice(names(self[name].accept) or name))
            self.happened["breaks"] += 1

    def _extract(self, name: str) -> None:
        """Does what a timeout does: breaks with the machines that this one waits for, the dead ones first."""
        awaited = names(self[name].awaited())
        dead = "".join(other for other in awaited if other not in self.alive)
        self.happened["unresponsive"] += 0 if dead else len(awaited)
        self.break_with(name, dead or awaited, Cause.UNRESPONSIVE)

    # What `Group` knows from heartbeats

    def offer(self, control: Control, target: str) -> None:
        sender = control.sender
        if sender in self[target].dag.streams or self[sender.name].view.id == control.view:
            super().offer(control, target)

    def may_join(self, me: str, others: frozenset[Machine]) -> bool:
        return (
            self._is_open
            and super().may_join(me, others)
            and (self[me].stage is not Stage.IDLE or self._is_whole(me))
        )

    def _is_whole(self, name: str) -> bool:
        return all(self[member.name].view.id == self[name].view.id for member in self[name].current)

    # Consistency

    def execute(self, name: str, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Installed):
                self._check(name, output)
        super().execute(name, outputs)

    def _check(self, name: str, new: Installed) -> None:
        self.happened["views"] += 1
        old = self.installed(name)[-1].view.id if self.installed(name) else self.first_views[name].id
        self.before[(name, new.view.id)] = old
        for other in self.protocols:
            for theirs in self.installed(other):
                if theirs.view.id == new.view.id:
                    self._compare(name, new, other, theirs)
        for elector in new.electors:
            if self._voted.setdefault(elector, new.view.id) != new.view.id:
                raise Inconsistent(f"{short_id(elector)} made {self._voted[elector]}, and at {name} {new.view}")

    def _compare(self, name: str, new: Installed, other: str, theirs: Installed) -> None:
        mine = (new.view.members, new.expected, new.electors)
        if mine != (theirs.view.members, theirs.expected, theirs.electors):
            raise Inconsistent(f"{name} and {other} disagree about {new.view.id}: {new} and {theirs}")
        came_together = self.before[(name, new.view.id)] == self.before[(other, new.view.id)]
        if came_together != (machine(other) in new.view.transitional):
            raise Inconsistent(f"{name} has a transitional set {new.view.transitional} with {other}")
        if came_together and new.covered != theirs.covered:
            raise Inconsistent(f"{name} and {other} end a view with {new.covered} and {theirs.covered}")
        self.happened["compared"] += 1
