"""The search for a linearization, on registers: known histories, and all small ones compared with brute force."""

from __future__ import annotations

from itertools import combinations, permutations
from random import Random

import pytest

from tests.simulator.store.linearizability import NEVER, Operation, TooHard, linearize

Register = Operation[int]


def write(value: int, invoked: float, returned: float = NEVER) -> Register:
    return Operation(f"w{value}", invoked, returned, lambda state: value)


def read(value: int, invoked: float, returned: float) -> Register:
    return Operation(f"r{value}", invoked, returned, lambda state: state if state == value else None)


def swap(old: int, new: int, invoked: float, returned: float = NEVER) -> Register:
    return Operation(f"s{old}{new}", invoked, returned, lambda state: new if state == old else None)


def test_nothing_is_linearizable() -> None:
    assert linearize([], 0) == []


def test_one_after_the_other() -> None:
    assert linearize([write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7)], 0) == ["w1", "r1", "w2", "r2"]


def test_a_read_of_what_was_overwritten_is_not() -> None:
    assert linearize([write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)], 0) is None


def test_a_read_before_the_write_is_not() -> None:
    assert linearize([read(1, 0, 1), write(1, 2, 3)], 0) is None


def test_a_read_beside_a_write_may_see_it_or_not() -> None:
    assert linearize([write(1, 0, 10), read(0, 1, 2)], 0) == ["r0", "w1"]
    assert linearize([write(1, 0, 10), read(1, 1, 2)], 0) == ["w1", "r1"]


def test_what_one_has_seen_the_next_sees_too() -> None:
    """Herlihy and Wing's example: a new value, and then the old one again."""
    assert linearize([write(1, 0, 10), read(1, 1, 2), read(0, 3, 4)], 0) is None


def test_two_who_disagree_on_the_order_of_two_writes_are_not() -> None:
    writes = [write(1, 0, 1), write(2, 0, 1)]
    assert linearize([*writes, read(1, 2, 3), read(2, 4, 5)], 0) is None


def test_of_two_swaps_of_the_same_only_one_succeeds() -> None:
    assert linearize([swap(0, 1, 0, 5), swap(0, 2, 1, 6)], 0) is None
    assert linearize([swap(0, 1, 0, 5), swap(1, 2, 1, 6)], 0) == ["s01", "s12"]


def test_what_was_never_answered_may_have_happened() -> None:
    assert linearize([write(1, 0), read(1, 5, 6)], 0) == ["w1", "r1"]


def test_what_was_never_answered_may_not_have_happened() -> None:
    assert linearize([write(1, 0), read(0, 5, 6)], 0) == ["r0"]


def test_what_was_never_answered_may_happen_much_later() -> None:
    assert linearize([write(1, 0), read(0, 5, 6), read(1, 7, 8)], 0) == ["r0", "w1", "r1"]


def test_what_was_never_answered_happens_once() -> None:
    assert linearize([write(1, 0), write(2, 2, 3), read(1, 4, 5), write(3, 6, 7), read(1, 8, 9)], 0) is None


def test_what_was_never_answered_does_not_happen_before_it_was_asked_for() -> None:
    assert linearize([read(1, 0, 1), write(1, 2)], 0) is None


def test_hints_lead_straight_there() -> None:
    count = 200
    writes = [
        Operation(f"w{value}", 0.0, NEVER, lambda state, value=value: value, (value,))  # type: ignore[misc]
        for value in range(1, count)
    ]
    reads = [
        Operation(f"r{value}", value, value + 0.5, read(value, 0, 0).step, (value, 1)) for value in range(1, count)
    ]
    assert linearize([*writes, *reads], 0, configurations_max=3 * count) is not None


def test_a_search_that_takes_too_long_ends() -> None:
    writes = [write(value, 0) for value in range(1, 30)]
    with pytest.raises(TooHard):
        linearize([*writes, read(77, 0, 1)], 0, configurations_max=1_000)


def brute_force(operations: list[Register]) -> bool:
    optional = [one for one in operations if not one.is_complete]
    required = [one for one in operations if one.is_complete]
    for count in range(len(optional) + 1):
        for chosen in combinations(optional, count):
            if any(_explains(order) for order in permutations([*required, *chosen])):
                return True
    return False


def _explains(order: tuple[Register, ...]) -> bool:
    state: int | None = 0
    for place, one in enumerate(order):
        if any(later.returned < one.invoked for later in order[place + 1 :]):
            return False
        assert state is not None
        state = one.step(state)
        if state is None:
            return False
    return True


def draw(random: Random) -> list[Register]:
    operations: list[Register] = []
    for _ in range(random.randint(1, 6)):
        invoked = random.uniform(0, 10)
        returned = invoked + random.uniform(0, 6)
        value, kind = random.randint(0, 2), random.random()
        if kind < 0.45:
            operations.append(read(value, invoked, returned))
        elif kind < 0.7:
            operations.append(write(value, invoked, returned))
        elif kind < 0.85:
            operations.append(write(value, invoked))
        else:
            operations.append(swap(value, random.randint(0, 2), invoked, returned))
    return operations


def test_small_histories_are_judged_as_by_brute_force() -> None:
    random = Random("histories")
    verdicts = []
    for _ in range(1_500):
        operations = draw(random)
        order = linearize(operations, 0)
        verdicts.append(order is not None)
        assert verdicts[-1] == brute_force(operations), operations
    assert 0.2 < sum(verdicts) / len(verdicts) < 0.8
