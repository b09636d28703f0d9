"""Conflicts: every write whose outcome or effect a merge changed can be found, at every node the same, and no
other."""

from __future__ import annotations

import pytest

from corel import Color
from corel.stages import Phase
from kvstore.store import (
    Append,
    Basis,
    Conflict,
    ConflictKind,
    ConflictPlace,
    Delete,
    Exists,
    FoundConflict,
    Increment,
    LastChange,
    Merge,
    Overloaded,
    Put,
    RevisionIs,
    Write,
)
from kvstore.store import store as store_module
from kvstore.store.green_state import GreenState
from tests.kvstore.store.store_cluster import StoreCluster
from tests.kvstore.store.test_green_state import FIRST_PLACE, MemoryDisk, Node, node

__all__ = ["node"]

NOTHING = Basis(0, {})
ALL = 10**9


def met(node: Node, write: Write, basis: Basis | None = NOTHING, sender: str = "c") -> list[tuple[str, str, str]]:
    """Applies a red write, and returns the conflicts that it met: the kind, the key and the other write."""
    conflicts = node.apply(write, sender=sender, basis=basis)[0].conflicts
    return [(one.kind, one.key, one.other.write_id) for one in conflicts]


def after_green(node: Node, *keys: str) -> Node:
    """Lets b put each of these keys, a message each."""
    for key in keys:
        node.apply(Write((Put(key, b"green"),)), sender="b")
    return node


# Each kind


def test_a_put_or_a_delete_over_a_change_that_its_node_did_not_know_overwrote_it(node: Node) -> None:
    after_green(node, "k", "l")
    assert met(node, Write((Put("k", b"red"),))) == [("overwrote", "k", "b.1.1.0")]
    assert met(node, Write((Delete("l"),))) == [("overwrote", "l", "b.1.2.0")]
    assert met(node, Write((Put("new", b""),))) == []


def test_a_put_over_a_deletion_that_its_node_did_not_know_overwrote_it(node: Node) -> None:
    after_green(node, "k").apply(Write((Delete("k"),)), sender="b")
    node.checkpoint()
    assert met(node, Write((Delete("k"),))) == [], "it changed nothing"
    assert met(node, Write((Put("k", b"red"),))) == [("overwrote", "k", "b.1.2.0")]


def test_each_key_of_a_transaction_is_a_conflict_of_its_own(node: Node) -> None:
    after_green(node, "k", "l")
    write = Write((Put("l", b""), Put("new", b""), Delete("k")))
    assert met(node, write) == [("overwrote", "l", "b.1.2.0"), ("overwrote", "k", "b.1.1.0")]


def test_a_write_whose_condition_fails_because_of_what_its_node_did_not_know_was_rejected(node: Node) -> None:
    after_green(node, "k")
    write = Write((Put("other", b""),), (Exists("k", False),))
    assert met(node, write) == [("rejected", "k", "b.1.1.0")]
    assert met(node, write, Basis(1, {})) == [], "it knew, and was rejected for that"


def test_a_condition_can_fail_because_of_a_deletion(node: Node) -> None:
    after_green(node, "k").apply(Write((Delete("k"),)), sender="b")
    write = Write((Put("other", b""),), (RevisionIs("k", 1),))
    assert met(node, write, Basis(1, {})) == [("rejected", "k", "b.1.2.0")]


def test_increments_and_appends_merge_and_are_conflicts_only_if_they_are_rejected(node: Node) -> None:
    node.apply(Write((Put("n", b"1"), Put("text", b"x"))), sender="b")
    assert met(node, Write((Increment("n", 1), Append("text", b"y")))) == []
    assert met(node, Write((Increment("text", 1),)), sender="d") == [("rejected", "text", "c.1.1.0")]


def test_a_write_that_did_its_else_because_of_what_its_node_did_not_know(node: Node) -> None:
    after_green(node, "k", "l")
    write = Write((Put("k", b""),), (Exists("k", False),), (Put("l", b""),))
    assert met(node, write) == [("otherwise", "k", "b.1.1.0"), ("overwrote", "l", "b.1.2.0")]


def test_to_do_something_else_is_a_conflict_though_nothing_is_overwritten() -> None:
    node = after_green(Node(MemoryDisk()), "k")
    write = Write((), (Exists("k", False),), (Put("new", b""),))
    assert met(node, write) == [("otherwise", "k", "b.1.1.0")]


