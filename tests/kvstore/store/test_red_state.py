"""The red state is what the green state will be if the order stays as it is, however it was brought up to date.
Nodes that saw different orders meanwhile have the same state in the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corel.messages import Color, Entry, MessageId
from kvstore.store import green_state, state
from kvstore.store.green_state import Checkpoint, GreenState, write_id
from kvstore.store.operations import (
    Append,
    Delete,
    Exists,
    Increment,
    Merge,
    Operation,
    Put,
    RevisionIs,
    Write,
    WrittenBy,
)
from kvstore.store.red_state import RedState
from kvstore.store.state import Basis, Item, Outcome, Remembered, Verdict, Why
from kvstore.store.write_codec import decode_batch, encode_batch, encode_write
from tests.kvstore.store.strategies import IDEMPOTENCY_KEYS, KEYS, Sent, batches, merged_orders
from tests.simulator.store.memory_tree import MemoryTree
from tests.transport.strategies import thorough
from transport.messages import Machine, ViewId

VIEW = ViewId(1, "a", 1)


def entry(name: str, *writes: Write, expires: int = 10**9) -> Entry:
    """Returns a message with these writes; `a1` is the first message of node a."""
    body = encode_batch([encode_write(write) for write in writes], expires)
    return Entry(MessageId(Machine(name[0], 1), int(name[1:])), int(name[1:]), VIEW, body)


def doing(name: str, *operations: Operation) -> Entry:
    return entry(name, Write(operations))


def body_of(one: Entry) -> bytes:
    assert one.body is not None
    return one.body


class Node:
    """The states of one node."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.green = GreenState(self.tree)
        self.red = RedState(self.green, body_of)
        self.taken: Checkpoint | None = None

    def make_green(self, *entries: Entry) -> None:
        for one in entries:
            self.green.apply(one.id, body_of(one), one.view)

    def take(self, only_full: bool) -> None:
        self.taken = self.green.take_checkpoint(self.green.line, only_full) or self.taken

    def written(self) -> None:
        if self.taken is not None:
            self.tree.apply(self.taken)
            self.green.written(self.taken)
            self.taken = None

    def value(self, key: str) -> bytes | None:
        item = self.red.item(key)
        return None if item is None else item.value

    def colors(self, keys: str) -> str:
        """The colours of these keys by their initials, as in `gyr`."""
        return "".join(self.red.color(key)[0] for key in keys)


# Reading


def test_what_is_not_green_lies_over_what_is() -> None:
    node = Node()
    node.make_green(doing("a1", Put("a", b"1"), Put("b", b"1"), Put("c", b"1")))
    node.red.refresh([doing("a2", Append("a", b"2"), Delete("b"))], yellows=0)
    assert node.red.item("a") == Item(b"12", "application/octet-stream", None, "a.1.2.0")
    assert (node.value("b"), node.value("c")) == (None, b"1")
    assert node.green.item("b") == Item(b"1", "application/octet-stream", 1, "a.1.1.0")


def test_the_colour_is_that_of_what_decides() -> None:
    node = Node()
    node.make_green(doing("a1", Put("g", b""), Put("x", b""), Put("y", b"")))
    entries = [doing("a2", Put("y", b""), Put("r", b"")), doing("a3", Delete("x")), doing("a4", Put("r", b""))]
    node.red.refresh(entries, yellows=2)
    assert node.colors("gyxrn") == "gyyrg"
    node.red.refresh(entries, yellows=0)
    assert node.colors("gyxrn") == "grrrg"
    node.red.refresh(entries, yellows=3)
    assert node.colors("gyxrn") == "gyyyg"


def test_what_changed_nothing_colours_nothing() -> None:
    node = Node()
    node.make_green(doing("a1", Put("k", b"x")))
    entries = [
        doing("a2", Increment("k", 1)),
        doing("a3", Put("n", b""), Delete("n")),
        entry("a4", Write((Put("k", b"y"),), (Exists("k", False),))),
    ]
    node.red.refresh(entries, yellows=1)
    assert node.colors("kn") == "gg"


