"""The Recovery Procedure, steps 3, 4 and 7 (section 3.5.2), as pure functions of the state messages.

Every member computes the same from the same states, so no member has to be told what to do.

Where this differs from the paper, and why:

- State messages are exchanged after every change, even if there are no new members: a change in the middle of a
  recovery or of an establishment leaves members with different attempts and unfinished retransmissions (trap 3).
  What the states show to be unnecessary is skipped.
- The yellow line retreats to the longest common prefix of the representatives' yellow zones, which the states
  carry (trap 4).
- A message is retransmitted by a member that has most of its stream. All members send in timestamp order, and
  receivers merge: that is causally closed at every moment, and needs none of Fig. 4's waiting for each other (trap
  10)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from corel.messages import MessageId, State, Stream, identity_of
from corel.participation import Claim, Doubt, Participants, Vote, doubts, joint_memory
from corel.quorum import Roster
from transport import BrokenInvariant, Machine


class Contradiction(BrokenInvariant):
    """States of members that cannot all be true: a disk was copied, or restored to an earlier state, or a node was
    configured with another roster. `sides` are the members that contradict each other; a member on none of them
    contradicts nobody."""

    def __init__(self, what: str, sides: Iterable[Iterable[Machine]]) -> None:
        self.sides = [sorted(side) for side in sides]
        super().__init__(f"{what}: {' against '.join(', '.join(map(str, side)) for side in self.sides)}")

    def unbelieved(self, roster: Roster) -> list[Machine]:
        """Returns the members that must be wrong, since a majority says otherwise; the members of all sides if
        none of them is a majority."""
        return [
            member
            for side in self.sides
            if not roster.is_majority(member.name for member in side)
            for member in side
        ]


class OutOfReach(Contradiction):
    """Members that lack messages which nobody in the view can retransmit, because they are truncated. No disk is
    wrong: they leave, and take over what they lack outside the view (decision 28). Mostly heartbeats keep them out
    of it; they are in one only if the log was cut meanwhile."""

    def __init__(self, laggards: Iterable[Machine], others: Iterable[Machine]) -> None:
        super().__init__("members lack messages that the others have truncated", (laggards, others))

    def unbelieved(self, roster: Roster) -> list[Machine]:
        return self.sides[0]


class ReplacedDisk(BrokenInvariant):
    """This disk was replaced, and has messages that cannot be merged any more: their streams have been folded away
    by the others, for whom everything in them is final. The node stops, with its data intact."""


class OtherGenerations(Contradiction):
    """Members that are bound to different generations of the cluster. No disk is wrong, so nobody has to stop:
    they ignore each other's datagrams, and their view ends because they do not hear each other. They share one
    only if a node that is bound to none was in between when some of them were bound (decision 20)."""

    def unbelieved(self, roster: Roster) -> list[Machine]:
        return []


@dataclass(frozen=True, slots=True)
class Plan:
    """What follows from the states of all members of a view."""

    committed: int
    """Max_Committed."""
    attempted: int
    """The highest attempt that any member knows of, or the highest commitment: who has taken over a log may have
    attempted none of the primary components in it."""
    representatives: tuple[Machine, ...]
    """The members that know most of the primary component `committed`."""
    is_learned: bool
    """Whether even they know of it only by its green messages. A majority always has a member that knows more."""
    representative: Machine
    """The one that retransmits for all of them."""
    green: int
    """The green line to come: the highest of all members' lines."""
    yellow: int
    """The yellow line to come."""
    base: int
    base_digest: bytes
    priority_from: int | None
    """The position at which the retransmission of priority messages begins. None if all members are
    representatives: step 4 skips it then. A member whose green line is before it has what is in between as yellow
    messages, in the same order."""
    voters: tuple[str, ...]
    """The members that count towards a majority once all have recovered."""
    restored: tuple[Machine, ...]
    """The members whose disks had lost their data, and which count from their next commitment on (trap 7)."""
    votes: Mapping[str, Vote]
    """By which disk, and which start of it, each member votes once all have recovered. Who has its vote restored
    has it from this incarnation on."""
    memory: Participants
    """What the members together remember of who took part in primary components of this generation."""
    doubts: Mapping[Machine, Doubt]
    """The members whose votes do not count, or have to be restored, because others remember more than their disks
    do."""
    generation: bytes
    """The generation of the cluster: what any member is bound to, or what the next attempt is made with."""
    is_generation_final: bool
    """Whether any member is bound to it."""
    established: tuple[int, int]
    """The last primary component that any member knows to have been established, and how long its base was."""


