"""One machine of the explored world: the real protocol, over a data plane that only counts.

A node is never changed once the explorer has it: an input makes a new one. `clone` and `fingerprint` take every
field of the protocol, whatever its name, and refuse types they do not know, so that no new field can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from membership.accusers import Accusers
from membership.control_dag import ControlDag, ControlStream
from membership.messages import Configuration, Control, Join, JoiningSet
from membership.protocol import MachineSet, MembershipProtocol
from membership.stages import Emitted, Entered, Installed, Output, Stage, Suspected
from transport.errors import BrokenInvariant
from transport.messages import Acks, Machine, View, ViewId

_WIRING = ("_data", "_may_join", "_is_room_for", "_can_succeed")
"""The fields of the protocol that refer to its caller."""

_IMMUTABLE = frozenset(
    (int, bool, str, frozenset, tuple, type(None), Machine, ViewId, View, JoiningSet, Control, Stage)
)


class Violation(Exception):
    """A state, or a view that was installed, violates a property."""


class Install(NamedTuple):
    """The installation of a view by a machine. All of these together are all that the checks need of the past."""

    machine: Machine
    before: ViewId | None
    """The view before; None for the view that a case begins with."""
    view: View
    covered: Acks
    expected: Acks
    configuration: Configuration | None
    """The configuration that was assented to, if it was a join."""
    elector_views: tuple[tuple[Machine, ViewId], ...]
    """The view in which each member's elector was sent."""


class Plane:
    """The messages of one view at one machine: how many of each member's are in the DAG."""

    __slots__ = ("clock", "held", "is_whole", "required", "suspects")

    def __init__(self, clock: int, held: dict[Machine, int]) -> None:
        self.clock = clock
        self.held = held
        self.suspects: MachineSet = frozenset()
        self.required: dict[Machine, int] = {}
        """Up to which sequence each suspect's messages may still enter."""
        self.is_whole = True
        """Part of the input, not of the state: whether every member is known to be in the current view."""

    def clone(self) -> Plane:
        new = Plane(self.clock, dict(self.held))
        new.suspects = self.suspects
        new.required = dict(self.required)
        return new

    # What the protocol asks

    def next_clock(self) -> int:
        self.clock += 1
        return self.clock

    def cover(self) -> Acks:
        return tuple(sorted(self.held.items()))

    def has(self, cover: Acks) -> bool:
        return all(self.held[machine] >= sequence for machine, sequence in cover)

    # As in `transport.dag`

    def suspect(self, machines: Iterable[Machine]) -> None:
        self.suspects |= frozenset(machines)
        self.required = {machine: self.held[machine] for machine in self.suspects}

    def require(self, cover: Acks) -> None:
        for machine, sequence in cover:
            if machine in self.required:
                self.required[machine] = max(self.required[machine], sequence)

    def takes_next_of(self, machine: Machine) -> bool:
        return machine not in self.required or self.held[machine] < self.required[machine]


