"""What an answer says about a write: a table over every status and failure."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.client import (
    Compacted,
    ConditionFailed,
    CorelError,
    Expired,
    Happened,
    KeyReused,
    NoPrimary,
    NotFound,
    Overloaded,
    Refused,
    Rejected,
    Reply,
    Request,
    RetryPolicy,
    RevisionNotReached,
    Unavailable,
    Undecided,
    Unreachable,
    Yielded,
)
from tests.kvstore.client.scripted import (
    GREEN,
    LOST,
    NO_PRIMARY,
    OVERLOADED,
    REFUSED,
    REJECTED,
    UNDECIDED,
    A,
    B,
    C,
    Scripted,
    World,
    problem,
    reply,
)

WRITE = Request("PUT", "/v1/kv/k", {}, {"Idempotency-Key": "once"}, b"v")
UNKEYED = Request("PUT", "/v1/kv/k", {}, {}, b"v")
READ = Request("GET", "/v1/kv/k")
YES, NO, UNKNOWN = Happened.YES, Happened.NO, Happened.UNKNOWN
YIELDED = problem(409, "yielded", id="a.1.2.0", outcome="yielded", key="k", revision=9, beaten_by="b.1.1.0")
NOT_A_NUMBER = problem(409, "not_a_number", outcome="rejected", reason="not_a_number", key="k")
EXPIRED = problem(409, "expired", outcome="expired")
REUSED = problem(422, "idempotency_key_reused", outcome="rejected")

TABLE: list[tuple[Scripted, type[CorelError], Happened]] = [
    (REFUSED, Unreachable, NO),
    (LOST, Unreachable, UNKNOWN),
    (problem(400, "invalid_parameter"), Refused, NO),
    (problem(404, "no_such_path"), NotFound, NO),
    (problem(405, "method_not_allowed"), Refused, NO),
    (problem(408, "too_slow"), Refused, NO),
    (NOT_A_NUMBER, Rejected, NO),
    (YIELDED, Yielded, NO),
    (EXPIRED, Expired, UNKNOWN),
    (problem(410, "compacted", oldest=5), Compacted, NO),
    (REJECTED, ConditionFailed, NO),
    (problem(413, "body_too_large"), Refused, NO),
    (REUSED, KeyReused, NO),
    (OVERLOADED, Overloaded, NO),
    (problem(431, "headers_too_large"), Refused, NO),
    (problem(500, "damaged"), Unavailable, UNKNOWN),
    (reply(502), Unavailable, UNKNOWN),
    (NO_PRIMARY, NoPrimary, NO),
    (problem(503, "timeout"), Unavailable, NO),
    (problem(503, "away"), Unavailable, NO),
    (reply(503), Unavailable, UNKNOWN),
    (UNDECIDED, Undecided, UNKNOWN),
    (reply(504), Unavailable, UNKNOWN),
]
"""What each answer means if nothing else is heard. What a proxy says without an error code proves nothing."""

ONE_EACH = RetryPolicy(attempts_max=1)


@pytest.mark.parametrize(("said", "kind", "happened"), TABLE, ids=str)
def test_every_answer_says_whether_the_write_happened(
    said: Scripted, kind: type[CorelError], happened: Happened
) -> None:
    world = World({A: [said]})
    with pytest.raises(CorelError) as raised:
        world.run(world.session(A, policy=ONE_EACH).call(WRITE))
    assert (type(raised.value), raised.value.happened) == (kind, happened)


@pytest.mark.parametrize("said", [said for said, _, _ in TABLE], ids=str)
def test_a_read_never_happened(said: Scripted) -> None:
    world = World({A: [said]})
    with pytest.raises(CorelError) as raised:
        world.run(world.session(A, policy=ONE_EACH).call(READ))
    assert raised.value.happened is NO


SETTLED = [REJECTED, YIELDED, NOT_A_NUMBER, REUSED]
"""Outcomes at the final place hold for every copy with the same key."""


@pytest.mark.parametrize(("said", "kind", "happened"), TABLE, ids=str)
def test_a_copy_that_was_lost_before_leaves_it_open_unless_the_answer_settles_both(
    said: Scripted, kind: type[CorelError], happened: Happened
) -> None:
    world = World({A: [LOST], B: [said]})
    with pytest.raises(CorelError) as raised:
        world.run(world.session(A, B, policy=RetryPolicy(attempts_max=2)).call(WRITE))
    assert raised.value.happened is (NO if said in SETTLED else UNKNOWN)


def test_a_repeated_write_that_was_applied_is_no_error() -> None:
    world = World({A: [LOST], B: [GREEN]})
    assert world.run(world.session(A, B).call(WRITE)).url == B
    assert [request.headers["Idempotency-Key"] for _, request in world.asked] == ["once", "once"]


def test_a_write_without_a_key_is_not_repeated_once_it_may_have_arrived() -> None:
    world = World({A: [REFUSED], B: [LOST], C: [GREEN]})
    with pytest.raises(Unreachable, match="whether it accepted the write is not known") as raised:
        world.run(world.session().call(UNKEYED))
    assert (raised.value.happened, world.urls) == (UNKNOWN, [A, B])


def test_errors_have_what_the_node_said() -> None:
    def raised(said: Reply) -> CorelError:
        world = World({A: [said]})
        with pytest.raises(CorelError) as found:
            world.run(world.session(A, policy=ONE_EACH).call(WRITE))
        return found.value

    failed = raised(REJECTED)
    assert (failed.key, failed.revision, failed.write_id, str(failed)) == (
        "k",
        9,
        "a.1.2.0",
        "This is condition_failed.",
    )
    yielded, compacted = raised(YIELDED), raised(problem(410, "compacted", oldest=5))
    assert isinstance(yielded, Yielded)
    assert isinstance(compacted, Compacted)
    assert (yielded.beaten_by, compacted.oldest, raised(UNDECIDED).write_id) == ("b.1.1.0", 5, "a.1.3.0")


def test_a_node_that_is_behind_is_not_asked_twice() -> None:
    behind = problem(504, "revision_not_reached", {"retry-after": "1"}, revision=3)
    world = World({url: [behind] for url in (A, B, C)})
    with pytest.raises(RevisionNotReached) as raised:
        world.run(world.session().call(READ))
    assert (raised.value.revision, world.urls, world.pauses) == (3, [A, B, C], [])


ANSWERS: list[Scripted] = [GREEN, *(said for said, _, _ in TABLE)]


class Log:
    """Nodes that apply a write or not, and then answer, or do not: what an error claims is compared with that."""

    def __init__(self, script: list[tuple[bool, Scripted]]) -> None:
        self._script = script
        self.applied = False

    def answer(self, request: Request) -> Scripted:
        accepts, said = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        happened = {id(one): claim for one, _, claim in TABLE}.get(id(said), YES)
        if self.applied and said in SETTLED:
            return GREEN  # a copy of what was applied is answered as that was
        self.applied |= happened is YES or (happened is UNKNOWN and accepts)
        return said


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(ANSWERS)), min_size=1, max_size=8))
@settings(deadline=None)
def test_whatever_nodes_do_an_error_claims_nothing_wrong(script: list[tuple[bool, Scripted]]) -> None:
    log = Log(script)
    world = World(dict.fromkeys((A, B, C), log.answer))
    claim = YES
    try:
        world.run(world.session(policy=RetryPolicy(attempts_max=8)).call(WRITE))
    except CorelError as error:
        claim = error.happened
    assert claim is UNKNOWN or (claim is YES) == log.applied
