"""Every node that has been reached, under a number, and the results of inputs to it.

A node's reaction does not depend on the rest of the world, so each is computed once: there are many times as many
states as nodes. The properties of a node that the world asks for again and again are kept beside it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from membership.messages import Control
from membership.protocol import MachineSet
from membership.stages import Cause, Stage
from tests.exploration.node import Install, Node, Violation
from transport.messages import Acks, Machine, ViewId

T = TypeVar("T", bound=Hashable)


class Table(Generic[T]):
    """Numbers values from 1 on, equal ones alike."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self._values: list[T] = []

    def number(self, value: T) -> int:
        number = self._numbers.get(value)
        if number is None:
            self._values.append(value)
            number = self._numbers[value] = len(self._values)
        return number

    def __getitem__(self, number: int) -> T:
        return self._values[number - 1]

    def __len__(self) -> int:
        return len(self._values)


class Step(NamedTuple):
    """The result of an input to a node: the node after it, the messages it sent and the views it installed."""

    node: int
    emitted: tuple[int, ...]
    installs: tuple[int, ...]


class Holdings(NamedTuple):
    """The part of a node that decides which control messages it repeats, and to which machines."""

    me: Machine
    partners: MachineSet
    suspects: MachineSet
    log: frozenset[int]
    own: frozenset[int]
    """Its own messages that it repeats to a machine that does not follow it yet."""
    is_open: bool
    """Whether it repeats those to any such machine, or only to its partners."""


class Wants(NamedTuple):
    """The part of a node that decides which control messages it lacks."""

    me: Machine
    positions: Acks
    pending: frozenset[tuple[Machine, int]]


class Facts(NamedTuple):
    """What the world asks about a node. Machines are given by their indices."""

    stage: Stage
    view: ViewId
    members: tuple[int, ...]
    """The other members of the view."""
    foreign: tuple[int, ...]
    """The machines it would join with."""
    watched: tuple[int, ...]
    """The machines it could break with."""
    fetchable: tuple[tuple[int, int], ...]
    """Messages of the view that it lacks and would take in: the sender and the sequence."""
    awaited: tuple[int, ...]
    would_give_up: bool
    """Whether it would end Stage 1 without a JOIN or FA if α expired now."""
    holdings: int
    wants: int