class Node:
    """A machine that has not crashed."""

    __slots__ = ("closed", "committed", "emitted", "grudges", "installs", "plane", "protocol")

    def __init__(
        self, protocol: MembershipProtocol, plane: Plane, closed: dict[ViewId, dict[Machine, int]]
    ) -> None:
        self.protocol = protocol
        self.plane = plane
        self.closed = closed
        """How many messages of each member it had in views that are over: others may still ask for them."""
        self.committed: Configuration | None = None
        """The configuration of its last JOIN in this view."""
        self.grudges: MachineSet | None = None
        """The machines that left or did not join, which this one joins with no more; None if it may again."""
        self.emitted: list[Control] = []
        self.installs: list[Install] = []

    @classmethod
    def start(cls, me: Machine, view: View, clock: int, held: dict[Machine, int]) -> Node:
        plane = Plane(clock, held)
        return cls(MembershipProtocol(me, view, plane, _may_not_join), plane, {})

    @property
    def me(self) -> Machine:
        return self.protocol.me

    # Inputs: what `membership.group` does with them

    def offer(self, control: Control) -> None:
        protocol = self.protocol
        if control.view == protocol.view.id and control.sender not in protocol.current:
            raise Violation(f"{self.me} and {control.sender} disagree about {control.view}")
        self.plane.clock = max(self.plane.clock, control.clock)
        self._feed(lambda: protocol.offer(control))

    def fetch(self, machine: Machine) -> None:
        """Takes in the next message of the view that the machine has sent."""
        self.plane.held[machine] += 1
        self._feed(self.protocol.advance)

    def feed(self, call: Callable[[MembershipProtocol], list[Output]]) -> None:
        self._feed(lambda: call(self.protocol))

    def has(self, control: Control) -> bool:
        stream = self.protocol.dag.streams.get(control.sender)
        return stream is not None and not self.protocol.dag.is_new(control)

    def rest(self) -> None:
        """Ends an input: clears its results, and breaks the reference cycle so that no garbage is left."""
        self.emitted, self.installs = [], []
        self.protocol._may_join = _may_not_join

    def _may_join(self, machines: MachineSet) -> bool:
        if self.grudges is not None and machines & self.grudges:
            return False
        return self.plane.is_whole or self.protocol.stage is not Stage.IDLE

    # Outputs

    def _feed(self, call: Callable[[], list[Output]]) -> None:
        stage = self.protocol.stage
        before = self.protocol.view
        outputs = call()
        while True:
            for output in outputs:
                if isinstance(output, Emitted):
                    self.emitted.append(output.control)
                    if isinstance(join := output.control.body, Join):
                        views = frozenset(joining.view for joining in join.sets)
                        self.committed = (views, frozenset(join.faults))
                elif isinstance(output, Suspected):
                    self.plane.suspect(m for m in output.machines if m in self.plane.held)
                elif isinstance(output, Entered):
                    stage = output.stage
                else:
                    self._install(before, output, stage)
                    before = output.view
            for cover in self.protocol.covers_to_require():
                self.plane.require(cover)
            if not outputs:
                return
            outputs = self.protocol.advance()

    def _install(self, before: View, installed: Installed, stage: Stage) -> None:
        if self.plane.held != installed.covered:
            held, covered = self.plane.cover(), sorted(installed.covered.items())
            raise Violation(f"{self.me} has {_shown(held)} at the end of {before.id}, not {_shown(covered)}")
        if len(before.members) > 1:
            self.closed = {**self.closed, before.id: self.plane.held}
        self.plane = Plane(self.plane.clock, dict(installed.expected))
        self.protocol._data = self.plane
        self.installs.append(
            Install(
                self.me,
                before.id,
                installed.view,
                tuple(sorted(installed.covered.items())),
                tuple(sorted(installed.expected.items())),
                self.committed if stage is Stage.COMMITTED else None,
                tuple((control.sender, control.view) for control in installed.electors),
            )
        )
        self.committed = None
        if self.grudges is not None:
            self.grudges |= frozenset((*installed.absent, *before.members)).difference(installed.view.members)

    # Copies and comparisons

    def clone(self, is_whole: bool) -> Node:
        plane = self.plane.clone()
        plane.is_whole = is_whole
        new = MembershipProtocol.__new__(MembershipProtocol)
        vars(new).update(
            {name: _copied(value) for name, value in vars(self.protocol).items() if name not in _WIRING}
        )
        node = Node(new, plane, self.closed)
        node.committed, node.grudges = self.committed, self.grudges
        new._data = plane
        new._is_room_for = self.protocol._is_room_for
        new._can_succeed = self.protocol._can_succeed
        new._may_join = node._may_join
        return node

    def fingerprint(self, number: Callable[[Control], int]) -> tuple[object, ...]:
        """Returns a value that is equal for two nodes if and only if they behave the same."""
        frozen = [_frozen(value, number) for name, value in vars(self.protocol).items() if name not in _WIRING]
        plane = self.plane
        return (
            *frozen,
            self.committed,
            self.grudges,
            plane.clock,
            plane.cover(),
            plane.suspects,
            frozenset(plane.required.items()),
            frozenset((view, tuple(sorted(held.items()))) for view, held in self.closed.items()),
        )


def _may_not_join(machines: MachineSet) -> bool:
    raise BrokenInvariant("a protocol at rest asks nothing")


def _copied(value: object) -> object:
    """Copies a value as deep as protocols change it: messages, views and the like are immutable."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if isinstance(value, dict):
        if value and type(next(iter(value.values()))) not in _IMMUTABLE:
            return {key: _copied(item) for key, item in value.items()}
        return value.copy()
    if isinstance(value, set | list):
        return value.copy()
    if isinstance(value, ControlStream):
        stream = ControlStream.__new__(ControlStream)
        for name in ControlStream.__slots__:
            setattr(stream, name, _copied(getattr(value, name)))
        return stream
    if isinstance(value, ControlDag | Accusers):
        new = kind.__new__(kind)
        vars(new).update({name: _copied(item) for name, item in vars(value).items()})
        return new
    raise TypeError(f"the explorer cannot copy a {kind.__name__}")


def _frozen(value: object, number: Callable[[Control], int]) -> object:
    """Returns the value in a hashable form. Control messages become their numbers: hashing them again takes too
    long. Where messages queue, the order counts: of two that may enter the graph, the one of the earlier stream
    does; of two that were deferred, the one whose sender was deferred first is acted upon."""
    if isinstance(value, Control):
        return number(value)
    if type(value) in _IMMUTABLE:
        return value
    if isinstance(value, dict) and any(isinstance(item, list) for item in value.values()):
        return tuple([(key, _frozen(item, number)) for key, item in value.items()])
    if isinstance(value, dict):
        return frozenset([(key, _frozen(item, number)) for key, item in value.items()])
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, list):
        return tuple([_frozen(item, number) for item in value])
    if isinstance(value, ControlStream):
        return tuple([_frozen(getattr(value, name), number) for name in ControlStream.__slots__])
    if isinstance(value, ControlDag):
        fields = [_frozen(item, number) for name, item in vars(value).items() if name != "streams"]
        streams = [(machine, _frozen(stream, number)) for machine, stream in value.streams.items()]
        return (*fields, *streams)
    if isinstance(value, Accusers):
        return tuple([_frozen(item, number) for item in vars(value).values()])
    raise TypeError(f"the explorer cannot compare a {type(value).__name__}")


def _shown(cover: Iterable[tuple[Machine, int]]) -> str:
    return " ".join(f"{machine}:{sequence}" for machine, sequence in cover)
