"""The feed of writes that are not green: each appears once, and its end is told."""

from __future__ import annotations

from functools import partial

import pytest

from corel import Color
from corel.stages import Phase
from kvstore.store import EVERYTHING, Interest, Put, RevisionIs, TentativeWatcher, Verdict, Write, tentative_feed
from kvstore.store.config import StoreConfig
from kvstore.store.tentative_feed import Recolored, Settled, TentativeWrite
from tests.kvstore.store.store_cluster import StoreCluster


def watching(cluster: StoreCluster, name: str, interest: Interest = EVERYTHING) -> TentativeWatcher:
    return cluster.stores[name].tentative_feed.add(interest, lambda: None)


def split() -> StoreCluster:
    """Returns a cluster in which c is alone."""
    cluster = StoreCluster("abc")
    cluster.settle("abc")
    cluster.settle("ab", "c")
    return cluster


def test_a_red_write_appears_and_what_it_changed_when_it_is_green_is_no_event_here() -> None:
    cluster = split()
    watcher = watching(cluster, "c")
    cluster.ask("c", Put("k", b"red"))
    cluster.run()
    assert watcher.take(9) == [TentativeWrite("c.1.1.0", Color.RED, (Put("k", b"red"),))]
    cluster.settle("abc")
    assert watcher.take(9) == [Recolored("c.1.1.0", Color.YELLOW)]
    assert cluster.value("a", "k") == b"red"


def test_a_write_is_yellow_from_the_commitment_on() -> None:
    cluster = split()
    watcher = watching(cluster, "c")
    cluster.ask("c", Put("k", b"red"))
    cluster.run()
    watcher.take(9)
    cluster.views("abc")
    cluster.run_until(lambda: cluster["c"].phase is Phase.COMMITS)
    assert watcher.take(9) == [Recolored("c.1.1.0", Color.YELLOW)]


def test_a_write_that_is_green_and_changed_nothing_is_settled() -> None:
    cluster = split()
    watcher = watching(cluster, "c")
    cluster.ask("c", Write((Put("k", b"red"),), (RevisionIs("k", 7),)))
    cluster.run()
    cluster.settle("abc")
    last = watcher.take(9)[-1]
    assert isinstance(last, Settled)
    assert (last.write_id, last.outcome.verdict) == ("c.1.1.0", Verdict.REJECTED)


def test_writes_that_are_there_already_come_first() -> None:
    cluster = split()
    for value in (b"1", b"2"):
        cluster.ask("c", Put("k", value))
        cluster.run()
    watcher = watching(cluster, "c")
    assert [event.write_id for event in watcher.take(9)] == ["c.1.1.0", "c.1.2.0"]


def test_what_merges_from_another_component_appears_too() -> None:
    cluster = StoreCluster("abcde")
    cluster.settle("abcde")
    cluster.settle("ab", "c", "de")
    cluster.ask("c", Put("k", b"of c"))
    cluster.run()
    watcher = watching(cluster, "a")
    cluster.settle("abc", "de")
    assert [type(event) for event in watcher.take(1)] == [TentativeWrite]


def test_only_operations_of_interest_are_shown() -> None:
    cluster = split()
    watcher = watching(cluster, "c", Interest(frozenset("a"), ("b",)))
    cluster.ask("c", Write((Put("a", b""), Put("ab", b""), Put("bc", b""))))
    cluster.ask("c", Put("ab", b""))
    cluster.run()
    [event] = watcher.take(9)
    assert isinstance(event, TentativeWrite)
    assert event.operations == (Put("a", b""), Put("bc", b""))


def test_a_watcher_that_does_not_keep_up_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tentative_feed, "EVENTS_MAX", 2)
    cluster = split()
    watcher = watching(cluster, "c")
    for _ in range(3):
        cluster.ask("c", Put("k", b"red"))
        cluster.run()
    assert watcher.is_behind
    assert len(watcher.take(9)) == 2


