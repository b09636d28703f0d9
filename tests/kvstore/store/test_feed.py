"""Feeds: a watcher that reads changes by revision, and waits when there is nothing to read, sees exactly what
concerns it, once and in order, wherever and however often it resumes."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.store import EVERYTHING, Change, Delete, Feed, Interest, Item, Put, Waiting, Write, green_state
from kvstore.store.green_state import GreenState
from tests.kvstore.store.store_cluster import StoreCluster
from tests.kvstore.store.test_green_state import Disk, LmdbDisk, MemoryDisk, body, message
from tests.transport.strategies import thorough
from transport import ViewId

KEYS = ("a", "ab", "abc", "b", "ü/1", "ü/2")
ALL = 10**9
VIEW = ViewId(1, "a", 1)


def change(revision: int, *keys: str) -> Change:
    return Change(revision, f"a.1.{revision}.0", tuple([(key, None) for key in keys]))


# What is of interest


def test_an_interest_is_keys_and_prefixes() -> None:
    interest = Interest(frozenset({"b"}), ("ab", "ü/"))
    assert [key for key in KEYS if interest.has(key)] == ["ab", "abc", "b", "ü/1", "ü/2"]
    assert not Interest().has("a")
    assert not interest.has("bb"), "a key is not a prefix"


def test_of_a_change_only_the_part_of_interest_is_seen() -> None:
    whole = change(1, "a", "b", "ab")
    assert Interest(prefixes=("a",)).of(whole) == change(1, "a", "ab")
    assert Interest(frozenset({"b"})).of(whole) == change(1, "b")
    assert Interest(frozenset({"x"}), ("y",)).of(whole) is None
    assert EVERYTHING.of(whole) is whole
    assert Interest(prefixes=("a", "b")).of(whole) is whole


# Waiting


class Woken:
    """A feed, and who was woken with what."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.calls: list[tuple[str, int]] = []

    def wait(self, name: str, *prefixes: str, keys: frozenset[str] = frozenset()) -> Waiting:
        return self.feed.wait(Interest(keys, prefixes), lambda revision: self.calls.append((name, revision)))


def test_a_watcher_is_woken_once_by_the_first_change_of_interest() -> None:
    woken = Woken()
    woken.wait("one", "a", "b", keys=frozenset({"a", "ab"}))
    woken.feed.changed(1, ["c", "x"])
    assert woken.calls == []
    woken.feed.changed(2, ["c", "ab", "b", "a"])
    woken.feed.changed(3, ["a"])
    assert woken.calls == [("one", 2)]
    assert len(woken.feed) == 0


def test_watchers_of_a_key_of_prefixes_of_all_lengths_and_of_everything() -> None:
    woken = Woken()
    for name, prefixes in (("all", ("",)), ("a", ("a",)), ("abc", ("abc",)), ("abcd", ("abcd",)), ("ü/", ("ü/",))):
        woken.wait(name, *prefixes)
    woken.wait("key", keys=frozenset({"abc"}))
    woken.wait("other", keys=frozenset({"ab"}))
    woken.feed.changed(7, ["abc"])
    assert {name for name, _ in woken.calls} == {"all", "a", "abc", "key"}
    assert len(woken.feed) == 3


def test_watchers_are_woken_in_the_order_in_which_they_came() -> None:
    woken = Woken()
    names = [f"w{number}" for number in range(40)]
    for name in names:
        woken.wait(name, "a")
    woken.feed.changed(1, ["a"])
    assert [name for name, _ in woken.calls] == names


def test_who_has_cancelled_is_not_woken() -> None:
    woken = Woken()
    first, second = woken.wait("first", "a", keys=frozenset({"b"})), woken.wait("second", "a", "ab")
    assert woken.feed.cancel(first)
    assert not woken.feed.cancel(first)
    assert len(woken.feed) == 1
    woken.feed.changed(1, ["ab", "b"])
    assert woken.calls == [("second", 1)]
    assert not woken.feed.cancel(second)
    assert len(woken.feed) == 0


def test_who_is_cancelled_while_others_are_woken_is_not_woken() -> None:
    feed, calls = Feed(), list[str]()
    waiting: list[Waiting] = []

    def wake(revision: int) -> None:
        calls.append("first")
        feed.cancel(waiting[1])

    waiting.append(feed.wait(EVERYTHING, wake))
    waiting.append(feed.wait(EVERYTHING, lambda revision: calls.append("second")))
    feed.changed(1, ["k"])
    assert (calls, len(feed)) == (["first"], 0)


