"""Which start of each node took part in primary components, as every member remembers it on its own disk.

A vote belongs to a disk that holds everything its node has promised. Two kinds of disks carry the name of a node
and do not: the elder one of a node that was replaced while it was only cut off, and a copy that lacks what its
node has done since. Both are recognised by what other members remember (decision 27):

- *superseded*: a newer incarnation of the node has attempted a primary component. The attempt is remembered before
  it is sent, so every majority that the elder could complete has a member that knows of the newer one.
- *forgetful*: the node has attempted a later primary component than its disk knows of. That is remembered once
  all members have attempted it, each after a write of its own.

Such a member takes part in everything, but does not vote before its vote is restored as that of an empty disk is
(trap 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from transport import Machine


class Participant(NamedTuple):
    """What is remembered of one node."""

    name: str
    incarnation: int
    """The newest incarnation with which a primary component was attempted."""
    attempted: int
    """The last primary component that the node is known to have attempted; 0 if none is."""


Participants: TypeAlias = tuple[Participant, ...]
"""At most one for each node, in the order of names."""


class Doubt(StrEnum):
    """Why a member does not vote, although its disk says that it may."""

    SUPERSEDED = "superseded"
    FORGETFUL = "forgetful"


DOUBTS = {
    Doubt.SUPERSEDED: "a newer start of this node has been in a primary component: two disks have its name",
    Doubt.FORGETFUL: "this node has been in a later primary component than its disk knows: it is an old copy",
}
"""The same in words, for journals and log lines."""


def joint_memory(memories: Iterable[Participants]) -> Participants:
    """Returns the newest of what several members remember."""
    newest: dict[str, Participant] = {}
    for memory in memories:
        for one in memory:
            known = newest.get(one.name, one)
            newest[one.name] = Participant(
                one.name, max(one.incarnation, known.incarnation), max(one.attempted, known.attempted)
            )
    return tuple(newest[name] for name in sorted(newest))


def remembering_attempt(memory: Participants, members: Iterable[Machine]) -> Participants:
    """Returns the memory with these incarnations, which are about to attempt a primary component."""
    return joint_memory([memory, *[(Participant(member.name, member.incarnation, 0),) for member in members]])


def remembering_commitment(memory: Participants, members: Iterable[Machine], number: int) -> Participants:
    """Returns the memory after all of these have attempted this primary component."""
    return joint_memory([memory, *[(Participant(member.name, member.incarnation, number),) for member in members]])


def doubts(attempted: Mapping[Machine, int], memory: Participants) -> dict[Machine, Doubt]:
    """Returns the members whose disks are not as their nodes left them. `attempted` is what each member says it
    has attempted last."""
    known = {one.name: one for one in memory}
    found: dict[Machine, Doubt] = {}
    for member, number in attempted.items():
        participant = known.get(member.name)
        if participant is None:
            continue
        if member.incarnation < participant.incarnation:
            found[member] = Doubt.SUPERSEDED
        elif number < participant.attempted:
            found[member] = Doubt.FORGETFUL
    return found
