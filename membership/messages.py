"""What machines say to each other about who is connected.

`Attempt`, `Join` and `Fault` are the paper's AJ, JOIN and FA. Each travels as the body of a `Control` message: a
node of the causal graph that follows other control messages (`acks`) and, if it ends its sender's view, messages
of that view (`cover`). Control messages are numbered in a stream of their own (decision 8 says why).

`Presence`, `Probe` and `ProbeReply` stand outside the graph: they are about who hears whom right now, and are not
repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from transport.messages import Acks, Machine, ViewId

Machines: TypeAlias = tuple[Machine, ...]
"""A set of machines, in order."""


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
class Attempt:
    """AJ: here we are, and would join."""

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


Body: TypeAlias = Attempt | Join | Fault


@dataclass(frozen=True, slots=True)
class Control:
    """A numbered message of the membership protocol. `view` is its sender's when it sent it."""

    sender: Machine
    sequence: int
    clock: int
    view: ViewId
    acks: Acks
    """Everything that its sender had of others' control messages."""
    cover: Acks
    """Everything that its sender's DAG held of the messages of `view`, its own too; nothing for an `Attempt`."""
    body: Body

    def __post_init__(self) -> None:
        if self.sequence < 1 or self.clock < 1:
            raise ValueError("sequences and clocks count from 1")
        if not isinstance(self.body, Attempt) and self.sender not in dict(self.cover):
            raise ValueError("what ends a view covers its sender's own messages")

    @property
    def id(self) -> str:
        return f"{self.sender}:{self.sequence}"

    def accuses(self, machine: Machine) -> bool:
        return not isinstance(self.body, Attempt) and machine in self.body.faults


@dataclass(frozen=True, slots=True)
class Presence:
    """The heartbeat: who I am connected with, whom I hear, and which control messages I have."""

    view: ViewId
    members: Machines
    heard: Machines
    controls: Acks


@dataclass(frozen=True, slots=True)
class Probe:
    """Are you there? Sent to one machine, at its own address."""

    number: int


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """I am."""

    number: int


Letter: TypeAlias = Control | Presence | Probe | ProbeReply
"""What an envelope holds."""
