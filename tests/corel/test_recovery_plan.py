"""What follows from the state messages: steps 3, 4 and 7 of the recovery procedure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from corel.messages import DIGEST_BYTES, State, Stream
from corel.quorum import Roster
from corel.recovery_plan import Contradiction, Plan, Share, make_plan, red_shares
from tests.corel.builders import ROSTER, machine, state, vector
from tests.transport.strategies import thorough
from transport.errors import BrokenInvariant
from transport.messages import Machine


def plan_of(**states: State) -> Plan:
    return make_plan({machine(name): told for name, told in states.items()}, ROSTER)


def shares_of(floor: dict[str, int] | None = None, **lasts: dict[str, int]) -> dict[str, list[Share]]:
    """Returns the shares if members have so much: `a={"d": 3}` means that a has three messages of d."""
    states = {machine(name): state(have=vector(**have)) for name, have in lasts.items()}
    shares = red_shares(states, lambda stream: (floor or {}).get(stream.name, 0))
    return {sender.name: share for sender, share in shares.items()}


# Steps 3 and 4


def test_representatives_are_those_with_the_last_committed_primary() -> None:
    plan = plan_of(a=state(committed=3), b=state(committed=4), c=state(committed=4))
    assert plan.committed == 4
    assert [member.name for member in plan.representatives] == ["b", "c"]
    assert plan.representative.name == "b"


def test_the_representative_is_the_first_of_those_with_most_green() -> None:
    plan = plan_of(a=state(tail="a1 a2"), b=state(green=1, tail="a2"), c=state(green=1, tail="a2"))
    assert plan.representative.name == "b"


def test_the_green_line_is_the_highest_of_all_though_its_owner_may_not_represent() -> None:
    plan = plan_of(a=state(committed=1, green=2), b=state(committed=2, base=2, green=1))
    assert (plan.green, plan.yellow, [member.name for member in plan.representatives]) == (2, 2, ["b"])


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        ("a1 b1", "a1 b1", 2),
        ("a1 b1 a2", "a1 b1", 2),
        ("a1 b1", "a1 c1", 1),
        ("a1 b1", "b1 a1", 0),
        ("", "a1", 0),
    ],
)
def test_the_yellow_line_is_the_end_of_the_common_prefix(one: str, other: str, line: int) -> None:
    assert plan_of(a=state(tail=one), b=state(tail=other)).yellow == line
    assert plan_of(a=state(tail=other), b=state(tail=one)).yellow == line


def test_zones_are_compared_from_the_highest_green_line_on() -> None:
    assert plan_of(a=state(green=2, tail="c1"), b=state(tail="a1 b1 c1 d1")).yellow == 3
    assert plan_of(a=state(green=2, base=3, tail="c1"), b=state(base=3, tail="d1")).yellow == 3


def test_what_others_have_yellow_does_not_count() -> None:
    plan = plan_of(a=state(committed=1, tail="a1 a2 a3"), b=state(committed=2, tail="b1"))
    assert (plan.yellow, plan.priority_from) == (1, 0)


def test_priority_messages_begin_where_the_last_of_the_others_is_green() -> None:
    plan = plan_of(a=state(2, green=5), b=state(1, green=2), c=state(1, green=3))
    assert (plan.priority_from, plan.green, plan.yellow) == (2, 5, 5)


def test_there_are_none_if_all_represent() -> None:
    assert plan_of(a=state(green=2), b=state(tail="a1 a2")).priority_from is None


def test_attempts_count_whoever_made_them() -> None:
    assert plan_of(a=state(committed=2, attempted=2), b=state(committed=1, attempted=7)).attempted == 7


# Who counts (trap 7)


def test_who_has_forgotten_counts_once_recovered_with_half_of_all() -> None:
    forgetful = state(committed=0, is_voter=False)
    plan = plan_of(a=forgetful, b=state(), c=state())
    assert (plan.voters, plan.restored) == (("b", "c"), ())
    plan = plan_of(a=forgetful, b=state(), c=state(), d=state())
    assert (plan.voters, plan.restored) == (("a", "b", "c", "d"), (machine("a"),))


# What cannot be


def test_who_was_told_of_another_roster_is_no_partner() -> None:
    with pytest.raises(Contradiction, match="different rosters"):
        plan_of(a=state(), b=state(roster=Roster.of("ab")))


def test_one_primary_component_has_one_queue_that_all_committed_to() -> None:
    for other in (state(base=1, tail="a1"), state(base_digest=bytes(DIGEST_BYTES - 1) + b"\x01")):
        with pytest.raises(BrokenInvariant, match="committed to different queues"):
            plan_of(a=state(), b=other)


def test_a_green_message_is_yellow_at_all_who_know_of_its_primary() -> None:
    with pytest.raises(BrokenInvariant, match="Yellow"):
        plan_of(a=state(green=3), b=state(tail="a1"))
    with pytest.raises(BrokenInvariant, match="Yellow"):
        plan_of(a=state(committed=1, green=3), b=state(committed=2, tail="a1"))


def unbelieved(**states: State) -> str:
    """Returns the names of the members that must be wrong."""
    with pytest.raises(Contradiction) as raised:
        plan_of(**states)
    return "".join(member.name for member in sorted(raised.value.unbelieved(ROSTER)))


def test_a_majority_is_believed_against_the_rest() -> None:
    other = bytes(DIGEST_BYTES - 1) + b"\x01"
    good = state(green=3)
    assert unbelieved(a=good, b=good, c=good, d=state(roster=Roster.of("ab"))) == "d"
    assert unbelieved(a=good, b=good, c=state(green=3, base_digest=other), d=good) == "c"
    assert unbelieved(a=good, b=replace(state(committed=0, green=3), green_digest=other), c=good, d=good) == "b"
    assert unbelieved(a=state(tail="a1"), b=good, c=good, d=good) == "a"
    assert unbelieved(a=state(committed=2), b=state(committed=2), c=state(committed=2), d=good) == "d"


def test_where_no_side_is_a_majority_nobody_on_any_is_believed() -> None:
    other = bytes(DIGEST_BYTES - 1) + b"\x01"
    good, bad = state(green=3), replace(state(committed=0, green=3), green_digest=other)
    assert unbelieved(a=good, b=good, c=bad, d=bad) == "abcd"
    assert unbelieved(a=good, b=good, c=bad, d=state(committed=0, green=2)) == "abc", "d contradicts nobody"


@st.composite
def possible_states(draw: st.DrawFn) -> dict[Machine, State]:
    """Members of one primary component: the same order, with different ends, and different parts of it green."""
    order = [f"a{number}" for number in range(1, 11)]
    known = draw(st.integers(0, 10))
    base = draw(st.integers(0, known))
    told: dict[Machine, State] = {}
    for name in draw(st.sets(st.sampled_from("abcde"), min_size=1)):
        if draw(st.booleans()) or not told:
            green = draw(st.integers(0, known))
            own = [f"{name}{number}" for number in range(1, draw(st.integers(0, 2)) + 1)] if name != "a" else []
            tail = " ".join(order[max(green, base) : known] + own)
            told[machine(name)] = state(committed=2, green=green, base=base, tail=tail)
        else:
            told[machine(name)] = state(committed=1, green=draw(st.integers(0, known)), tail="e9")
    return told


@thorough
@given(possible_states())
def test_a_plan_covers_all_that_is_green_and_asks_no_more_than_representatives_agree_on(
    states: dict[Machine, State],
) -> None:
    plan = make_plan(states, ROSTER)
    ends = [
        max(states[member].green, states[member].base) + len(states[member].tail)
        for member in plan.representatives
    ]
    assert max(told.green for told in states.values()) == plan.green <= plan.yellow <= min(ends)
    assert plan.representative in plan.representatives
    assert plan.base <= plan.yellow
    if plan.priority_from is not None:
        assert plan.priority_from <= plan.green
    assert make_plan(dict(reversed(states.items())), ROSTER) == plan


# Step 7


def test_what_all_have_is_not_retransmitted() -> None:
    assert shares_of(a={"d": 3}, b={"d": 3}) == {}


def test_what_not_all_have_is_retransmitted_from_where_the_last_one_is() -> None:
    assert shares_of(a={"d": 3}, b={"d": 1}, c={"d": 2}) == {"a": [Share(machine("d"), 1, 3)]}


def test_what_is_yellow_or_green_is_everybodys() -> None:
    assert shares_of({"d": 3}, a={"d": 3}, b={}) == {}
    assert shares_of({"d": 2}, a={"d": 3}, b={}) == {"a": [Share(machine("d"), 2, 3)]}


def test_equal_holders_share_the_streams() -> None:
    have = dict.fromkeys("defgh", 1)
    shares = shares_of(a=have, b=have, c={})
    assert set(shares) == {"a", "b"}
    assert sum(map(len, shares.values())) == 5


vectors = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 6))


@thorough
@given(st.dictionaries(st.sampled_from("abcde"), vectors, min_size=1), vectors)
def test_every_message_that_somebody_lacks_is_retransmitted_once_by_somebody_who_has_it(
    lasts: dict[str, dict[str, int]], floor: dict[str, int]
) -> None:
    assume(lasts)
    shares = shares_of(floor, **lasts)
    sent: list[tuple[Stream, int]] = []
    for sender, parts in shares.items():
        for part in parts:
            assert lasts[sender].get(part.stream.name, 0) >= part.through
            sent += [(part.stream, sequence) for sequence in range(part.after + 1, part.through + 1)]
    missing = {
        (machine(name), sequence)
        for have in lasts.values()
        for name, last in have.items()
        for sequence in range(floor.get(name, 0) + 1, last + 1)
        if any(other.get(name, 0) < sequence for other in lasts.values())
    }
    assert len(sent) == len(set(sent))
    assert set(sent) == missing
