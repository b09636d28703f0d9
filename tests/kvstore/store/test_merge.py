"""What writes that were accepted outside a primary component do when they merge: `keep_green` yields to what its
node did not know, and every node comes to the same from the log alone."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstore.node import lmdb_tree
from kvstore.store import (
    Append,
    Basis,
    Condition,
    Delete,
    Done,
    Exists,
    Increment,
    Item,
    Merge,
    Operation,
    Outcome,
    Put,
    Verdict,
    Why,
    Write,
    green_state,
    state,
)
from kvstore.store.config import StoreConfig
from tests.kvstore.store.naive_store import NaiveStore
from tests.kvstore.store.store_cluster import StoreCluster
from tests.kvstore.store.strategies import KEYS, Sent, merged_orders
from tests.kvstore.store.test_green_state import FIRST_PLACE, LmdbDisk, MemoryDisk, Node, body, node
from tests.transport.strategies import thorough

__all__ = ["node"]

NOTHING = Basis(0, {})
"""The basis of a node that had nothing when it was cut off."""


def keep(
    *operations: Operation,
    conditions: tuple[Condition, ...] = (),
    otherwise: tuple[Operation, ...] | None = None,
    key: str | None = None,
) -> Write:
    return Write(operations, conditions, otherwise, key, Merge.KEEP_GREEN)


def yielded(revision: int, key: str, to: str) -> Outcome:
    return Outcome(Verdict.YIELDED, revision, Why.NONE, key, False, to)


def verdict(node: Node, write: Write, basis: Basis | None = NOTHING, sender: str = "c") -> Verdict:
    return node.apply(write, sender=sender, basis=basis)[0].outcome.verdict


# What a write yields to


def test_a_write_yields_to_a_put_that_its_node_did_not_know(node: Node) -> None:
    node.apply(Write((Put("k", b"green"),)), sender="b")
    done = node.apply(keep(Put("k", b"red")), sender="c", basis=NOTHING)[0]
    assert (done.outcome, done.changes, done.results) == (yielded(1, "k", "b.1.1.0"), {}, ())
    assert (node.green.revision, node.green.item("k")) == (
        1,
        Item(b"green", "application/octet-stream", 1, "b.1.1.0"),
    )


@pytest.mark.parametrize("where", ["in memory", "being written", "on disk"])
def test_a_write_yields_to_a_deletion_that_its_node_did_not_know(node: Node, where: str) -> None:
    node.apply(Write((Put("k", b"old"),)), sender="b")
    node.apply(Write((Delete("k"),)), sender="b")
    if where != "in memory":
        node.take()
    if where == "on disk":
        node.written()
    done = node.apply(keep(Put("k", b"red")), sender="c", basis=Basis(1, {}))[0]
    assert done.outcome == yielded(2, "k", "b.1.2.0")
    assert node.green.item("k") is None


def test_the_last_change_counts_and_not_those_before_it(node: Node) -> None:
    """A deletion that was undone by a put that the node knew is no reason to yield, though its tombstone is
    newer."""
    node.apply(Write((Put("k", b"1"),)), sender="b")
    node.apply(Write((Delete("k"),)), sender="b")
    node.apply(Write((Put("k", b"2"),)), sender="d")
    node.checkpoint()
    assert verdict(node, keep(Put("k", b"red")), Basis(0, {"d.1": 1})) is Verdict.APPLIED


def test_a_write_does_not_yield_to_what_its_own_component_wrote_before(node: Node) -> None:
    node.apply(Write((Put("k", b"green"),)), sender="a")
    knows_a = Basis(1, {})
    node.apply(Write((Put("k", b"1"),)), sender="c", basis=knows_a)
    assert verdict(node, keep(Put("k", b"2")), Basis(1, {"c.1": 1}), "d") is Verdict.APPLIED
    assert verdict(node, keep(Put("k", b"3")), Basis(1, {"c.1": 1, "d.1": 1})) is Verdict.APPLIED


def test_a_write_does_not_yield_to_what_its_own_node_sent_before_or_with_it(node: Node) -> None:
    """The basis was drawn up before either message was on the node's disk."""
    done = node.apply(keep(Put("k", b"1")), keep(Put("k", b"2")), sender="c", basis=NOTHING)
    assert [one.outcome.verdict for one in done] == [Verdict.APPLIED, Verdict.APPLIED]
    assert verdict(node, keep(Put("k", b"3"))) is Verdict.APPLIED
    assert not any(one.conflicts for applied in node.applied for one in applied)


