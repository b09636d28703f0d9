"""The past of the green state: what is read of it is what the state was then, wherever it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstore.node import lmdb_history
from kvstore.store import Append, Change, Compacted, Delete, Increment, Item, Put, Snapshot, Span, Write, span_of
from kvstore.store import green_state as green_state_module
from kvstore.store.green_state import GreenState
from tests.kvstore.store.test_green_state import Disk, LmdbDisk, MemoryDisk, Node, node
from tests.transport.strategies import thorough

__all__ = ["node"]

KEYS = ("a", "ab", "b", "b\0", "ü")
ALL = 10**9


class Model:
    """Every state that there ever was."""

    def __init__(self) -> None:
        self.states: list[dict[str, Item]] = [{}]
        self.changes: list[Change] = []

    def add(self, change: Change) -> None:
        state = dict(self.states[-1])
        for key, item in change.items:
            if item is None:
                del state[key]
            else:
                state[key] = item
        self.states.append(state)
        self.changes.append(change)

    def scan(self, span: Span, revision: int) -> list[tuple[str, Item]]:
        return [pair for pair in sorted(self.states[revision].items()) if span.has(pair[0].encode())]

    def versions(self, key: str, oldest: int, before: int) -> list[tuple[int, str, Item | None]]:
        return [
            (change.revision, change.write_id, dict(change.items)[key])
            for change in reversed(self.changes)
            if oldest < change.revision < before and key in dict(change.items)
        ]


def compare(green: GreenState, model: Model, spans: list[Span]) -> None:
    """Compares everything that can be read of the past with the model."""
    oldest = green.oldest()
    for revision in range(green.revision + 2):
        snapshot = green.snapshot(revision)
        state = model.states[min(revision, green.revision)]
        for key in KEYS:
            if revision < oldest:
                continue
            assert snapshot.item(key) == green.item_at(key, revision) == state.get(key)
            kept = model.versions(key, oldest, revision)
            assert green.versions(key, revision, ALL) == kept
            assert green.versions(key, revision, 1) == kept[:1]
        for span in spans if revision >= oldest else ():
            found = model.scan(span, snapshot.revision)
            assert list(snapshot.scan(span)) == found
            assert list(snapshot.scan(span, is_reverse=True)) == found[::-1]
            assert in_slices(snapshot, span, is_reverse=False) == found
            assert in_slices(snapshot, span, is_reverse=True) == found[::-1]
        if revision > oldest:
            assert list(read_all(green, revision)) == model.changes[revision - 1 :]


def in_slices(snapshot: Snapshot, span: Span, is_reverse: bool) -> list[tuple[str, Item]]:
    """Reads one key at a time, whether it exists or not, as lists do with many."""
    found: list[tuple[str, Item]] = []
    while (one := next(snapshot.walk(span, is_reverse), None)) is not None:
        key, item = one
        found += [(key, item)] if item is not None else []
        span = span.before(key.encode()) if is_reverse else span.after(key.encode())
    return found


def read_all(green: GreenState, first: int) -> list[Change]:
    """Reads the changes in small parts, as a feed does."""
    found: list[Change] = []
    while part := green.changes(first + len(found), 2, 5):
        assert len(part) <= 2
        found += part
    return found


# Any history

operations = st.one_of(
    st.builds(Put, st.sampled_from(KEYS), st.binary(max_size=4)),
    st.builds(Delete, st.sampled_from(KEYS)),
    st.builds(Append, st.sampled_from(KEYS), st.binary(max_size=2)),
    st.builds(Increment, st.sampled_from(("b", "n")), st.integers(-2, 2)),
)
writes = st.lists(operations, min_size=1, max_size=3).map(lambda made: Write(tuple(made)))
Step: TypeAlias = list[Write] | str
steps: st.SearchStrategy[Step] = st.lists(writes, min_size=1, max_size=4) | st.sampled_from(
    ("take", "write", "written", "restart")
)
edges = st.sampled_from((b"", b"a", b"aa", b"ab", b"b", b"b\0", b"c", "ü".encode(), b"\xff"))
spans = st.lists(st.builds(span_of, edges, edges, edges | st.none()), min_size=1, max_size=3)


class Script(NamedTuple):
    steps: list[Step]
    spans: list[Span]
    history_revisions: int
    history_bytes: int


scripts = st.builds(
    Script, st.lists(steps, max_size=16), spans, st.sampled_from((0, 1, 3, 8, ALL)), st.sampled_from((1, 200, ALL))
)


def follow(disk: Disk, script: Script) -> None:
    def green_of(disk: Disk) -> GreenState:
        return GreenState(disk, script.history_revisions, script.history_bytes)

    node, model = Node(disk), Model()
    node.green = green_of(disk)
    for step in script.steps:
        if isinstance(step, list):
            before = node.green.revision
            node.apply(*step)
            for change in node.green.changes(before + 1, ALL, ALL) if node.green.revision > before else ():
                model.add(change)
        elif step == "restart":
            node.restart(green_of)
        elif step == "take":
            node.take()
        else:
            {"write": node.write, "written": node.written}[step]()
        compare(node.green, model, script.spans)
    node.disk.close()


@settings(thorough, max_examples=80)
@given(scripts)
def test_the_past_is_what_was(script: Script) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(green_state_module, "CHECKPOINT_ITEMS_MAX", 4)
        follow(MemoryDisk(), script)


@settings(thorough, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scripts)
def test_so_it_is_on_a_real_disk(tmp_path_factory: pytest.TempPathFactory, script: Script) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(green_state_module, "CHECKPOINT_ITEMS_MAX", 4)
        patch.setattr(lmdb_history, "LARGE_BYTES", 42)  # some values are kept apart
        follow(LmdbDisk(tmp_path_factory.mktemp("store")), script)


# What is forgotten


def test_what_is_no_longer_kept_is_an_error_that_names_the_oldest_that_is(node: Node) -> None:
    node.green = GreenState(node.disk, history_revisions=3)
    for number in range(10):
        node.do(Put("k", b"%d" % number))
        node.checkpoint()
    assert node.green.oldest() == 7
    assert node.green.snapshot(7).item("k") == Item(b"6", "application/octet-stream", 7, "a.1.7.0")
    for read in (
        lambda: node.green.snapshot(6).item("k"),
        lambda: node.green.item_at("k", 6),
        lambda: list(node.green.snapshot(6).scan(Span())),
        lambda: node.green.changes(7, 1, 1),
    ):
        with pytest.raises(Compacted) as raised:
            read()
        assert raised.value.oldest == 7
    assert [revision for revision, _, _ in node.green.versions("k", ALL, ALL)] == [10, 9, 8]


def test_a_revision_that_is_being_read_is_kept_up_to_a_bound(node: Node) -> None:
    node.green = GreenState(node.disk, history_revisions=1)
    node.do(Put("k", b"first"))
    with node.green.pinned(1):
        for number in range(9):
            node.do(Put("k", b"%d" % number))
            node.checkpoint()
        assert node.green.snapshot(1).item("k") == Item(b"first", "application/octet-stream", 1, "a.1.1.0")
        for number in range(9):
            node.do(Put("k", b"%d" % number))
            node.checkpoint()
        assert node.green.oldest() == 9
    node.do(Put("k", b"last"))
    node.checkpoint()
    assert node.green.oldest() == 19


def test_a_snapshot_does_not_change_when_what_it_shows_reaches_the_disk(node: Node) -> None:
    node.do(Put("a", b"1"))
    node.do(Put("b", b"1"))
    snapshot = node.green.snapshot()
    node.do(Delete("a"))
    node.do(Put("b", b"2"))
    node.do(Put("c", b"2"))
    for _ in range(2):
        assert [(key, item.value) for key, item in snapshot.scan(Span())] == [("a", b"1"), ("b", b"1")]
        node.checkpoint()


def test_large_values_of_a_transaction_are_kept_apart_and_forgotten_with_it(tmp_path: Path) -> None:
    node = Node(LmdbDisk(tmp_path))
    node.green = GreenState(node.disk, history_revisions=2)
    large = bytes(lmdb_history.LARGE_BYTES)
    node.do(*[Put(f"k{number}", large + b"%d" % number) for number in range(3)], Put("small", b"s"))
    node.do(*[Delete(f"k{number}") for number in range(3)], Delete("small"))
    node.checkpoint()
    then = node.green.snapshot(1)
    assert [(key, len(item.value)) for key, item in then.scan(Span())] == [
        *((f"k{number}", len(large) + 1) for number in range(3)),
        ("small", 1),
    ]
    assert isinstance(node.disk, LmdbDisk)
    assert node.disk.size("replaced") == 3
    for _ in range(3):
        node.do(Put("k", b""))
        node.checkpoint()
    assert node.disk.size("replaced") == 0
    node.disk.close()


# Spans


def test_a_prefix_is_a_span() -> None:
    assert span_of(b"") == Span(b"", None)
    assert span_of(b"a/") == Span(b"a/", b"a0")
    assert span_of(b"a\xff") == Span(b"a\xff", b"b")
    assert span_of(b"a/", b"a/m", b"z") == Span(b"a/m", b"a0")
    assert span_of(b"a/", b"", b"a/c") == Span(b"a/", b"a/c")
