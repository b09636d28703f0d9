"""Majorities of a roster, and what lets a node vote again whose disk lost its data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corel.quorum import Roster
from tests.transport.strategies import thorough

rosters = st.integers(1, 9).flatmap(
    lambda count: (
        st.lists(st.integers(0, 4), min_size=count, max_size=count)
        .filter(any)
        .map(lambda weights: Roster(dict(zip("abcdefghi", weights, strict=False))))
    )
)


@st.composite
def rosters_and_sets(draw: st.DrawFn, count: int) -> tuple[Roster, list[set[str]]]:
    roster = draw(rosters)
    return roster, [draw(st.sets(st.sampled_from(sorted(roster.weights)))) for _ in range(count)]


@pytest.mark.parametrize(
    ("everybody", "some", "is_majority"),
    [
        ("a", "a", True),
        ("ab", "a", False),
        ("ab", "ab", True),
        ("abc", "ab", True),
        ("abcd", "ab", False),
        ("abcd", "abc", True),
        ("abcde", "", False),
        ("abc", "xyz", False),
    ],
)
def test_a_majority_is_more_than_half_of_all(everybody: str, some: str, is_majority: bool) -> None:
    assert Roster.of(everybody).is_majority(some) is is_majority


def test_weights_decide_between_halves() -> None:
    roster = Roster({"a": 2, "b": 1, "c": 1, "d": 1})
    assert roster.is_majority("ab")
    assert not roster.is_majority("cd")
    assert not roster.is_majority("bc")


@thorough
@given(rosters_and_sets(2))
def test_two_majorities_intersect_in_a_node_that_weighs_something(case: tuple[Roster, list[set[str]]]) -> None:
    roster, (one, other) = case
    if roster.is_majority(one) and roster.is_majority(other):
        assert roster.weight_of(one & other) > 0


@thorough
@given(rosters_and_sets(2))
def test_those_who_restore_a_vote_know_what_any_majority_knew_without_the_forgetful(
    case: tuple[Roster, list[set[str]]],
) -> None:
    """However many forgot: the voters are none of them."""
    roster, (voters, majority) = case
    forgetful = set(roster.weights) - voters
    if roster.restores_vote(voters) and roster.is_majority(majority):
        assert voters & (majority - forgetful)


@thorough
@given(rosters_and_sets(1))
def test_two_parts_are_never_both_majorities(case: tuple[Roster, list[set[str]]]) -> None:
    roster, (part,) = case
    assert not (roster.is_majority(part) and roster.is_majority(set(roster.weights) - part))


def test_one_node_less_than_half_restores_nothing() -> None:
    """a and b made something green, a forgot it, and c does not know: c is no half of three."""
    assert not Roster.of("abc").restores_vote("c")
    assert Roster.of("abc").restores_vote("bc")
    assert Roster.of("abcd").restores_vote("cd")


@pytest.mark.parametrize("weights", [{}, {"a": 0}, {"a": 1, "b": -1}])
def test_a_roster_has_nodes_and_weight(weights: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a roster has"):
        Roster(weights)


def test_rosters_are_the_same_whatever_order_they_are_written_in() -> None:
    assert Roster.of("abc").digest() == Roster.of("cba").digest()
    assert Roster.of("abc").digest() != Roster.of("ab").digest()
    assert Roster.of("ab").digest() != Roster({"a": 2, "b": 1}).digest()