class Nodes:
    """The table of nodes. `sent` says how many messages each machine has sent in the view it begins with."""

    def __init__(self, machines: list[Machine], sent: dict[tuple[ViewId, Machine], int]) -> None:
        self._machines = machines
        self._sent = sent
        self._nodes: list[Node] = []
        self._facts: list[Facts] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._control_numbers: dict[int, int] = {}
        """The numbers by identity, as comparing control messages takes long; `_seen` keeps all of them alive."""
        self._seen: list[Control] = []
        self._steps: dict[tuple[int, str, int, bool], Step | Violation] = {}
        self._holdings: Table[Holdings] = Table()
        self._wants: Table[Wants] = Table()
        self._repeats: dict[tuple[int, int], tuple[int, ...]] = {}
        self._has: dict[tuple[int, int], bool] = {}
        self.controls: Table[Control] = Table()
        self.places: list[tuple[int, int]] = [(-1, 0)]
        """The index of the sender and the sequence of each control message, by its number."""
        self.installs: Table[Install] = Table()

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number - 1]

    def facts(self, number: int) -> Facts:
        return self._facts[number - 1]

    def add(self, node: Node) -> int:
        fingerprint = node.fingerprint(self._number_of)
        number = self._numbers.get(fingerprint)
        if number is None:
            self._nodes.append(node)
            self._facts.append(self._facts_of(node))
            number = self._numbers[fingerprint] = len(self._nodes)
        return number

    def step(self, number: int, kind: str, subject: int = 0, is_whole: bool = True) -> Step:
        """Feeds an input to a node. Depending on the kind, `subject` is the number of a control message, the index
        of a machine, or a bit for each of several machines."""
        key = (number, kind, subject, is_whole)
        step = self._steps.get(key)
        if step is None:
            try:
                step = self._take(*key)
            except Violation as violation:
                step = violation
            except Exception as error:
                step = Violation(f"{type(error).__name__}: {error}")
            self._steps[key] = step
        if isinstance(step, Violation):
            raise step
        return step

    def repeats(self, holder: Facts, target: Facts) -> tuple[int, ...]:
        """The control messages that one machine would repeat to another, as `Group` decides it at a heartbeat."""
        key = (holder.holdings, target.wants)
        repeats = self._repeats.get(key)
        if repeats is None:
            repeats = self._repeats[key] = self._what_it_lacks(self._holdings[key[0]], self._wants[key[1]])
        return repeats

    def has(self, facts: Facts, control: int) -> bool:
        """Whether a machine has the control message, or will never ask for it."""
        key = (facts.wants, control)
        has = self._has.get(key)
        if has is None:
            sender, sequence = self.controls[control].sender, self.controls[control].sequence
            wants = self._wants[facts.wants]
            has = (sender, sequence) in wants.pending or sequence <= dict(wants.positions).get(sender, 0)
            self._has[key] = has
        return has

    def could_answer(self, holder: int, view: ViewId, sender: int, sequence: int) -> bool:
        """Whether a node has a message of the view, even if the view is over for it."""
        node = self[holder]
        held = node.plane.held if node.protocol.view.id == view else node.closed.get(view, {})
        return held.get(self._machines[sender], 0) >= sequence

    def _take(self, number: int, kind: str, subject: int, is_whole: bool) -> Step:
        node = self[number].clone(is_whole)
        if kind == "offer":
            node.offer(self.controls[subject])
        elif kind == "fetch":
            node.fetch(self._machines[subject])
        elif kind == "alpha":
            node.feed(lambda protocol: protocol.alpha_expired())
        elif kind == "attempt":
            node.feed(lambda protocol: protocol.attempt())
        else:
            machines = [machine for index, machine in enumerate(self._machines) if subject >> index & 1]
            node.feed(lambda protocol: protocol.break_with(machines, Cause(kind)))
        emitted = tuple(map(self._number_of, node.emitted))
        installs = tuple(map(self.installs.number, node.installs))
        node.rest()
        return Step(self.add(node), emitted, installs)

    def _number_of(self, control: Control) -> int:
        number = self._control_numbers.get(id(control))
        if number is None:
            number = self._control_numbers[id(control)] = self.controls.number(control)
            self._seen.append(control)
            if number == len(self.places):
                self.places.append((self._machines.index(control.sender), control.sequence))
        return number

    def _facts_of(self, node: Node) -> Facts:
        protocol, held, index_of = node.protocol, node.plane.held, self._machines.index
        watched = (protocol.current | protocol.join_machines) - protocol.suspects - {node.me}
        fetchable = [
            (index_of(machine), through + 1)
            for machine, through in sorted(held.items())
            if through < self._sent.get((protocol.view.id, machine), 0) and node.plane.takes_next_of(machine)
        ]
        return Facts(
            protocol.stage,
            protocol.view.id,
            tuple(index_of(machine) for machine in protocol.view.members if machine != node.me),
            tuple(
                index_of(m) for m in self._machines if m not in protocol.current | (node.grudges or frozenset())
            ),
            tuple(map(index_of, sorted(watched))),
            tuple(fetchable),
            tuple(map(index_of, sorted(protocol.awaited() - {node.me}))),
            not protocol._has_joiners() and not protocol.faults_before & protocol.current,
            self._holdings.number(self._holdings_of(node)),
            self._wants.number(_wants_of(node)),
        )

    def _holdings_of(self, node: Node) -> Holdings:
        protocol, dag = node.protocol, node.protocol.dag
        log = frozenset(self._number_of(c) for machine in dag.logged() for c in dag.since(machine, 0))
        own: frozenset[int] = frozenset()
        if protocol.stage in (Stage.GATHERING, Stage.COMMITTED):
            cut = dict(protocol.sets[protocol.view.id].cut_vector)[node.me]
            own = frozenset(map(self._number_of, dag.since(node.me, cut)))
        partners = protocol.join_machines | protocol.current
        return Holdings(node.me, partners, protocol.suspects, log, own, protocol.stage is Stage.GATHERING)

    def _what_it_lacks(self, holdings: Holdings, wants: Wants) -> tuple[int, ...]:
        positions = dict(wants.positions)
        if wants.me in holdings.suspects:
            return ()
        is_concerned = wants.me in holdings.partners
        ids = {number: (self.controls[number].sender, self.controls[number].sequence) for number in holdings.log}
        lacked = [n for n, (m, sequence) in ids.items() if is_concerned and sequence > positions.get(m, sequence)]
        if holdings.me not in positions and (holdings.is_open or is_concerned):
            lacked += holdings.own
        return tuple(sorted(number for number in lacked if ids[number] not in wants.pending))


def _wants_of(node: Node) -> Wants:
    dag = node.protocol.dag
    return Wants(
        node.me, dag.positions(), frozenset((control.sender, control.sequence) for control in dag.pending())
    )