def test_an_earlier_incarnation_is_another_sender() -> None:
    """Its last messages may not have reached the disk from which the node starts."""
    other = state.LastChange("c.1.1.0", 1)
    assert NOTHING.has(other, "c.1.2.0")
    assert not NOTHING.has(other, "c.2.1.0")


def test_in_a_primary_component_nothing_yields(node: Node) -> None:
    node.apply(Write((Put("k", b"1"),)), sender="b")
    assert verdict(node, keep(Put("k", b"2")), basis=None) is Verdict.APPLIED


def test_what_a_node_knew_as_green_or_had_of_a_stream_is_no_reason_to_yield(node: Node) -> None:
    for sender in "abb":
        node.apply(Write((Put("k", b""),)), sender=sender)
    assert verdict(node, keep(Put("k", b"red")), Basis(2, {"b.1": 1})) is Verdict.YIELDED
    assert verdict(node, keep(Put("k", b"red")), Basis(3, {})) is Verdict.APPLIED
    assert verdict(node, keep(Put("k", b"red")), Basis(0, {"b.1": 2, "c.1": 2}), "d") is Verdict.APPLIED


def test_a_write_that_yielded_is_no_reason_for_another_to_yield(node: Node) -> None:
    node.apply(Write((Put("k", b"green"),)), sender="b")
    node.apply(keep(Put("k", b"1"), Put("j", b"1")), sender="c", basis=NOTHING)
    assert verdict(node, keep(Put("j", b"2")), sender="d") is Verdict.APPLIED
    assert node.apply(keep(Put("k", b"2")), sender="d", basis=NOTHING)[0].outcome == yielded(1, "k", "b.1.1.0")


# Whole writes


def test_a_transaction_yields_as_a_whole_to_the_first_key_that_was_changed(node: Node) -> None:
    node.apply(Write((Put("k", b"green"), Put("l", b"green"))), sender="b")
    txn = keep(Put("i", b""), Delete("l"), Increment("n", 1), Put("k", b""))
    assert node.apply(txn, sender="c", basis=NOTHING)[0].outcome == yielded(1, "l", "b.1.1.0")
    assert [node.green.item(key) for key in "in"] == [None, None]
    assert node.green.revision == 1


def test_any_key_of_a_transaction_makes_it_yield() -> None:
    node = Node(MemoryDisk())
    node.apply(Write((Put("k", b"green"),)), sender="b")
    assert verdict(node, keep(Put("a", b""), Put("k", b""), Put("z", b""))) is Verdict.YIELDED


def test_increments_and_appends_yield_if_they_are_asked_to(node: Node) -> None:
    node.apply(Write((Put("n", b"1"),)), sender="b")
    assert verdict(node, keep(Increment("n", 1))) is Verdict.YIELDED
    assert verdict(node, keep(Append("n", b"1"))) is Verdict.YIELDED
    assert verdict(node, Write((Increment("n", 1),))) is Verdict.APPLIED


def test_what_a_write_reads_or_leaves_as_it_is_does_not_make_it_yield(node: Node) -> None:
    node.apply(Write((Put("k", b"green"),)), sender="b")
    write = keep(Put("other", b""), Append("k", b""), conditions=(Exists("k", True),))
    assert verdict(node, write) is Verdict.APPLIED


def test_the_else_branch_yields_by_what_it_would_change(node: Node) -> None:
    node.apply(Write((Put("k", b"green"),)), sender="b")
    absent = (Exists("k", False),)
    assert verdict(node, keep(Put("k", b""), conditions=absent, otherwise=(Put("l", b""),))) is Verdict.APPLIED
    node.apply(Write((Put("l", b"green"),)), sender="b")
    write = keep(Put("k", b""), conditions=absent, otherwise=(Put("l", b""),))
    assert node.apply(write, sender="d", basis=NOTHING)[0].outcome == yielded(3, "l", "b.1.2.0")