def test_who_comes_late_sees_everything_however_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = split()
    for number in range(6):
        cluster.ask("c", Put(f"k{number}", b"red"))
        cluster.run()
    monkeypatch.setattr(tentative_feed, "EVENTS_MAX", 2)
    watcher = watching(cluster, "c")
    assert [event.write_id for event in watcher.take(4)] == [f"c.1.{number}.0" for number in range(1, 5)]
    cluster.ask("c", Put("k6", b"red"))
    cluster.run()
    assert [event.write_id for event in watcher.take(9)] == ["c.1.5.0", "c.1.6.0", "c.1.7.0"]
    assert not watcher.is_behind
    assert not watcher.has_events


def test_what_is_green_before_it_was_seen_does_not_appear() -> None:
    cluster = split()
    for number in range(2):
        cluster.ask("c", Put(f"k{number}", b"red"))
        cluster.run()
    watcher = watching(cluster, "c")
    [first] = watcher.take(1)
    cluster.settle("abc")
    assert (first.write_id, watcher.take(9)) == ("c.1.1.0", [Recolored("c.1.1.0", Color.YELLOW)])


def test_without_watchers_nothing_is_kept() -> None:
    cluster = split()
    feed = cluster.stores["c"].tentative_feed
    watcher = watching(cluster, "c")
    cluster.ask("c", Put("k", b"red"))
    cluster.run()
    assert feed._known
    feed.remove(watcher)
    assert not feed._known
    assert not feed


def test_what_is_green_and_waits_to_be_applied_is_not_called_red_again() -> None:
    cluster = StoreCluster("abc", StoreConfig(apply_writes_max=1))
    cluster.settle("abc")
    watcher = watching(cluster, "c")
    cluster.disks["a"].hold()
    for name in "bc":
        cluster.ask(name, Put(name, b""))
    cluster.run()
    cluster.disks["a"].release()  # both are green at once, and one of them is applied
    cluster.run()
    cluster.settle("ab", "c")
    assert cluster.stores["c"].green.revision == 1
    assert [(event.write_id, event.color) for event in watcher.take(9) if not isinstance(event, Settled)] == [
        ("b.1.1.0", Color.YELLOW),
        ("c.1.1.0", Color.YELLOW),
    ]


def test_a_watcher_may_leave_while_others_are_told() -> None:
    cluster = StoreCluster("abc")
    cluster.settle("ab", "c")
    feed, told = cluster.stores["c"].tentative_feed, list[int]()
    watchers: list[TentativeWatcher] = []

    def wake(number: int) -> None:
        told.append(number)
        feed.remove(watchers[number])

    watchers += [feed.add(EVERYTHING, partial(wake, number)) for number in range(20)]
    cluster.ask("c", Put("k", b""))
    cluster.run()
    assert told == list(range(20))
    assert not feed


# How a write ends


def test_a_write_that_changed_nothing_of_interest_is_settled_for_whom_it_had_appeared_to() -> None:
    cluster = split()
    of_k, of_l = (watching(cluster, "c", Interest(frozenset(key))) for key in "kl")
    cluster.ask("c", Write((Put("k", b""),), (RevisionIs("k", 7),), (Put("l", b""),)))
    cluster.run()
    cluster.settle("abc")
    assert cluster.value("c", "l") == b""
    last = of_k.take(9)[-1]
    assert isinstance(last, Settled)
    assert (last.write_id, last.outcome.verdict, last.outcome.branch) == ("c.1.1.0", Verdict.APPLIED, False)
    assert not [event for event in of_l.take(9) if isinstance(event, Settled)], "it is a change for this one"


def test_who_does_not_watch_the_green_state_is_told_of_every_end() -> None:
    cluster = split()
    watcher = cluster.stores["c"].tentative_feed.add(EVERYTHING, lambda: None, reads_changes=False)
    cluster.ask("c", Put("k", b""))
    cluster.run()
    cluster.settle("abc")
    appeared, *_, settled = watcher.take(9)
    assert isinstance(appeared, TentativeWrite)
    assert isinstance(settled, Settled)
    assert settled.outcome.verdict is Verdict.APPLIED
