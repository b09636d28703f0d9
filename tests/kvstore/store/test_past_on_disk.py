"""The past on a real disk, where what a test looks at has left memory: undo records, the index of versions, and
what is forgotten in which order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kvstore.node import lmdb_tree
from kvstore.store import Basis, Compacted, Delete, Put, Span, Write, state
from kvstore.store.green_state import GreenState
from tests.kvstore.store.test_green_state import FIRST_PLACE, LmdbDisk, Node

ALL = 10**9


@contextmanager
def on_disk(history_revisions: int = ALL, history_bytes: int = ALL) -> Iterator[Node]:
    with TemporaryDirectory() as directory:
        node = Node(LmdbDisk(Path(directory)))
        node.green = GreenState(node.disk, history_revisions, history_bytes)
        yield node
        node.disk.close()


def put(node: Node, *pairs: str) -> None:
    """Applies a message of puts, a revision each: `k1` puts 1 as k."""
    node.apply(*[Write((Put(pair[0], pair[1:].encode()),)) for pair in pairs])


def state_at(node: Node, revision: int, is_reverse: bool = False) -> str:
    found = node.green.snapshot(revision).scan(Span(), is_reverse)
    return " ".join(f"{key}{item.value.decode()}" for key, item in found)


def revisions(node: Node, key: str) -> list[int]:
    return [revision for revision, _, _ in node.green.versions(key, ALL, ALL)]


def test_a_key_that_changes_often_in_one_checkpoint_has_all_its_values() -> None:
    with on_disk() as node:
        put(node, "k0")
        node.checkpoint()
        put(node, "k1", "k2", "l1")
        put(node, "k3")
        node.do(Delete("k"))
        node.checkpoint()
        states = [state_at(node, revision) for revision in range(7)]
        assert states == ["", "k0", "k1", "k2", "k2 l1", "k3 l1", "l1"]
        assert [state_at(node, 4, True), state_at(node, 6, True)] == ["l1 k2", "l1"]
        assert revisions(node, "k") == [6, 5, 3, 2, 1]
        assert [item.value if item else None for _, _, item in node.green.versions("k", 6, 2)] == [b"3", b"2"]


def test_keys_that_are_gone_and_keys_that_are_new_are_listed_where_they_were() -> None:
    with on_disk() as node:
        put(node, "a1", "c1", "e1")
        node.do(Delete("a"), Delete("e"))
        put(node, "b1", "d1", "c2")
        node.checkpoint()
        assert [state_at(node, revision) for revision in (3, 4, 6)] == ["a1 c1 e1", "c1", "b1 c1 d1"]
        assert [state_at(node, revision, True) for revision in (3, 4, 6)] == ["e1 c1 a1", "c1", "d1 c1 b1"]


def test_changes_are_read_from_the_middle_of_a_message_on() -> None:
    with on_disk() as node:
        put(node, "a1", "b1", "c1")
        put(node, "a2", "b2")
        node.checkpoint()
        put(node, "a3")
        for first in range(1, 7):
            found = node.green.changes(first, 2, ALL)
            assert [one.revision for one in found] == [first, first + 1][: 1 if first in (5, 6) else 2]
        assert [one.write_id for one in node.green.changes(2, 3, ALL)] == ["a.1.1.1", "a.1.1.2", "a.1.2.0"]
        [change] = node.green.changes(2, 1, ALL)
        assert change.items[0][1] == node.green.snapshot(2).item("b")


def test_a_message_is_forgotten_as_a_whole_oldest_first() -> None:
    with on_disk(history_revisions=2) as node:
        put(node, "a1", "b1", "a2")
        put(node, "a3")
        node.checkpoint()
        assert node.green.oldest() == 0, "the first message has revision 3, which is kept"
        put(node, "b2")
        node.checkpoint()
        assert (node.green.oldest(), revisions(node, "a"), revisions(node, "b")) == (3, [4], [5])
        assert [state_at(node, revision) for revision in (3, 4, 5)] == ["a2 b1", "a3 b1", "a3 b2"]
        with pytest.raises(Compacted):
            state_at(node, 2)
        with pytest.raises(Compacted):
            node.green.changes(3, 1, ALL)


def test_the_index_keeps_what_is_kept() -> None:
    with on_disk(history_revisions=1) as node:
        for number in range(4):
            put(node, f"k{number}")
            node.checkpoint()
        assert isinstance(node.disk, LmdbDisk)
        assert (node.disk.size("history"), node.disk.size("versions")) == (1, 1)
        assert revisions(node, "k") == [4]
        assert state_at(node, 3) == "k2"


def test_a_large_past_is_forgotten_sooner() -> None:
    with on_disk(history_bytes=3_000) as node:
        for number in range(8):
            put(node, "k" + f"{number}" * 1_000)
            node.checkpoint()
        assert 5 <= node.green.oldest() <= 7
        assert state_at(node, 7) == "k" + "6" * 1_000


def test_versions_that_are_forgotten_and_not_deleted_yet_are_not_shown() -> None:
    with on_disk() as node:
        put(node, *[f"o{number}" for number in range(300)])
        node.apply(*[Write((Put("p", b""),)) for _ in range(300)])
        put(node, "k1")
        node.checkpoint()
        node.restart(lambda disk: GreenState(disk, history_revisions=0))
        put(node, "k2")
        node.checkpoint()
        assert (node.green.oldest(), revisions(node, "k")) == (602, [])


def test_versions_that_are_forgotten_on_disk_and_still_in_memory_are_not_shown() -> None:
    with on_disk(history_revisions=0) as node:
        put(node, "k1")
        assert revisions(node, "k") == [1]
        node.take()
        node.write()  # the green state does not know it yet
        assert (node.green.oldest(), revisions(node, "k")) == (1, [])


def test_versions_that_are_on_disk_and_still_in_memory_are_shown_once() -> None:
    with on_disk() as node:
        put(node, "k1", "k2")
        node.take()
        node.write()
        put(node, "k3")
        assert revisions(node, "k") == [3, 2, 1]
        assert [revision for revision, _, _ in node.green.versions("k", 3, 1)] == [2]


def test_conflicts_leave_the_disk_with_their_revisions_and_not_before() -> None:
    with on_disk(history_revisions=2) as node:
        for _ in range(3):
            node.apply(Write((Put("k", b""),)), sender="b")
            node.apply(Write((Put("k", b""),)), sender="c", basis=Basis(0, {}))
            node.checkpoint()
        assert node.green.oldest() == 4
        assert [one.place.revision for one in node.green.conflicts(FIRST_PLACE, ALL)] == [6]
        assert isinstance(node.disk, LmdbDisk)
        assert node.disk.size("conflicts") == 1


def test_a_deletion_that_was_repeated_is_remembered_by_the_last() -> None:
    with on_disk() as node, pytest.MonkeyPatch.context() as patch:
        for module in (state, lmdb_tree):
            patch.setattr(module, "IDEMPOTENCY_POSITIONS", 3)
        for _ in range(2):
            node.do(Put("k", b""))
            node.do(Delete("k"))
            node.checkpoint()
        for _ in range(3):
            node.apply()
            node.checkpoint()
        assert isinstance(node.disk, LmdbDisk)
        assert node.disk.tombstone("k") == state.Tombstone("a.1.4.0", 4, 3)
        assert node.disk.size("ages") == 1
        for _ in range(2):
            node.apply()
            node.checkpoint()
        assert (node.disk.tombstone("k"), node.disk.size("ages")) == (None, 0)
