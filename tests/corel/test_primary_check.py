"""Whether this is still the primary component: what a linearizable read asks."""

from __future__ import annotations

from corel.effects import Multicast
from tests.corel.harness import Do, LogCluster
from transport.messages import Service


def primary() -> LogCluster:
    cluster = LogCluster("abc")
    cluster.settle("abc")
    return cluster


def test_a_probe_that_everybody_has_is_proof_and_nothing_is_logged() -> None:
    cluster = primary()
    before = {name: disk.log.lines for name, disk in cluster.disks.items()}
    cluster.check_primary("a", 7)
    cluster.run()
    assert (cluster.confirmed("a"), cluster.confirmed("b")) == ([7], [])
    assert {name: disk.log.lines for name, disk in cluster.disks.items()} == before


def test_it_is_sent_as_a_safe_message() -> None:
    cluster = primary()
    [multicast] = cluster["a"].check_primary(1)
    assert isinstance(multicast, Multicast)
    assert multicast.service is Service.SAFE


def test_a_view_that_ends_first_proves_nothing() -> None:
    cluster = primary()
    cluster.check_primary("a", 7)
    cluster.each(Do.SEND, "a")
    cluster.each(Do.RECEIVE, "b")
    cluster.settle("ab", "c")
    assert cluster.confirmed("a") == []


def test_who_is_not_in_a_primary_component_does_not_ask() -> None:
    cluster = LogCluster("abc")
    cluster.settle("a", "bc")
    assert cluster["a"].check_primary(1) == []


def test_messages_that_follow_become_green_as_ever() -> None:
    cluster = primary()
    cluster.check_primary("b", 1)
    cluster.submit("a", "x")
    cluster.check_primary("c", 2)
    cluster.run()
    assert (cluster.confirmed("b"), cluster.confirmed("c")) == ([1], [2])
    assert cluster.pictures() == {"x||"}