def test_who_waits_again_when_woken_is_woken_by_the_next_change_only() -> None:
    feed, calls = Feed(), list[int]()

    def again(revision: int) -> None:
        calls.append(revision)
        feed.wait(EVERYTHING, again)

    feed.wait(EVERYTHING, again)
    feed.changed(1, ["a", "b"])
    feed.changed(2, ["a"])
    assert (calls, len(feed)) == ([1, 2], 1)


def test_all_are_woken_when_the_node_stops() -> None:
    woken = Woken()
    woken.wait("one", "a", "b", keys=frozenset({"c"}))
    woken.wait("two", keys=frozenset({"c"}))
    woken.feed.wake_all(9)
    assert sorted(woken.calls) == [("one", 9), ("two", 9)]
    assert len(woken.feed) == 0


def test_a_prefix_that_nobody_waits_for_any_more_costs_nothing() -> None:
    feed = Feed()
    waiting = [feed.wait(Interest(prefixes=(prefix,)), lambda revision: None) for prefix in ("a", "b", "abc")]
    for one in waiting[::2]:
        feed.cancel(one)
    assert (feed._prefix_lengths, list(feed._by_prefix)) == ((1,), ["b"])
    feed.cancel(waiting[1])
    assert (feed._prefix_lengths, feed._by_prefix, feed._by_key) == ((), {}, {})


interests = st.builds(
    Interest,
    st.frozensets(st.sampled_from(KEYS), max_size=2),
    st.lists(st.sampled_from(("", "a", "ab", "abcd", "ü", "ü/", "b")), max_size=2).map(tuple),
)


@thorough
@given(st.lists(interests, max_size=5), st.lists(st.lists(st.sampled_from(KEYS), min_size=1), max_size=5))
def test_the_woken_are_those_with_an_interest_and_no_others(
    some: list[Interest], changes: list[list[str]]
) -> None:
    feed, waiting, woken = Feed(), dict(enumerate(some)), list[int]()
    for name, interest in waiting.items():
        feed.wait(interest, lambda revision, name=name: woken.append(name))  # type: ignore[misc]
    for revision, keys in enumerate(changes, start=1):
        woken.clear()
        feed.changed(revision, keys)
        expected = [name for name, interest in waiting.items() if any(map(interest.has, keys))]
        assert sorted(woken) == expected
        for name in expected:
            del waiting[name]
        assert len(feed) == len(waiting)


# In a store


def test_a_store_wakes_by_revision_and_only_when_something_changed() -> None:
    cluster = StoreCluster("abc")
    cluster.settle("abc")
    calls: list[int] = []
    for interest in (Interest(frozenset({"k"})), Interest(prefixes=("l",)), Interest(frozenset({"x"}))):
        cluster.stores["b"].feed.wait(interest, calls.append)
    cluster.ask("a", Delete("k"))  # changes nothing
    cluster.run()
    assert calls == []
    cluster.ask("a", Put("lx", b""))
    cluster.run()
    cluster.ask("c", Put("k", b""))
    cluster.run()
    assert calls == [1, 2]
    cluster.stores["b"].leave()
    assert calls == [1, 2, 2]


def test_what_is_red_wakes_nobody_until_it_is_green() -> None:
    cluster = StoreCluster("abc")
    cluster.settle("ab", "c")
    calls: list[int] = []
    cluster.stores["c"].feed.wait(EVERYTHING, calls.append)
    cluster.ask("c", Put("k", b""))
    cluster.run()
    assert calls == []
    cluster.settle("abc")
    cluster.run()
    assert calls == [1]


# Any interleaving


class Watcher:
    """Reads what it can, then waits; `next` is the first revision that it has not seen."""

    def __init__(self, interest: Interest, first: int, is_skipping: bool) -> None:
        self.interest = interest
        self.first = self.next = first
        self._is_skipping = is_skipping
        """Whether it trusts that nothing of interest comes before the revision that it is woken with."""
        self.seen: list[Change] = []
        self.node: Replica | None = None
        self._waiting: Waiting | None = None

    def resume(self, node: Replica) -> None:
        """Goes on at this node, which may be behind."""
        if self.node is not None and self._waiting is not None:
            self.node.feed.cancel(self._waiting)
        self.node = node
        while part := node.green.changes(self.next, 2, 6):
            self.seen += [found for one in part if (found := self.interest.of(one)) is not None]
            self.next = part[-1].revision + 1
        self._waiting = node.feed.wait(self.interest, self._wake)

    def _wake(self, revision: int) -> None:
        self._waiting = None
        if self._is_skipping:
            self.next = max(self.next, revision)
        assert self.node is not None
        self.resume(self.node)


