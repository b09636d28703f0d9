"""Which node is asked, how soon again, and when a call ends."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.client import CorelError, NoPrimary, NotFound, Overloaded, Request, RetryPolicy, Unreachable
from kvstore.client.roster import Roster
from tests.kvstore.client.scripted import (
    GREEN,
    LOST,
    NO_PRIMARY,
    OVERLOADED,
    REFUSED,
    A,
    B,
    C,
    Scripted,
    World,
    problem,
    reply,
)

READ = Request("GET", "/v1/kv/k")
FOUND = reply(200, "x")
CLUSTER = reply(200, {"nodes": [{"name": name, "url": f"http://{name}"} for name in "abc"]})


def test_the_first_node_is_asked_and_the_others_only_if_it_fails() -> None:
    world = World({A: [FOUND, REFUSED, LOST, FOUND], B: [NO_PRIMARY, FOUND], C: [FOUND]})
    session = world.session()
    for _ in range(2):
        world.run(session.call(READ))
    assert world.urls == [A, A, B, C]
    assert world.pauses == []


def test_a_node_that_failed_is_asked_last_for_a_while_and_then_first_again() -> None:
    world = World({A: [REFUSED, FOUND], B: [FOUND], C: [FOUND]})
    session = world.session()
    for pause in (0.0, 1.0, 5.0):
        world.now += pause
        world.run(session.call(READ))
    assert world.urls == [A, B, B, A]


def test_after_a_round_there_is_a_pause_that_grows() -> None:
    world = World({url: [REFUSED] for url in (A, B, C)})
    with pytest.raises(
        Unreachable, match=r"cannot reach http://a .*; cannot reach http://b .*; cannot reach http://c"
    ):
        world.run(world.session(policy=RetryPolicy(attempts_max=12)).call(READ))
    assert world.urls == [A, B, C] * 4
    assert [0.05 <= world.pauses[0] <= 0.1, 0.1 <= world.pauses[1] <= 0.2, 0.2 <= world.pauses[2] <= 0.4] == [
        True
    ] * 3


def test_retry_after_is_honoured_where_it_was_said() -> None:
    world = World({A: [NO_PRIMARY, FOUND], B: [REFUSED]})
    world.run(world.session(A, B).call(READ))
    assert world.urls[:2] == [A, B]
    first_again = world.urls.index(A, 1)
    assert sum(world.pauses) >= 1.0
    assert set(world.urls[2:first_again]) <= {B}


def test_an_overloaded_cluster_is_spared() -> None:
    world = World({A: [OVERLOADED], B: [FOUND]})
    world.run(world.session(A, B).call(READ))
    assert (world.urls, len(world.pauses)) == ([A, B], 1)


def test_a_call_ends_in_time() -> None:
    world = World({url: [NO_PRIMARY] for url in (A, B, C)})
    with pytest.raises(NoPrimary):
        world.run(world.session(policy=RetryPolicy(attempts_max=1_000, total_seconds=5.0)).call(READ))
    assert 3.0 < world.now - 1_000.0 <= 5.0


def test_it_does_not_wait_for_a_retry_that_it_may_not_make() -> None:
    world = World({A: [problem(503, "away", {"retry-after": "600"})]})
    with pytest.raises(CorelError):
        world.run(world.session(A).call(READ))
    assert world.pauses == []


def test_what_a_node_said_is_worth_more_than_that_others_said_nothing() -> None:
    world = World({A: [OVERLOADED], B: [REFUSED]})
    with pytest.raises(Overloaded):
        world.run(world.session(A, B, policy=RetryPolicy(attempts_max=2)).call(READ))


def test_a_write_that_one_node_does_not_know_is_asked_for_at_all() -> None:
    unknown = problem(404, "unknown_write")
    world = World({A: [unknown], B: [unknown], C: [GREEN]})
    calls = world.calls()
    assert world.run(calls.write("c.1.2.0", None)).revision == 7
    world.nodes[C] = [unknown]
    with pytest.raises(NotFound):
        world.run(calls.write("c.1.2.0", None))
    assert (world.urls, world.pauses) == ([A, B, C] * 2, [])


# The roster


def test_the_roster_is_learned_once_from_the_first_answer() -> None:
    world = World({A: [GREEN, CLUSTER, REFUSED], B: [GREEN], C: [GREEN]})
    session = world.session(A, discover=True)
    for _ in range(2):
        world.run(session.call(READ))
    assert [request.path for _, request in world.asked[:2]] == ["/v1/kv/k", "/v1/cluster"]
    assert world.urls[2:] in ([A, B], [A, C])
    assert sorted(session.roster.urls) == [A, B, C]


@pytest.mark.parametrize(("discover", "known"), [(True, [A, B, C]), (False, [A])])
def test_a_client_that_asks_for_the_cluster_uses_its_nodes_only_if_it_may_discover(
    discover: bool, known: list[str]
) -> None:
    world = World({A: [CLUSTER]})
    calls = world.calls(A, discover=discover)
    assert [node.url for node in world.run(calls.cluster()).nodes if node.url] == [A, B, C]
    assert sorted(calls.session.roster.urls) == known


def test_that_nobody_tells_the_roster_is_no_error() -> None:
    world = World({A: [GREEN, LOST, GREEN]})
    session = world.session(A, discover=True)
    for _ in range(2):
        assert world.run(session.call(READ)).status == 200
    assert world.urls == [A, A, A]


def test_the_roster_is_learned_again_after_a_failure_when_it_is_old() -> None:
    world = World({A: [GREEN, CLUSTER, REFUSED, GREEN, CLUSTER], B: [GREEN], C: [GREEN]})
    session = world.session(A, discover=True)
    world.run(session.call(READ))
    world.run(session.call(READ))
    world.now += 61.0
    world.run(session.call(READ))
    assert [request.path for _, request in world.asked].count("/v1/cluster") == 2


def test_a_preferred_node_comes_first_by_url_or_by_name() -> None:
    nodes = [{"name": name, "url": f"http://{name}"} for name in "abc"]
    assert Roster([A, B], f"{B}/", Random(1)).urls == (B, A)
    roster = Roster(A, "c", Random(1))
    assert roster.urls == (A,)
    roster.learn(nodes, 0.0)
    assert roster.urls[0] == C
    roster.learn([{"name": "x", "url": None}, {"name": "y", "url": "nonsense"}, 17], 0.0)
    assert roster.urls == (A,)


def test_clients_of_a_node_that_fails_spread_over_the_others() -> None:
    nodes = [{"name": name, "url": f"http://{name}"} for name in "abc"]
    second = set()
    for seed in range(20):
        roster = Roster(A, None, Random(seed))
        roster.learn(nodes, 0.0)
        second.add(roster.urls[1])
    assert second == {B, C}


# Bounds


@given(
    st.integers(1, 40),
    st.floats(0.0, 60.0),
    st.lists(st.sampled_from([REFUSED, LOST, NO_PRIMARY, OVERLOADED]), min_size=1),
)
@settings(deadline=None)
def test_attempts_and_time_are_bounded_whatever_happens(most: int, seconds: float, said: list[Scripted]) -> None:
    script = [*said]
    world = World(dict.fromkeys((A, B, C), script))
    policy = RetryPolicy(attempts_max=most, total_seconds=seconds)
    with pytest.raises(CorelError):
        world.run(world.session(policy=policy).call(READ))
    assert 1 <= len(world.asked) <= most
    assert world.now - 1_000.0 <= seconds + 1e-6


@given(st.integers(1, 2_000), st.integers(0, 2**32))
@settings(deadline=None)
def test_the_wait_between_rounds_is_bounded_and_drawn(round_: int, seed: int) -> None:
    policy = RetryPolicy(wait_seconds=0.1, wait_seconds_max=2.0)
    bound = min(0.1 * 2.0 ** min(round_ - 1, 30), 2.0)
    assert bound / 2 <= policy.wait(round_, Random(seed)) <= bound


@pytest.mark.parametrize("wrong", [{"attempts_max": 0}, {"total_seconds": -1.0}, {"wait_seconds": -0.1}])
def test_a_wrong_policy_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="is"):
        RetryPolicy(**wrong)  # type: ignore[arg-type]
