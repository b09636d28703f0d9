from __future__ import annotations

from loadtest.feed import STRETCH, FeedCheck, FeedEvent
from loadtest.record import FeedDigest, FeedLine


def seen(events: list[tuple[int, str]]) -> list[FeedLine]:
    lines: list[FeedLine] = []
    check = FeedCheck("w", lines.append)
    for revision, write_id in events:
        check.take(FeedEvent(revision, write_id, "k", ""))
    check.end()
    return lines


def digest_of(events: list[tuple[int, str]]) -> str:
    digest = FeedDigest()
    for revision, write_id in events:
        digest.add(revision, write_id)
    return digest.text


def test_a_whole_feed_is_told_in_stretches() -> None:
    events = [(revision, f"a.1.{revision}.0") for revision in range(5, 5 + STRETCH + 10)]
    first, second = seen([(4, ""), *events])
    assert (first.first, first.last, first.fault) == (5, 4 + STRETCH, None)
    assert first.digest == digest_of(events[:STRETCH])
    assert (second.first, second.last) == (5 + STRETCH, 14 + STRETCH)


def test_a_gap_is_a_fault() -> None:
    lines = seen([(4, ""), (5, "x"), (7, "y")])
    assert [line.fault for line in lines] == [None, "revision 7 came where 6 was expected", None]


def test_a_repetition_is_a_fault() -> None:
    assert [line.fault for line in seen([(5, "x"), (5, "x")])][1] == "revision 5 came where 6 was expected"


def test_a_first_event_after_the_place_of_the_feed_is_a_gap() -> None:
    assert seen([(4, ""), (6, "x")])[0].fault == "revision 6 came where 5 was expected"


def test_a_heartbeat_that_is_ahead_of_the_events_is_a_gap() -> None:
    assert seen([(5, "x"), (7, "")])[1].fault == "revision 7 came where 5 was expected"


def test_connecting_again_is_no_fault() -> None:
    assert [line.fault for line in seen([(4, ""), (5, "x"), (5, ""), (6, "y"), (6, "")])] == [None]
