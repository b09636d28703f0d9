"""What the status of a node warns of."""

from __future__ import annotations

from corel.stages import Stage
from kvstore.node.status import vote_warnings
from tests.corel.test_traps import primary


def test_that_the_connected_nodes_lack_votes_is_said() -> None:
    cluster = primary("abc")
    for name in "bc":
        cluster.crash(name)
        cluster.replace_disk(name)
        cluster.start(name)
    cluster.settle("abc")
    assert cluster.stages() == {Stage.NON_PRIMARY}
    (warning,) = vote_warnings(cluster["a"])
    assert "(a) are no majority: the disks of b, c are new" in warning


def test_a_minority_and_a_primary_component_are_not_warned_of() -> None:
    cluster = primary("abc")
    assert vote_warnings(cluster["a"]) == []
    cluster.settle("a", "bc")
    assert vote_warnings(cluster["a"]) == []
