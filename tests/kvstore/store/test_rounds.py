"""When held writes are sent."""

from __future__ import annotations

from kvstore.store.config import StoreConfig
from kvstore.store.rounds import Rounds

NEVER = float("inf")


def rounds(gather_ms: float = 4.0, round_ms: float = 20.0) -> Rounds:
    return Rounds(StoreConfig(gather_ms=gather_ms, round_ms=round_ms))


def is_gathering(one: Rounds, held: int = 1) -> bool:
    return one.must_wait(held, is_under_way=False)


def test_a_first_write_leaves_at_once() -> None:
    one = rounds()
    assert not one.must_wait(1, is_under_way=False)
    assert one.next_deadline() == NEVER


def test_while_an_own_message_is_not_green_the_next_waits_for_so_long() -> None:
    one = rounds(round_ms=20.0)
    assert one.must_wait(5, is_under_way=True)
    assert one.next_deadline() < 1_000.0
    one.tick(1_000.0)
    assert one.must_wait(5, is_under_way=True)
    assert one.next_deadline() == 1_020.0
    one.tick(1_020.0)
    assert not one.must_wait(5, is_under_way=True)
    assert one.next_deadline() == NEVER


def test_the_answered_are_waited_for_until_most_are_back() -> None:
    one = rounds()
    one.end(answered=6, held=4)
    assert is_gathering(one, held=4)
    assert is_gathering(one, held=8)
    assert not is_gathering(one, held=9)


def test_a_client_by_itself_never_waits() -> None:
    one = rounds()
    one.end(answered=1, held=0)
    assert not is_gathering(one, held=1)


def test_the_answered_are_not_waited_for_for_long() -> None:
    one = rounds(gather_ms=4.0)
    one.end(answered=6, held=4)
    assert is_gathering(one)
    one.tick(0.0)
    one.tick(3.9)
    assert is_gathering(one)
    one.tick(4.0)
    assert not is_gathering(one)


def test_a_message_begins_a_round_anew() -> None:
    one = rounds()
    one.end(answered=9, held=1)
    assert is_gathering(one)
    one.begin()
    assert one.next_deadline() == NEVER
    assert not is_gathering(one), "nobody was answered in this one"


def disappoint(one: Rounds, now: float) -> None:
    """Runs one round in which no answered client writes again in time."""
    one.end(answered=9, held=1)
    assert is_gathering(one)
    one.tick(now)
    one.tick(now + 100.0)
    one.begin()


def hasty_rounds(one: Rounds) -> int:
    """Counts the rounds in a row that do not wait for answered clients."""
    for count in range(1_000):
        one.end(answered=9, held=1)
        if is_gathering(one):
            return count
        one.begin()
    raise AssertionError("it never waits again")


def test_where_they_do_not_come_back_fewer_and_fewer_rounds_wait() -> None:
    one = rounds()
    seen = []
    for turn in range(8):
        disappoint(one, 1_000.0 * turn)
        seen.append(hasty_rounds(one))
    assert seen == [1, 3, 7, 15, 31, 63, 63, 63]


def test_when_they_come_back_again_all_is_forgiven() -> None:
    one = rounds()
    disappoint(one, 0.0)
    disappoint_after = hasty_rounds(one)
    assert not is_gathering(one, held=10)
    one.begin()
    assert (disappoint_after, hasty_rounds(one)) == (1, 0)
    one.begin()
    disappoint(one, 1_000.0)
    assert hasty_rounds(one) == 1


def test_a_slow_round_is_no_disappointment() -> None:
    one = rounds()
    assert one.must_wait(1, is_under_way=True)
    one.tick(0.0)
    one.tick(20.0)
    one.begin()
    one.end(answered=9, held=1)
    assert is_gathering(one)


def test_without_patience_nothing_waits() -> None:
    one = rounds(gather_ms=0.0, round_ms=0.0)
    assert not one.must_wait(1, is_under_way=True)
    one.end(answered=9, held=1)
    assert not is_gathering(one)
