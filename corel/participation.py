"""Which start of each node took part in primary components, as every member remembers it on its own disk.

A vote belongs to a disk that holds everything its node has promised. Two kinds of disks carry the name of a node
and do not: the elder one of a node that was replaced while it was only cut off, and a copy that lacks what its
node has done since. Both are recognised by what other members remember (decision 27):

- *superseded*: the vote was restored on another disk of the node since this one had it, or a newer incarnation of
  the same vote has attempted a primary component. An attempt is remembered before it is sent, so every majority
  that the elder could complete has a member that knows of the newer one. When a vote was restored is kept on the
  disk that has it (`voter_since`), so an elder disk is known for what it is however often its node is started.
- *forgetful*: the node has attempted a later primary component than its disk knows of. That is remembered once
  all members have attempted it, each after a write of its own.

Such a member takes part in everything, but does not vote before its vote is restored as that of an empty disk is
(trap 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from transport import Machine


class Vote(NamedTuple):
    """Which disk of a node speaks for it, and which start of that. The higher one is the newer one."""

    voter_since: int
    """The incarnation with which the vote was restored on this disk; 0 if it has been there from the beginning of
    the cluster."""
    incarnation: int


class Participant(NamedTuple):
    """What is remembered of one node."""

    name: str
    voter_since: int
    incarnation: int
    """The newest incarnation of that vote with which a primary component was attempted."""
    attempted: int
    """The last primary component that the node is known to have attempted; 0 if none is."""

    @property
    def vote(self) -> Vote:
        return Vote(self.voter_since, self.incarnation)


Participants: TypeAlias = tuple[Participant, ...]
"""At most one for each node, in the order of names."""


class Doubt(StrEnum):
    """Why a member does not vote, although its disk says that it may."""

    SUPERSEDED = "superseded"
    FORGETFUL = "forgetful"


DOUBTS = {
    Doubt.SUPERSEDED: "a newer disk or start of this node has been in a primary component: two have its name",
    Doubt.FORGETFUL: "this node has been in a later primary component than its disk knows: it is an old copy",
}
"""The same in words, for journals and log lines."""


def joint_memory(memories: Iterable[Participants]) -> Participants:
    """Returns the newest of what several members remember."""
    newest: dict[str, Participant] = {}
    for memory in memories:
        for one in memory:
            known = newest.get(one.name, one)
            vote = max(one.vote, known.vote)
            newest[one.name] = Participant(one.name, *vote, max(one.attempted, known.attempted))
    return tuple(newest[name] for name in sorted(newest))


def remembering_attempt(memory: Participants, votes: Mapping[str, Vote]) -> Participants:
    """Returns the memory with these votes, by node, which are about to attempt a primary component."""
    return joint_memory([memory, *[(Participant(name, *vote, 0),) for name, vote in votes.items()]])


def remembering_commitment(memory: Participants, votes: Mapping[str, Vote], number: int) -> Participants:
    """Returns the memory after all of these have attempted this primary component."""
    return joint_memory([memory, *[(Participant(name, *vote, number),) for name, vote in votes.items()]])


class Claim(NamedTuple):
    """What a member says of its own disk."""

    voter_since: int
    attempted: int
    """The last primary component that it knows to have attempted."""


def doubts(claims: Mapping[Machine, Claim], memory: Participants) -> dict[Machine, Doubt]:
    """Returns the members whose disks are not as their nodes left them."""
    known = {one.name: one for one in memory}
    found: dict[Machine, Doubt] = {}
    for member, claim in claims.items():
        participant = known.get(member.name)
        if participant is None:
            continue
        if Vote(claim.voter_since, member.incarnation) < participant.vote:
            found[member] = Doubt.SUPERSEDED
        elif claim.attempted < participant.attempted:
            found[member] = Doubt.FORGETFUL
    return found


def unmergeable(lost: Sequence[object]) -> str:
    """Says that the messages of these ids are only on a disk that was replaced, and what to do."""
    return (
        f"another disk of this node has taken the place of this one, and {len(lost)} messages that were accepted "
        f"here cannot be merged any more, the first of them {lost[0]}. Export them (corelkv export), write again "
        "what is still wanted, and move the directory away"
    )
