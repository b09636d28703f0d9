"""A message that was sent in a primary component and merges after its end is judged by what its sender knew, as a
red one is; one that has its place in its component is not."""

from __future__ import annotations

import pytest

from kvstore.store import Basis, Conflict, ConflictKind, LastChange, Merge, Operation, Put, Run, Write
from tests.corel.harness import Act, Do
from tests.kvstore.store.store_cluster import StoreCluster
from tests.kvstore.store.test_green_state import FIRST_PLACE, MemoryDisk, Node, node
from transport import ViewId

__all__ = ["node"]

ONE, TWO = ViewId(1, "a", 1), ViewId(2, "a", 1)


def test_a_run_lasts_as_long_as_messages_are_of_one_view() -> None:
    run = Run(ONE, 3)
    assert run.followed_by(ONE, 4) == run
    assert run.followed_by(TWO, 4) == Run(TWO, 4)


def test_a_message_is_judged_if_its_run_began_after_what_its_sender_knew_as_green() -> None:
    in_primary, red = Basis(0, {}, line=3), Basis(0, {})
    assert Run(ONE, 3).judged_by(in_primary) is None
    assert Run(ONE, 2).judged_by(in_primary) is None
    assert Run(ONE, 4).judged_by(in_primary) is in_primary
    assert Run(ONE, 0).judged_by(red) is red


def put(node: Node, sender: str, view: int, line: int) -> list[str]:
    """Lets a node put k in a primary component, with so many green messages, and returns the conflicts it met."""
    done = node.apply(Write((Put("k", b""),)), sender=sender, view=view, basis=Basis(0, {}, line))
    return [one.kind for one in done[0].conflicts]


def test_within_a_component_nothing_conflicts_also_after_a_restart(node: Node) -> None:
    for place in range(4):
        assert put(node, "ab"[place % 2], view=1, line=0) == []
        node.checkpoint()
        node.restart()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_after_a_message_of_another_view_it_has_merged(node: Node, is_restarted: bool) -> None:
    assert put(node, "a", view=1, line=0) == []
    assert put(node, "b", view=2, line=1) == []
    if is_restarted:
        node.checkpoint()
        node.restart()
    assert put(node, "c", view=1, line=0) == ["overwrote"]
    assert put(node, "b", view=2, line=1) == ["overwrote"], "its component had ended as well"
    assert put(node, "c", view=3, line=4) == [], "another begins"


def test_the_run_is_known_after_a_start_from_a_checkpoint() -> None:
    node = Node(MemoryDisk())
    put(node, "a", view=1, line=0)
    put(node, "b", view=2, line=1)
    node.checkpoint()
    node.restart()
    assert put(node, "d", view=2, line=1) == []


# In a cluster


def cut_off_in_mid_write(*operations: Operation, merge: Merge = Merge.LAST) -> StoreCluster:
    """Returns a cluster in which a wrote while all were together, nobody got it, and b wrote k in the next primary
    component; all are together again."""
    cluster = StoreCluster("abc")
    cluster.settle("abc")
    cluster.ask("a", Write(operations, merge=merge))
    for name in "bc":
        cluster.hold.add(Act(name, Do.RECEIVE))
    cluster.run()
    cluster.hold.clear()
    cluster.settle("a", "bc")
    cluster.ask("b", Put("k", b"b"))
    cluster.run()
    cluster.settle("abc")
    cluster.run()
    return cluster


def test_a_write_whose_primary_component_ended_first_conflicts_with_what_the_next_one_wrote() -> None:
    cluster = cut_off_in_mid_write(Put("k", b"a"))
    for name in "abc":
        assert cluster.value(name, "k") == b"a"
        [found] = cluster.stores[name].green.conflicts(FIRST_PLACE, 9)
        assert found.write_id == "a.1.1.0"
        assert found.conflict == Conflict(ConflictKind.OVERWROTE, "k", LastChange("b.1.1.0", 1))


def test_it_yields_if_it_was_to() -> None:
    cluster = cut_off_in_mid_write(Put("k", b"a"), merge=Merge.KEEP_GREEN)
    assert [cluster.value(name, "k") for name in "abc"] == [b"b", b"b", b"b"]


def test_the_red_state_of_its_node_shows_it_as_in_order_before_the_merge() -> None:
    cluster = StoreCluster("abc")
    cluster.settle("abc")
    for name in "bc":
        cluster.hold.add(Act(name, Do.RECEIVE))
    cluster.ask("a", Write((Put("k", b"a"),), merge=Merge.KEEP_GREEN))
    cluster.run()
    cluster.hold.clear()
    cluster.settle("a", "bc")
    assert [one.outcome.verdict for one in cluster.stores["a"].preview()] == ["applied"]


def test_one_that_all_of_the_next_component_have_conflicts_with_nothing() -> None:
    cluster = StoreCluster("abc")
    cluster.settle("abc")
    cluster.hold.add(Act("c", Do.SYNC))
    for name in "ab":
        cluster.ask(name, Put("k", name.encode()))
    cluster.run()
    cluster.hold.clear()
    cluster.settle("ab", "c")
    cluster.settle("abc")
    assert [cluster.stores[name].green.conflicts(FIRST_PLACE, 9) for name in "abc"] == [[], [], []]
    assert cluster.stores["c"].green.line == 2