def test_an_outcome_is_what_it_would_be_if_the_order_stayed() -> None:
    node = Node()
    taken = entry("b1", Write((Put("k", b"b"),), (Exists("k", False),)))
    node.red.refresh([doing("a1", Put("k", b"a")), taken], yellows=0)
    lost = Outcome(Verdict.REJECTED, None, Why.CONDITION_FAILED, "k", False)
    assert node.red.outcome("b.1.1.0") == lost
    node.red.refresh([taken], yellows=0)
    assert node.red.outcome("b.1.1.0") == Outcome(Verdict.APPLIED, None)
    assert node.red.outcome("a.1.1.0") is node.red.outcome("b.1.1.1") is None


def test_a_tentative_value_is_known_by_its_write() -> None:
    node = Node()
    entries = [
        doing("a1", Put("k", b"1")),
        entry("a2", Write((Append("k", b"2"),), (RevisionIs("k", 1),))),
        entry("a3", Write((Append("k", b"3"),), (WrittenBy("k", "a.1.1.0"),))),
    ]
    node.red.refresh(entries, yellows=0)
    assert node.value("k") == b"13"


def test_a_green_value_keeps_its_revision_under_the_red_ones() -> None:
    node = Node()
    node.make_green(doing("a1", Put("k", b"1")))
    node.red.refresh([entry("a2", Write((Append("k", b"2"),), (RevisionIs("k", 1),)))], yellows=0)
    assert node.value("k") == b"12"


def test_an_idempotency_key_counts_across_the_line() -> None:
    node = Node()
    once = Write((Increment("n", 1),), idempotency_key="once")
    twice = Write((Increment("n", 10),), idempotency_key="twice")
    node.make_green(entry("a1", once))
    node.red.refresh([entry("b1", once, twice), entry("c1", twice)], yellows=0)
    assert node.value("n") == b"11"
    assert node.red.outcome("b.1.1.0") == Outcome(Verdict.DUPLICATE, 1, first_id="a.1.1.0")
    assert node.red.outcome("c.1.1.0") == Outcome(Verdict.DUPLICATE, None, first_id="b.1.1.1")


