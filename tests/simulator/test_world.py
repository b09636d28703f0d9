"""Simulated time: order of events, and where the clock stands."""

from __future__ import annotations

from functools import partial

from tests.simulator.world import World


def test_events_happen_in_order_of_time_then_of_scheduling() -> None:
    world, seen = World(), list[str]()
    world.at(2.0, lambda: seen.append("second"))
    world.at(1.0, lambda: seen.append("first"))
    world.at(2.0, lambda: seen.append("third"))
    world.after(2.0, lambda: seen.append("fourth"))
    world.run_until(10.0)
    assert seen == ["first", "second", "third", "fourth"]


def test_an_event_sees_its_own_time_and_schedules_from_there() -> None:
    world, seen = World(), list[float]()

    def again() -> None:
        seen.append(world.now)
        world.after(1.5, again)

    world.at(1.0, again)
    world.run_until(4.0)
    assert seen == [1.0, 2.5, 4.0]


def test_the_past_is_now_and_after_what_is_already_due() -> None:
    world, seen = World(), list[tuple[str, float]]()
    world.at(5.0, lambda: world.at(1.0, lambda: seen.append(("late", world.now))))
    world.at(5.0, lambda: seen.append(("due", world.now)))
    world.run_until(6.0)
    assert seen == [("due", 5.0), ("late", 5.0)]


def test_the_clock_ends_where_it_was_told_to_and_later_events_wait() -> None:
    world, seen = World(), list[float]()
    world.at(3.0, lambda: seen.append(world.now))
    assert not world.run_until(2.0)
    assert (world.now, seen) == (2.0, [])
    world.run_until(3.0)
    assert (world.now, seen) == (3.0, [3.0])


def test_an_early_stop_leaves_the_clock_at_the_event_and_the_rest_for_later() -> None:
    world, seen = World(), list[int]()
    for number in range(5):
        world.at(float(number), partial(seen.append, number))
    assert world.run_until(10.0, stop=lambda: len(seen) == 2)
    assert (world.now, seen) == (1.0, [0, 1])
    assert not world.run_until(10.0, stop=lambda: False)
    assert (world.now, seen) == (10.0, [0, 1, 2, 3, 4])
