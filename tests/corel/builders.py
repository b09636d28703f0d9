"""Small entries, states and payloads for tests of single modules, and hypothesis strategies for all payloads."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from corel.messages import (
    DIGEST_BYTES,
    EMPTY_DIGEST,
    IDENTITY_BYTES,
    NO_IDENTITY,
    NO_VIEW,
    Attempt,
    Commit,
    Copy,
    Entry,
    GreenDigests,
    MessageId,
    Payload,
    PrimaryCheck,
    Priority,
    Reds,
    Regular,
    State,
    Vector,
)
from corel.participation import Participant, Participants
from corel.quorum import Roster
from tests.membership.strategies import positives
from tests.transport.strategies import machines, naturals, view_ids
from tests.transport.strategies import names as node_names
from transport.messages import Machine, ViewId

VIEW = ViewId(1, "a", 1)
ROSTER = Roster.of("abcde")


def machine(name: str, incarnation: int = 1) -> Machine:
    return Machine(name, incarnation)


def message_id(text: str) -> MessageId:
    """Returns the id written like `"a3"`: the third message of a."""
    return MessageId(machine(text[0]), int(text[1:]))


def message_ids(text: str) -> tuple[MessageId, ...]:
    return tuple(map(message_id, text.split()))


def entry(text: str, clock: int, body: bytes = b"body") -> Entry:
    return Entry(message_id(text), clock, VIEW, body)


def copy(text: str, clock: int, body: bytes | None = b"body") -> Copy:
    return Copy(message_id(text), clock, VIEW, body)


def names(entries: Iterable[Entry | Copy]) -> str:
    """Returns the ids as text, the reverse of `message_ids`."""
    return " ".join(f"{item.id.stream.name}{item.id.sequence}" for item in entries)


def vector(**lasts: int) -> Vector:
    return tuple((machine(name), last) for name, last in sorted(lasts.items()))


def state(
    committed: int = 1,
    attempted: int = 1,
    green: int = 0,
    base: int = 0,
    tail: str = "",
    have: Vector = (),
    is_voter: bool = True,
    roster: Roster = ROSTER,
    base_digest: bytes = EMPTY_DIGEST,
    generation: bytes = NO_IDENTITY,
    attempted_view: ViewId = VIEW,
    disk: bytes = NO_IDENTITY,
    participants: Participants = (),
    cut: int = 0,
    is_learned: bool = False,
) -> State:
    """Returns a state in which the digest of the green order says how long that is."""
    green_digest = green.to_bytes(DIGEST_BYTES, "big")
    return State(
        committed,
        attempted,
        green,
        green_digest,
        base,
        base_digest,
        message_ids(tail),
        have,
        is_voter,
        roster.digest(),
        generation,
        attempted_view,
        disk,
        participants,
        cut,
        is_learned,
    )


# Strategies

digests = st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES)
identities = st.binary(min_size=IDENTITY_BYTES, max_size=IDENTITY_BYTES)
bodies = st.binary(max_size=40)
ids = st.builds(MessageId, machines, st.integers(1, 40))
runs = st.builds(
    lambda stream, first, count: [MessageId(stream, first + number) for number in range(count)],
    machines,
    st.integers(1, 2**40),
    st.integers(1, 20),
)
tails = st.lists(runs, max_size=4).map(lambda many: tuple(item for run in many for item in run))
vectors: st.SearchStrategy[Vector] = st.lists(st.tuples(machines, positives), max_size=4).map(tuple)
copies = st.builds(Copy, st.builds(MessageId, machines, positives), positives, view_ids, st.none() | bodies)
some_copies = st.lists(copies, max_size=6).map(tuple)
states = st.builds(
    State,
    naturals,
    naturals,
    naturals,
    digests,
    naturals,
    digests,
    tails,
    vectors,
    st.booleans(),
    identities,
    identities,
    view_ids | st.just(NO_VIEW),
    identities,
    st.lists(st.builds(Participant, node_names, naturals, naturals, naturals), max_size=3).map(tuple),
    naturals,
    st.booleans(),
    naturals,
    naturals,
    naturals,
    st.lists(st.tuples(node_names, naturals), max_size=3).map(tuple),
)
payloads: st.SearchStrategy[Payload] = (
    st.builds(Regular, positives, bodies)
    | states
    | st.builds(Attempt, positives, digests)
    | st.builds(Commit, positives)
    | st.builds(GreenDigests, st.lists(digests, max_size=5).map(tuple))
    | st.builds(PrimaryCheck, st.integers(0, 2**40))
    | st.builds(Priority, naturals, some_copies)
    | st.builds(Reds, some_copies, st.booleans())
)