def test_positions_go_on_from_the_green_line() -> None:
    node = Node()
    once = Write((Increment("n", 1),), idempotency_key="once")
    node.make_green(entry("a1", once), doing("a2"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "IDEMPOTENCY_POSITIONS", 3)
        node.red.refresh([doing("a3"), entry("b1", once), entry("b2", once), entry("b3", once)], yellows=0)
    assert [node.red.outcome(f"b.1.{number}.0") for number in (1, 2, 3)] == [
        Outcome(Verdict.DUPLICATE, 1, first_id="a.1.1.0"),
        Outcome(Verdict.APPLIED, None),
        Outcome(Verdict.DUPLICATE, None, first_id="b.1.2.0"),
    ]


def test_a_copy_that_would_be_too_late_is_not_shown() -> None:
    node = Node()
    once = Write((Increment("n", 1),), idempotency_key="once")
    node.make_green(doing("a1"), doing("a2"))
    node.red.refresh([entry("b1", once, expires=1), entry("c1", once, expires=3)], yellows=0)
    assert node.red.outcome("b.1.1.0") == Outcome(Verdict.EXPIRED, None)
    assert node.red.outcome("c.1.1.0") == Outcome(Verdict.APPLIED, None)
    assert node.value("n") == b"1"


# Keeping up


def test_what_became_green_is_looked_for_there() -> None:
    node = Node()
    entries = [doing("a1", Put("k", b"1")), doing("b1", Append("k", b"2"))]
    node.red.refresh(entries, yellows=1)
    node.make_green(entries[0])
    node.red.refresh(entries[1:], yellows=1)
    assert (node.value("k"), node.colors("k")) == (b"12", "y")
    node.make_green(entries[1])
    node.red.refresh([], yellows=0)
    assert (node.red.item("k"), node.colors("k")) == (node.green.item("k"), "g")
    assert node.red.outcome("b.1.1.0") is None


def test_another_order_is_another_state() -> None:
    node = Node()
    first, second, third = (doing(name, Append("k", name.encode())) for name in ("a1", "b1", "c1"))
    for order, value in (
        ([first, third], b"a1c1"),
        ([first, second, third], b"a1b1c1"),
        ([first, third, second], b"a1c1b1"),
        ([first], b"a1"),
        ([second, first], b"b1a1"),
        ([], None),
    ):
        node.red.refresh(order, yellows=0)
        assert node.value("k") == value


def test_what_is_only_added_is_all_that_is_applied() -> None:
    applied: list[str] = []

    def noted(one: Entry) -> bytes:
        applied.append(str(one.id))
        return body_of(one)

    red = RedState(GreenState(MemoryTree()), noted)
    entries = [doing(f"a{number}", Increment("n", 1)) for number in (1, 2, 3)]
    for count in (1, 1, 3):
        red.refresh(entries[:count], yellows=0)
    assert applied == ["a.1.1", "a.1.2", "a.1.3"]
    assert red.item("n") == Item(b"3", state.TEXT, None, "a.1.3.0")


def test_a_write_yields_to_what_is_not_green_either_but_not_to_a_deletion_of_long_ago() -> None:
    node = Node()
    entries = [doing("b1", Put("k", b"b"), Put("l", b"b")), doing("b2", Delete("l")), doing("b3")]
    for number, key in enumerate("kl", 1):
        yielding = Write((Put(key, b"c"),), merge=Merge.KEEP_GREEN)
        body = encode_batch([encode_write(yielding)], 10**9, 0, Basis(0, {}))
        entries.append(Entry(MessageId(Machine("c", number), 1), 9, VIEW, body))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "IDEMPOTENCY_POSITIONS", 2)
        node.red.refresh(entries, yellows=0)
        outcomes = [node.red.outcome(f"c.{number}.1.0") for number in (1, 2)]
        assert outcomes[0] == Outcome(Verdict.YIELDED, None, Why.NONE, "k", False, "b.1.1.0")
        assert outcomes[1] == Outcome(Verdict.APPLIED, None)
        node.make_green(*entries)
    assert [node.green.item(key) for key in "kl"] == [
        Item(b"b", "application/octet-stream", 1, "b.1.1.0"),
        Item(b"c", "application/octet-stream", 3, "c.2.1.0"),
    ]


# Any history


def entries_of(name: str, messages: list[list[Write]], expires: int = 10**9) -> list[Entry]:
    return [entry(f"{name}{number}", *writes, expires=expires) for number, writes in enumerate(messages, 1)]


def before_revision(last: int, writes: list[Write]) -> list[Write]:
    """Limits conditions to revisions that exist: a tentative item has none, so conditions on later revisions fail
    until it is final."""

    def clamped(write: Write) -> Write:
        conditions = [
            replace(one, revision=min(one.revision, last)) if isinstance(one, RevisionIs) else one
            for one in write.conditions
        ]
        return write._replace(conditions=tuple(conditions))

    return [clamped(write) for write in writes]


def bare(thing: Item | Outcome | Remembered | None) -> object:
    """Returns the thing without its revision."""
    return None if thing is None else thing._replace(revision=None)


def looks(source: GreenState | RedState) -> list[object]:
    return [bare(source.item(key)) for key in KEYS] + [bare(source.remembered(key)) for key in IDEMPOTENCY_KEYS]


def names(one: Entry) -> list[str]:
    return [write_id(one.id, index) for index in range(len(decode_batch(body_of(one)).writes))]


def red_picture(red: RedState, entries: list[Entry]) -> list[object]:
    outcomes = [red.outcome(name) for one in entries for name in names(one)]
    return [*looks(red), *outcomes, *[red.color(key) for key in KEYS], *[red.item(key) for key in KEYS]]