def make_plan(states: Mapping[Machine, State], roster: Roster) -> Plan:
    """Returns the plan for these states (steps 3 and 4), or raises `Contradiction`."""
    members = sorted(states)
    _check_equal("members were told of different rosters", members, lambda member: states[member].roster)
    _check_equal(
        "members belong to different generations of the cluster",
        [member for member in members if states[member].is_bound],
        lambda member: states[member].generation,
        OtherGenerations,
    )
    committed = max(state.committed for state in states.values())
    most = max(state.knowledge for state in states.values())
    representatives = [member for member in members if states[member].knowledge == most]
    green = max(state.green for state in states.values())
    first = states[representatives[0]]
    _check_equal(
        f"members committed to different queues as {committed}",
        representatives,
        lambda member: (states[member].base, states[member].base_digest),
    )
    for line in {state.green for state in states.values()}:
        _check_equal(
            f"the first {line} green messages differ (Agreed Green)",
            [member for member in members if states[member].green == line],
            lambda member: states[member].green_digest,
        )
    yellow = _common_yellow_line({member: states[member] for member in representatives})
    beyond = [member for member in members if states[member].green > yellow]
    if beyond:
        what = f"a green line is at {green}, but primary {committed} agrees to {yellow} only (Yellow)"
        raise Contradiction(what, (beyond, set(representatives) - set(beyond)))
    established = max((state.established, state.established_base) for state in states.values())
    others = [member for member in members if member not in representatives]
    lacking = [member for member in others if not states[member].has_zone_of(established[0])]
    lacking_from = min([states[member].green for member in lacking], default=None)
    representative = max(representatives, key=lambda member: _usefulness(states[member], lacking_from))
    cut = states[representative].cut
    laggards = [member for member in lacking if states[member].green < cut]
    if laggards:
        raise OutOfReach(laggards, set(members) - set(laggards))
    priority_from = min([max(cut, states[member].green) for member in others], default=None)
    generation = _generation(states.values())
    memory = joint_memory(state.participants for state in states.values() if state.generation == generation)
    claims = {member: Claim(state.voter_since, state.attempted) for member, state in states.items()}
    doubted = doubts(claims, memory)
    voters = [member for member in members if states[member].is_voter and member not in doubted]
    restored = [member for member in members if member not in voters]
    if not roster.restores_vote(voter.name for voter in voters):
        restored = []
    return Plan(
        committed=committed,
        attempted=max(max(state.attempted, state.committed) for state in states.values()),
        representatives=tuple(representatives),
        is_learned=not most[1] and committed > 0,
        representative=representative,
        green=green,
        yellow=yellow,
        base=first.base,
        base_digest=first.base_digest,
        priority_from=priority_from,
        voters=tuple(member.name for member in sorted((*voters, *restored))),
        restored=tuple(restored),
        votes={
            member.name: Vote(
                member.incarnation if member in restored else states[member].voter_since, member.incarnation
            )
            for member in members
        },
        memory=memory,
        doubts={member: doubt for member, doubt in doubted.items() if states[member].is_voter},
        generation=generation,
        is_generation_final=any(state.is_bound for state in states.values()),
        established=established,
    )


def _usefulness(state: State, lacking_from: int | None) -> tuple[bool, int]:
    """Orders representatives: first those that still have what other members lack, then those with a higher green
    line."""
    return lacking_from is None or state.cut <= lacking_from, state.green


def _generation(states: Collection[State]) -> bytes:
    """Returns the generation of the cluster that these states belong to; a new one, drawn from the members' disks,
    if nobody has attempted a primary component yet.

    Members that are bound to one decide. Otherwise the last attempt does, by its number and its view: if somebody
    who is not here has committed to it, everybody of its view attempted it, so a majority knows of it, and no
    attempt of the same number was made in a later view. So all primary components of a cluster have the generation
    of the first one that anybody committed to (decision 20)."""
    last = max(states, key=lambda state: (state.is_bound, state.attempted, state.attempted_view))
    if last.attempted or last.is_bound:
        return last.generation
    return identity_of(b"".join(sorted(state.disk for state in states)))


def _check_equal(
    what: str,
    members: Iterable[Machine],
    told: Callable[[Machine], object],
    error: type[Contradiction] = Contradiction,
) -> None:
    """Raises `error` unless `told` returns the same for all members."""
    sides: dict[object, list[Machine]] = {}
    for member in members:
        sides.setdefault(told(member), []).append(member)
    if len(sides) > 1:
        raise error(what, sides.values())


def _common_yellow_line(states: Mapping[Machine, State]) -> int:
    """Returns the end of the longest common prefix of these queues' green and yellow parts. Up to the highest of
    their green lines and the base they are equal, or the Yellow invariant is broken."""
    starts = {member: max(state.green, state.base) for member, state in states.items()}
    start = max(starts.values())
    below = {member for member, state in states.items() if starts[member] + len(state.tail) < start}
    if below:
        raise Contradiction(
            f"a yellow line is below a green line of {start} (Yellow)", (below, set(states) - below)
        )
    return start + _common_length([state.tail[start - starts[member] :] for member, state in states.items()])


def _common_length(zones: list[tuple[MessageId, ...]]) -> int:
    shortest = min(zones, key=len)
    for place, message_id in enumerate(shortest):
        if any(zone[place] != message_id for zone in zones):
            return place
    return len(shortest)


class Share(NamedTuple):
    """Messages of one stream that one member is to retransmit: after `after`, up to `through`."""

    stream: Stream
    after: int
    through: int


def red_shares(
    states: Mapping[Machine, State], yellow_last_of: Callable[[Stream], int]
) -> dict[Machine, list[Share]]:
    """Returns which red messages each member is to retransmit (step 7). `yellow_last_of` gives the last message of
    a stream that is green or yellow, and that every member therefore has by now."""
    lasts = {member: dict(state.have) for member, state in states.items()}
    streams = sorted({stream for have in lasts.values() for stream in have})
    shares: dict[Machine, list[Share]] = {}
    for stream in streams:
        floor = yellow_last_of(stream)
        reached = {member: max(lasts[member].get(stream, 0), floor) for member in sorted(lasts)}
        after, through = min(reached.values()), max(reached.values())
        if after < through:
            holders = [member for member, last in reached.items() if last == through]
            sender = holders[crc32(str(stream).encode()) % len(holders)]
            shares.setdefault(sender, []).append(Share(stream, after, through))
    return shares