def test_a_condition_that_fails_is_a_rejection_and_not_a_yield(node: Node) -> None:
    node.apply(Write((Put("k", b"green"),)), sender="b")
    outcome = node.apply(keep(Put("k", b""), conditions=(Exists("k", False),)), sender="c", basis=NOTHING)[
        0
    ].outcome
    assert outcome == Outcome(Verdict.REJECTED, 1, Why.CONDITION_FAILED, "k", False)


# Retries


def test_a_retry_of_a_write_that_yielded_is_a_duplicate_of_it(node: Node) -> None:
    node.apply(Write((Put("k", b"green"),)), sender="b")
    write = keep(Put("k", b"red"), key="once")
    node.apply(write, sender="c", basis=NOTHING)
    node.checkpoint()
    node.restart()
    outcome = node.apply(write, sender="b")[0].outcome  # in a primary component, where it would not yield
    assert outcome == Outcome(Verdict.DUPLICATE, 1, Why.NONE, "k", False, "c.1.1.0", Verdict.YIELDED)
    assert node.green.revision == 1


def test_a_red_copy_of_a_write_that_was_applied_is_a_duplicate_and_does_not_yield(node: Node) -> None:
    write = keep(Put("k", b"red"), key="once")
    node.apply(write, sender="b")
    outcome = node.apply(write, sender="c", basis=NOTHING)[0].outcome
    assert (outcome.verdict, outcome.first_id, outcome.first_verdict) == (
        Verdict.DUPLICATE,
        "b.1.1.0",
        Verdict.APPLIED,
    )


# Deletions that are long past


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_a_deletion_counts_for_as_long_as_keys_are_remembered_wherever_it_is(
    node: Node, is_on_disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "IDEMPOTENCY_POSITIONS", 3)  # the disk still keeps it for a million
    node.apply(Write((Put("k", b""), Put("l", b""))), sender="b")
    node.apply(Write((Delete("k"), Delete("l"))), sender="b")  # position 1
    if is_on_disk:
        node.checkpoint()
        node.restart()
    node.apply(sender="b")
    node.apply(sender="b")
    assert verdict(node, keep(Put("k", b""))) is Verdict.YIELDED  # position 4
    assert verdict(node, keep(Put("l", b""))) is Verdict.APPLIED  # position 5


def test_a_deletion_is_no_reason_to_yield_for_ever() -> None:
    node = Node(MemoryDisk())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "IDEMPOTENCY_POSITIONS", 1)
        node.apply(Write((Put("k", b""),)), Write((Delete("k"),)), sender="b")
        node.apply(sender="b")
        assert verdict(node, keep(Put("k", b""))) is Verdict.APPLIED


def test_tombstones_leave_the_disk_when_they_count_no_more(tmp_path_factory: pytest.TempPathFactory) -> None:
    node = Node(LmdbDisk(tmp_path_factory.mktemp("store")))
    with pytest.MonkeyPatch.context() as patch:
        for module in (state, lmdb_tree):
            patch.setattr(module, "IDEMPOTENCY_POSITIONS", 3)
        node.do(Put("k", b""), Put("l", b""))
        node.do(Delete("k"), Delete("l"))
        node.checkpoint()
        node.do(Put("l", b""))
        node.do(Delete("l"))
        for _ in range(3):
            node.apply()
            node.checkpoint()
        assert isinstance(node.disk, LmdbDisk)
        assert node.disk.tombstone("k") is None
        assert node.disk.tombstone("l") == state.Tombstone("a.1.4.0", 4, 3)
        assert (node.disk.size("tombstones"), node.disk.size("ages")) == (1, 1)
    node.disk.close()


# In a cluster


def test_a_minoritys_writes_yield_to_the_majoritys_and_not_to_each_other() -> None:
    cluster = StoreCluster("abcde")
    cluster.settle("abcde")
    cluster.ask("a", Put("k", b"0"))
    cluster.run()
    cluster.settle("abc", "de")
    cluster.ask("a", Put("k", b"green"))
    cluster.run()
    for name, key in (("d", "k"), ("d", "own"), ("e", "own"), ("d", "own")):
        cluster.ask(name, keep(Put(key, name.encode())))
        cluster.run()
    cluster.settle("abcde")
    cluster.run()
    for name in "abcde":
        assert (cluster.value(name, "k"), cluster.value(name, "own")) == (b"green", b"d")
        found = cluster.stores[name].green.conflicts(FIRST_PLACE, 9)
        assert [(one.write_id, one.conflict.kind) for one in found] == [("d.1.1.0", "yielded")]


