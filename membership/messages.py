"""The messages that machines exchange about which of them are connected.

`AttemptJoin`, `Join` and `Fault` are the paper's AJ, JOIN and FA. Each travels as the body of a `Control` message:
a node of the causal graph that follows other control messages (`acks`) and, if it ends its sender's view, messages
of that view (`cover`). Control messages are numbered in a stream of their own (decision 8 says why).

`Presence`, `Probe` and `ProbeReply` are not part of the graph: they say which machines hear each other right now,
and are not repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from transport import Acks, Machine, ViewId

Machines: TypeAlias = tuple[Machine, ...]
"""A set of machines, in order of name and incarnation."""
Configuration: TypeAlias = tuple[frozenset[ViewId], frozenset[Machine]]
"""A join configuration: the views whose members J is made of, and F_before. Machines alone would not do: the same
ones may part and join again, and a JOIN for the one join must not count for the other."""


def in_order(machines: frozenset[Machine] | set[Machine]) -> Machines:
    return tuple(sorted(machines))


@dataclass(frozen=True, slots=True)
class JoiningSet:
    """The members of a view that offers to join, each with its cut-counter: the last of its control messages
    that machines outside need not know."""

    view: ViewId
    cut_vector: Acks

    @property
    def machines(self) -> frozenset[Machine]:
        return frozenset(machine for machine, _ in self.cut_vector)


@dataclass(frozen=True, slots=True)
class AttemptJoin:
    """AJ: the sender's view offers to join with others."""

    joining: JoiningSet


@dataclass(frozen=True, slots=True)
class Join:
    """JOIN: the commitment to a join configuration. `faults` is F_before."""

    sets: tuple[JoiningSet, ...]
    faults: Machines

    @property
    def machines(self) -> frozenset[Machine]:
        return frozenset().union(*(joining.machines for joining in self.sets))


@dataclass(frozen=True, slots=True)
class Fault:
    """FA: these machines are faulty."""

    faults: Machines


Body: TypeAlias = AttemptJoin | Join | Fault


def joining_sets(body: Body) -> tuple[JoiningSet, ...]:
    if isinstance(body, AttemptJoin):
        return (body.joining,)
    return body.sets if isinstance(body, Join) else ()


@dataclass(frozen=True, slots=True)
class Control:
    """A numbered message of the membership protocol. `view` is the one that its sender was in when it sent it."""

    sender: Machine
    sequence: int
    clock: int
    view: ViewId
    acks: Acks
    """Up to which sequence other machines' control messages were in its sender's graph."""
    cover: Acks
    """Up to which sequence the messages of `view`, its sender's own included, were in the sender's DAG. Empty for
    an `AttemptJoin`."""
    body: Body

    def __post_init__(self) -> None:
        if self.sequence < 1 or self.clock < 1:
            raise ValueError("sequences and clocks count from 1")
        if not isinstance(self.body, AttemptJoin) and self.sender not in dict(self.cover):
            raise ValueError("what ends a view covers its sender's own messages")

    @property
    def id(self) -> str:
        return f"{self.sender}:{self.sequence}"

    def accuses(self, machine: Machine) -> bool:
        """Whether this declares the machine faulty."""
        return not isinstance(self.body, AttemptJoin) and machine in self.body.faults

    def details(self) -> dict[str, object]:
        """Returns what the journal says of it."""
        if isinstance(self.body, AttemptJoin):
            return {"kind": "attempt", "machines": sorted(map(str, self.body.joining.machines))}
        kind = type(self.body).__name__.lower()
        return {"kind": kind, "machines": list(map(str, self.body.faults)), "clock": self.clock}


class Progress(NamedTuple):
    """How far the layer above has got at one machine."""

    epoch: int
    """Orders machines by what they know of the last decisions."""
    decided: int
    """The epoch in which the end of its final order was decided: a machine of this epoch, or of a later one, has
    everything that is final here."""
    line: int
    """How far its final order goes."""
    known: int
    """How far it has everything that may be final at a machine whose order was decided in an epoch up to its
    own."""
    floor: int
    """A machine that has less than this is out of reach: it would not be brought up inside a view, because all
    members of the view would wait for it."""

    def is_behind(self, other: Progress) -> bool:
        """Whether this is too far behind the other for a view of both. Against what was decided in a later epoch,
        nothing counts that it has beyond its line."""
        return (self.line if other.decided > self.epoch else self.known) < other.floor

    def is_in_reach_of(self, other: Progress) -> bool:
        """Whether neither is behind the other."""
        return not (self.is_behind(other) or other.is_behind(self))


NO_PROGRESS = Progress(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Presence:
    """The heartbeat: its sender's view, the machines it hears, which control messages it has, and how far the
    layer above it has got."""

    view: ViewId
    members: Machines
    heard: Machines
    controls: Acks
    progress: Progress = NO_PROGRESS


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks one machine, at its own address, for a sign of life."""

    number: int


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """Answers the probe of this number."""

    number: int


GroupFrame: TypeAlias = Control | Presence | Probe | ProbeReply
"""The frames of the membership; an envelope of the transport holds one."""
