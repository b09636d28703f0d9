"""Clusters for the claims of "Efficient Message Ordering in Dynamic Networks" (Keidar and Dolev), which
`test_corel_order.py`, `test_corel_primary.py` and `test_corel_recovery.py` test section by section.

The tests run bare logs over an ideal group communication. A picture of a log is its green | yellow | red messages.
Where the code differs from the paper (`corel/corel.py` and `corel/recovery_plan.py` list it), the claim is what
the paper promises, not how: acknowledgements are marks, and a message is logged, and yellow, when it is
received."""

from __future__ import annotations

from corel.stages import Stage
from tests.corel.harness import Act, Do, LogCluster


def primary(component: str, everybody: str = "") -> LogCluster:
    """Returns a cluster in which these nodes have established a primary component, and each of the others is
    alone."""
    cluster = LogCluster(everybody or component)
    cluster.settle(component, *[name for name in everybody if name not in component])
    assert cluster.stages(component) == {Stage.PRIMARY}
    return cluster


def say(cluster: LogCluster, name: str, bodies: str) -> None:
    """Has a node submit a message for each word, and runs until nothing more happens."""
    cluster.submit(name, bodies)
    cluster.run()


def half_green() -> LogCluster:
    """Returns a cluster in whose primary component abc the message m is green at a, and yellow at b and c, which
    do not know of each other's disks; d and e have a red message of their own."""
    cluster = LogCluster("abcde")
    cluster.settle("abc", "de")
    say(cluster, "d", "d1")
    cluster.hold |= {Act("b", Do.HEAR), Act("c", Do.HEAR)}
    say(cluster, "c", "m")
    cluster.hold.clear()
    assert [cluster.picture(name) for name in "abcd"] == ["m||", "|m|", "|m|", "||d1"]
    return cluster