def check_colors(node: Node) -> None:
    """Checks that exactly the green items are as in the green state, with their revisions."""
    for key in KEYS:
        item = node.red.item(key)
        if node.red.color(key) is Color.GREEN:
            assert item == node.green.item(key)
        else:
            assert item is None or item.revision is None


@thorough
@given(merged_orders(most=7), st.integers(0, 7), st.integers(1, 6))
def test_the_red_state_is_the_green_one_to_come(order: list[Sent], green: int, memory_length: int) -> None:
    node, revisions = Node(), [0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "IDEMPOTENCY_POSITIONS", memory_length)
        for sent in order[:green]:
            node.make_green(entry_of(sent, revisions, sent.writes))
            revisions.append(node.green.revision)
        revisions += [node.green.revision] * len(order)  # no sender knew more as green
        last = node.green.revision
        entries = [entry_of(sent, revisions, before_revision(last, sent.writes)) for sent in order[green:]]
        node.red.refresh(entries, yellows=0)
        tentative = looks(node.red)
        outcomes = [[bare(node.red.outcome(name)) for name in names(one)] for one in entries]
        check_colors(node)
        for one, expected in zip(entries, outcomes, strict=True):
            applied = node.green.apply(one.id, body_of(one), one.view)
            assert [bare(done.outcome) for done in applied] == expected
        assert looks(node.green) == tentative


def entry_of(sent: Sent, revisions: list[int], writes: list[Write]) -> Entry:
    """Returns the message with these writes, and with its sender's basis."""
    basis = None if sent.knew is None else Basis(revisions[sent.line], sent.known)
    body = encode_batch([encode_write(write) for write in writes], sent.expires, 0, basis)
    return Entry(sent.id, 1, VIEW, body)


@thorough
@given(st.lists(batches, max_size=3), st.lists(batches, max_size=6), st.data())
def test_it_is_the_same_however_it_was_brought_up_to_date(
    green: list[list[Write]], red: list[list[Write]], data: st.DataObject
) -> None:
    node, fresh = Node(), Node()
    for one in (node, fresh):
        one.make_green(*entries_of("a", green))
    entries = entries_of("b", red)
    for _ in range(data.draw(st.integers(1, 4))):
        order = data.draw(st.permutations(entries) | st.just(entries))
        node.red.refresh(order[: data.draw(st.integers(0, len(order)))], data.draw(st.integers(0, len(order))))
    yellows = data.draw(st.integers(0, len(entries)))
    for one in (node, fresh):
        one.red.refresh(entries, yellows)
    assert red_picture(node.red, entries) == red_picture(fresh.red, entries)


@thorough
@given(st.lists(st.tuples(st.sampled_from("abc"), batches), max_size=10), st.data())
def test_nodes_that_merge_are_the_same_whatever_they_saw_and_wrote_before(
    messages: list[tuple[str, list[Write]]], data: st.DataObject
) -> None:
    order = [entry(f"{sender}{place}", *writes) for place, (sender, writes) in enumerate(messages, 1)]
    nodes = {name: Node() for name in "abc"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(green_state, "CHECKPOINT_ITEMS_MAX", 3)
        for name, node in nodes.items():
            node.red.refresh([one for one in order if one.id.stream.name == name], yellows=0)
            for place, one in enumerate(order):
                node.make_green(one)
                if data.draw(st.booleans()):
                    node.red.refresh(order[place + 1 :], yellows=0)
                if data.draw(st.booleans()):
                    node.take(only_full=data.draw(st.booleans()))
                if data.draw(st.booleans()):
                    node.written()
            while node.green.unwritten:
                node.take(only_full=False)
                node.written()
    first = nodes["a"].tree
    for node in nodes.values():
        tree = node.tree
        assert (tree.line, tree.revision) == (len(order), node.green.revision)
        assert (tree.items, tree.fates, tree.memories) == (first.items, first.fates, first.memories)
