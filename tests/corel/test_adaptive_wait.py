"""A bounded wait that backs off where it is in vain."""

from __future__ import annotations

from corel.adaptive_wait import SKIPS_MAX, AdaptiveWait
from transport.deadlines import AT_ONCE, NEVER


def skips(wait: AdaptiveWait) -> int:
    """Returns how many occasions in a row do not wait."""
    count = 0
    while not wait.is_worthwhile():
        count += 1
    return count


def fail(wait: AdaptiveWait) -> None:
    wait.begin(2.0)
    wait.tick(10.0)
    wait.tick(12.0)
    assert wait.is_over
    wait.end()


def test_a_wait_ends_by_time_once_the_time_is_known() -> None:
    wait = AdaptiveWait()
    assert wait.next_deadline() == NEVER
    wait.begin(2.0)
    assert wait.next_deadline() == AT_ONCE
    wait.tick(10.0)
    assert wait.next_deadline() == 12.0
    wait.begin(5.0)
    assert wait.next_deadline() == 12.0, "its end is set once"
    wait.tick(12.0)
    assert (wait.is_over, wait.next_deadline()) == (True, NEVER)
    wait.end()
    assert (wait.is_over, wait.next_deadline()) == (False, NEVER)


def test_each_failure_in_a_row_costs_twice_as_many_occasions() -> None:
    wait = AdaptiveWait()
    seen = [skips(wait)]
    for _ in range(8):
        fail(wait)
        seen.append(skips(wait))
    assert seen == [0, 1, 3, 7, 15, 31, SKIPS_MAX, SKIPS_MAX, SKIPS_MAX]


def test_one_wait_that_was_worth_it_forgives_all_failures() -> None:
    wait = AdaptiveWait()
    for _ in range(5):
        fail(wait)
    skips(wait)
    wait.succeeded()
    fail(wait)
    assert skips(wait) == 1


def test_a_wait_that_is_not_judged_never_fails() -> None:
    wait = AdaptiveWait()
    wait.begin(2.0, is_judged=False)
    wait.tick(10.0)
    wait.tick(12.0)
    assert (wait.is_over, skips(wait)) == (True, 0)


def test_a_wait_whose_purpose_has_come_is_excused() -> None:
    wait = AdaptiveWait()
    wait.begin(2.0)
    wait.tick(10.0)
    wait.excuse()
    wait.tick(12.0)
    assert (wait.is_over, skips(wait)) == (True, 0)
