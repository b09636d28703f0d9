"""The pauses of a node whose disk fails again and again."""

from __future__ import annotations

from kvstore.node.back_off import BACK_OFF_SECONDS, BACK_OFF_SECONDS_MAX, GOOD_SECONDS, BackOff


def pauses(back_off: BackOff, good_seconds: float, times: int, now: float = 0.0) -> list[float]:
    """Returns the pauses of a node that fails each time when it has been back for so long."""
    found = []
    for _ in range(times):
        found.append(back_off.failed(now))
        now += found[-1]
        back_off.returned(now)
        now += good_seconds
    return found


def test_a_pause_doubles_when_a_return_is_soon_followed_by_a_failure() -> None:
    assert pauses(BackOff(), 0.5, 8) == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_it_stays_short_where_all_goes_well_in_between() -> None:
    assert pauses(BackOff(), GOOD_SECONDS, 5) == [BACK_OFF_SECONDS] * 5


def test_it_is_halved_for_each_good_time() -> None:
    for good_times, pause in ((1, 15.0), (2, 7.5), (4, 1.875), (100, BACK_OFF_SECONDS)):
        back_off = BackOff()
        assert pauses(back_off, 0.5, 10)[-1] == BACK_OFF_SECONDS_MAX
        back_off.returned(1_000.0)
        assert back_off.failed(1_000.0 + good_times * GOOD_SECONDS) == pause


def test_a_good_time_is_longer_than_the_longest_pause() -> None:
    """Or a node that fails at once after every return would spend most of the time with the others."""
    assert GOOD_SECONDS > BACK_OFF_SECONDS_MAX