def test_a_write_that_yielded_met_every_key_that_it_would_have_changed(node: Node) -> None:
    after_green(node, "k", "l")
    write = Write((Put("l", b""), Put("new", b""), Put("k", b"")), merge=Merge.KEEP_GREEN)
    assert met(node, write) == [("yielded", "l", "b.1.2.0"), ("yielded", "k", "b.1.1.0")]


def test_in_a_primary_component_there_are_no_conflicts(node: Node) -> None:
    after_green(node, "k")
    assert met(node, Write((Put("k", b""),)), basis=None) == []
    assert met(node, Write((Put("k", b""),), (Exists("k", False),)), basis=None) == []


def test_a_duplicate_meets_nothing(node: Node) -> None:
    after_green(node, "k")
    write = Write((Put("k", b"red"),), idempotency_key="once")
    assert len(met(node, write)) == 1
    after_green(node, "k")
    assert met(node, write, sender="d") == []


# How they are found


def found_at(node: Node, after: ConflictPlace = FIRST_PLACE, count: int = ALL) -> list[FoundConflict]:
    return node.green.conflicts(after, count)


def test_a_conflict_says_where_when_and_what(node: Node) -> None:
    after_green(node, "k")
    node.apply(Write(()), Write((Put("k", b"red"),)), sender="c", basis=NOTHING)
    node.apply(Write((), (Exists("k", False),)), sender="d", basis=NOTHING)
    expected = [
        FoundConflict(
            ConflictPlace(2, 1, 1, 0),
            "c.1.1.1",
            1,
            2,
            Conflict(ConflictKind.OVERWROTE, "k", LastChange("b.1.1.0", 1)),
        ),
        FoundConflict(
            ConflictPlace(2, 2, 0, 0),
            "d.1.1.0",
            2,
            None,
            Conflict(ConflictKind.REJECTED, "k", LastChange("c.1.1.1", 2)),
        ),
    ]
    assert found_at(node) == expected
    node.checkpoint()
    node.restart()
    assert found_at(node) == expected
    assert type(found_at(node)[0].conflict.kind) is ConflictKind


def test_conflicts_are_paged_across_memory_and_disk_without_gaps_and_repetitions(node: Node) -> None:
    for number in range(4):  # two are on disk, one is there and in memory, one is in memory
        after_green(node, "k", "l")
        node.apply(Write((Put("k", b""), Put("l", b""))), sender="c", basis=NOTHING)
        node.take()
        if number < 2:
            node.written()
        node.write()
    whole = found_at(node)
    assert [one.place.revision for one in whole] == [3, 3, 6, 6, 9, 9, 12, 12]
    for count in (1, 2, 3):
        pages, after = list[FoundConflict](), FIRST_PLACE
        while page := found_at(node, after, count):
            assert len(page) <= count
            pages, after = pages + page, page[-1].place
        assert pages == whole


def test_conflicts_are_paged_while_a_checkpoint_is_being_written() -> None:
    node = Node(MemoryDisk())
    after_green(node, "k", "l")
    node.apply(Write((Put("k", b""), Put("l", b""))), sender="c", basis=NOTHING)
    node.take()
    node.write()
    assert [one.conflict.key for one in found_at(node)] == ["k", "l"]
    assert [one.conflict.key for one in found_at(node, count=1)] == ["k"]


def test_conflicts_are_forgotten_with_their_revisions(node: Node) -> None:
    node.green = GreenState(node.disk, history_revisions=3)
    for _ in range(3):
        after_green(node, "k")
        node.apply(Write((Put("k", b""),)), sender="c", basis=NOTHING)
        node.checkpoint()
    assert node.green.oldest() == 3
    assert [one.place.revision for one in found_at(node)] == [4, 6]


# In a cluster


def test_both_sides_writes_and_the_conflict_are_known_to_all_after_a_merge() -> None:
    cluster = StoreCluster("abc")
    cluster.settle("abc")
    cluster.settle("ab", "c")
    cluster.ask("a", Put("k", b"green"))
    cluster.ask("c", Put("k", b"red"))
    cluster.run()
    cluster.settle("abc")
    cluster.run()
    for name in "abc":
        assert cluster.value(name, "k") == b"red"
        found = cluster.stores[name].green.conflicts(FIRST_PLACE, ALL)
        assert [(one.write_id, one.revision, one.conflict) for one in found] == [
            ("c.1.1.0", 2, Conflict(ConflictKind.OVERWROTE, "k", LastChange("a.1.1.0", 1)))
        ]