def test_messages_in_flight_at_once_do_not_yield_to_each_other() -> None:
    cluster = StoreCluster("abc", StoreConfig(messages_ahead_max=6, batch_writes_max=1))
    cluster.settle("ab", "c")
    cluster.disks["c"].hold()
    for value in (b"1", b"2", b"3"):
        cluster.ask("c", keep(Put("k", value)))
    cluster.disks["c"].release()
    cluster.run()
    cluster.settle("abc")
    cluster.run()
    assert [cluster.value(name, "k") for name in "abc"] == [b"3", b"3", b"3"]


def test_what_is_green_and_not_applied_is_known() -> None:
    cluster = StoreCluster("abc", StoreConfig(apply_writes_max=1))
    cluster.settle("ab", "c")
    for _ in range(4):
        cluster.ask("a", Put("k", b"green"))
        cluster.run()
    cluster.settle("abc")
    cluster.settle("ab", "c")
    assert cluster.stores["c"].green.revision < 4, "the rest waits for its turn"
    cluster.ask("c", keep(Put("k", b"red")))
    cluster.run()
    cluster.settle("abc")
    for name in "abc":
        for _ in range(5):
            cluster.stores[name].tick(0.0)
        assert cluster.value(name, "k") == b"red"


def test_in_a_component_that_is_primary_a_write_never_yields() -> None:
    cluster = StoreCluster("abc")
    cluster.settle("abc")
    puts = [cluster.ask(name, keep(Put("k", name.encode()))) for name in "abc"]
    cluster.run()
    for put in puts:
        assert isinstance(put.answer, Done)
        assert put.answer.applied.outcome.verdict is Verdict.APPLIED


# Any merged order


@settings(thorough, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    merged_orders(),
    st.lists(st.sampled_from(("", "take", "write", "written", "restart")), max_size=12),
    st.lists(st.tuples(st.integers(1, 2), st.none() | st.integers(0, 12)), min_size=12, max_size=12),
)
def test_every_node_comes_to_the_same_in_any_merged_order(
    tmp_path_factory: pytest.TempPathFactory,
    order: list[Sent],
    steps: list[str],
    sent_in: list[tuple[int, int | None]],
) -> None:
    """One node never stops and writes nothing, two write checkpoints and restart, one of them on a real disk; the
    naive store knows nothing of checkpoints, tombstones, bases and runs. `sent_in` is the view of each message,
    and how many messages its sender knew as green, if that was in a primary component."""
    real = Node(LmdbDisk(tmp_path_factory.mktemp("store")))
    nodes, naive, revisions = [Node(MemoryDisk()), Node(MemoryDisk()), real], NaiveStore(memory_length=4), [0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(green_state, "CHECKPOINT_ITEMS_MAX", 4)
        for module in (state, lmdb_tree):
            patch.setattr(module, "IDEMPOTENCY_POSITIONS", 4)
        for place, (message_id, writes, expires, knew, line, known) in enumerate(order):
            view, base = sent_in[place]
            basis = None if knew is None else Basis(revisions[line], known, base)
            has_merged = base is None or any(other != view for other, _ in sent_in[base:place])
            expected = naive.message(str(message_id), writes, expires, knew if has_merged else None)
            data = body(*writes, expires=expires, accepted_ms=place, basis=basis)
            for one in nodes:
                done = one.take_in(message_id, data, view)
                assert [applied.outcome.verdict for applied in done] == [outcome.verdict for outcome in expected]
                assert [list(applied.conflicts) for applied in done] == naive.conflicts
            revisions.append(naive.revision)
            for one in nodes[1:]:
                take(one, steps[place] if place < len(steps) else "")
            pictures = [one.picture() for one in nodes]
            assert pictures[0] == pictures[1] == pictures[2]
            assert {key: item for key in KEYS if (item := nodes[0].green.item(key))} == naive.items
    real.disk.close()


def take(node: Node, step: str) -> None:
    if step == "take":
        node.take()
    elif step:
        {"write": node.write, "written": node.written, "restart": node.restart}[step]()