class Replica:
    """A node that applies the order at its own pace, writes checkpoints and restarts."""

    def __init__(self, disk: Disk, order: list[bytes]) -> None:
        self.disk = disk
        self.green = GreenState(disk)
        self.feed = Feed()
        self._order = order

    def apply(self) -> None:
        if self.green.line < len(self._order):
            line = self.green.line
            for done in self.green.apply(message(line + 1), self._order[line], VIEW):
                if done.changes and done.outcome.revision is not None:
                    self.feed.changed(done.outcome.revision, done.changes)

    def checkpoint(self) -> None:
        taken = self.green.take_checkpoint(ALL, only_full=False)
        if taken is not None:
            self.disk.apply(taken)
            self.green.written(taken)

    def restart(self) -> None:
        """Starts again from its disk; the order after that is applied again."""
        line = self.green.line
        self.disk = self.disk.reopened()
        self.green, self.feed = GreenState(self.disk), Feed()
        while self.green.line < line:
            self.green.apply(message(self.green.line + 1), self._order[self.green.line], VIEW)


class Step(NamedTuple):
    what: str
    node: int
    watcher: int


operations = st.builds(Put, st.sampled_from(KEYS), st.binary(max_size=3)) | st.builds(
    Delete, st.sampled_from(KEYS)
)
writes = st.lists(operations, min_size=1, max_size=3).map(lambda made: Write(tuple(made)))
orders = st.lists(st.lists(writes, max_size=3), max_size=10)
watchers = st.lists(st.tuples(interests, st.integers(1, 6), st.booleans()), min_size=1, max_size=3)
steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(("apply", "apply", "apply", "checkpoint", "restart", "resume")),
        st.integers(0, 1),
        st.integers(0, 2),
    ),
    max_size=30,
)


def follow(disks: list[Disk], order: list[bytes], watchers: list[Watcher], script: list[Step]) -> None:
    nodes = [Replica(disk, order) for disk in disks]
    for one in watchers:
        one.resume(nodes[0])
    for step in script:
        node = nodes[step.node]
        if step.what == "resume":
            watchers[step.watcher % len(watchers)].resume(node)
            continue
        {"apply": node.apply, "checkpoint": node.checkpoint, "restart": node.restart}[step.what]()
        if step.what == "restart":
            for one in watchers:
                if one.node is node:
                    one.resume(node)
    for node in nodes:
        while node.green.line < len(order):
            node.apply()
    for one in watchers:
        whole = [
            interesting for change in whole_order(order) if (interesting := one.interest.of(change)) is not None
        ]
        assert one.seen == [change for change in whole if change.revision >= one.first]
    for node in nodes:
        node.disk.close()


def whole_order(order: list[bytes]) -> list[Change]:
    """Returns all changes, as they follow from what the writes did."""
    green, changes = GreenState(MemoryDisk()), list[Change]()
    for place, data in enumerate(order, start=1):
        for index, done in enumerate(green.apply(message(place), data, VIEW)):
            if done.changes:
                changes.append(Change(len(changes) + 1, f"a.1.{place}.{index}", tuple(done.changes.items())))
    return changes


def run(
    disks: list[Disk], order: list[list[Write]], some: list[tuple[Interest, int, bool]], script: list[Step]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(green_state, "CHECKPOINT_ITEMS_MAX", 4)
        follow(disks, [body(*writes) for writes in order], [Watcher(*one) for one in some], script)


@settings(thorough, max_examples=120)
@given(orders, watchers, steps)
def test_each_watcher_sees_the_green_sequence_of_its_interest(
    order: list[list[Write]], some: list[tuple[Interest, int, bool]], script: list[Step]
) -> None:
    run([MemoryDisk(), MemoryDisk()], order, some, script)


@settings(thorough, max_examples=25)
@given(orders, watchers, steps)
def test_so_it_is_on_real_disks(
    tmp_path_factory: pytest.TempPathFactory,
    order: list[list[Write]],
    some: list[tuple[Interest, int, bool]],
    script: list[Step],
) -> None:
    run([LmdbDisk(tmp_path_factory.mktemp("store")) for _ in range(2)], order, some, script)


def test_a_watcher_reads_on_from_the_disk_into_memory() -> None:
    node = Replica(MemoryDisk(), [body(Write((Put("k", b"%d" % number),))) for number in range(6)])
    for number in range(6):
        node.apply()
        if number in (1, 3):
            node.checkpoint()
    watcher = Watcher(EVERYTHING, 2, is_skipping=False)
    watcher.resume(node)
    assert [one.revision for one in watcher.seen] == [2, 3, 4, 5, 6]
    assert watcher.seen[-1].items == (("k", Item(b"5", "application/octet-stream", 6, "a.1.6.0")),)