def test_two_minorities_conflict_with_each_other_when_they_merge() -> None:
    cluster = StoreCluster("abcde")
    cluster.settle("ab", "cd", "e")
    cluster.ask("a", Put("k", b"1"))
    cluster.ask("c", Put("k", b"2"))
    cluster.run()
    cluster.settle("abcd", "e")
    cluster.run()
    found = [cluster.stores[name].green.conflicts(FIRST_PLACE, ALL) for name in "abcd"]
    assert len(found[0]) == 1
    assert {found[0][0].write_id, found[0][0].conflict.other.write_id} == {"a.1.1.0", "c.1.1.0"}
    assert found[0] == found[1] == found[2] == found[3]


def test_a_preview_says_what_this_components_writes_would_do_now() -> None:
    cluster = StoreCluster("abc")
    cluster.settle("abc")
    cluster.ask("a", Put("k", b"0"))
    cluster.run()
    cluster.settle("ab", "c")
    cluster.ask("c", Put("k", b"1"))
    cluster.ask("c", Write((Put("k", b"2"),), (Exists("k", False),)))
    cluster.run()
    preview = cluster.stores["c"].preview()
    assert [(one.write_id, one.outcome.verdict) for one in preview] == [
        ("c.1.1.0", "applied"),
        ("c.1.2.0", "rejected"),
    ]
    [(key, before, after)] = preview[0].changes
    assert before is not None
    assert after is not None
    assert (key, before.value, after.value, after.revision) == ("k", b"0", b"1", None)
    assert cluster.stores["a"].preview() == []


def two_minorities() -> StoreCluster:
    """Returns a cluster in which a and b, each alone, wrote k, to yield to others, and are together without a
    majority now."""
    cluster = StoreCluster("abcde")
    cluster.settle("abcde")
    cluster.settle("a", "b", "cde")
    for name in "ab":
        cluster.ask(name, Write((Put("k", name.encode()),), merge=Merge.KEEP_GREEN))
    cluster.run()
    cluster.settle("ab", "cde")
    return cluster


def test_a_preview_judges_writes_by_what_their_senders_knew() -> None:
    cluster = two_minorities()
    for name in "ab":
        assert [one.outcome.verdict for one in cluster.stores[name].preview()] == ["applied", "yielded"]


def test_a_preview_has_the_present_colours() -> None:
    cluster = two_minorities()
    colors = [one.color for one in cluster.stores["a"].preview()]
    cluster.views("abcde")
    cluster.run_until(lambda: cluster["a"].phase is Phase.COMMITS)
    assert colors == [Color.RED, Color.RED]
    assert [one.color for one in cluster.stores["a"].preview()] == [Color.YELLOW, Color.YELLOW]


@pytest.mark.parametrize("count", [1, 2])
def test_a_start_finds_the_same(node: Node, count: int) -> None:
    after_green(node, "k")
    node.apply(Write((Put("k", b""),)), sender="c", basis=NOTHING)
    node.checkpoint()
    node.apply(Write((Put("k", b""),)), sender="d", basis=NOTHING)
    before = found_at(node, count=count)
    node.restart()
    assert found_at(node, count=count) == before
    assert len(before) == count


def test_a_long_preview_is_worked_out_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_PREVIEW_WRITES_MAX", 2)
    cluster = StoreCluster("abc")
    cluster.settle("abc")
    cluster.settle("ab", "c")
    for number in range(5):
        cluster.ask("c", Increment("k", number))
        cluster.run()
    for _ in range(2):
        with pytest.raises(Overloaded):
            cluster.stores["c"].preview()
    after = [one.changes[0][2] for one in cluster.stores["c"].preview() if one.changes]
    assert [item and item.value for item in after] == [b"0", b"1", b"3", b"6", b"10"]
    cluster.ask("c", Increment("k", 5))
    cluster.run()
    assert len(cluster.stores["c"].preview()) == 6
