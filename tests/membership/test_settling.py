"""What makes machines come to one view soon after a time of bad links: they do not follow joins that cannot
succeed, do not wait for machines that have gone elsewhere, do not repeat in vain, and refuse only both ways."""

from __future__ import annotations

import pytest

from membership import codec
from membership.config import MembershipConfig
from membership.effects import MembershipEvent
from membership.failed_joins import FailedJoins
from membership.messages import AttemptJoin, Body, Control, Join, JoiningSet, Presence
from membership.neighbours import Neighbours
from membership.stages import Cause, Installed, Stage
from tests.membership.builders import machines, names, view_id
from tests.membership.harness import Cluster, is_ending, settled
from transport.messages import Datagram, Envelope, View, ViewId

A, B, C = machines("abc")
CONFIG = MembershipConfig()


def parted() -> Cluster:
    """Three machines that were in one view, are alone, and have begun to hear each other again."""
    cluster = settled("abc", MembershipConfig(foreign_stable_ms=200.0))
    cluster.partition("a|b|c")
    cluster.run(5_000.0)
    cluster.heal()
    cluster.run(CONFIG.presence_ms + 20.0)
    return cluster


def inject(cluster: Cluster, target: str, frame: Control | Presence) -> None:
    sender = frame.sender if isinstance(frame, Control) else C
    cluster.inject(target, Datagram(sender, (Envelope(codec.encode(frame)),)))


def from_c(cluster: Cluster, sequence: int, body: Body) -> Control:
    group = cluster["c"]
    cover = () if isinstance(body, AttemptJoin) else ((C, 0),)
    return Control(C, sequence, group.clock + 1, group.view.id, (), cover, body)


def commitment(cluster: Cluster, view_of_b: ViewId) -> Join:
    sets = {
        cluster["a"].view.id: ((A, cluster["a"].protocol.dag.own_sequence),),
        view_of_b: ((B, cluster["b"].protocol.dag.own_sequence),),
        cluster["c"].view.id: ((C, 98),),
    }
    return Join(tuple(JoiningSet(view, sets[view]) for view in sorted(sets)), ())


# Joins that cannot succeed


def test_a_join_that_names_a_machine_by_a_view_it_has_left_is_no_invitation() -> None:
    for place, stage in ((-2, Stage.IDLE), (-1, Stage.GATHERING)):
        cluster = parted()
        inject(cluster, "a", from_c(cluster, 99, commitment(cluster, cluster.views["b"][place].id)))
        assert cluster["a"].stage is stage


def test_a_join_that_names_a_machine_by_a_view_it_has_left_is_not_followed() -> None:
    for place, gathered in ((-2, "ac"), (-1, "abc")):
        cluster = parted()
        attempt = AttemptJoin(JoiningSet(cluster["c"].view.id, ((C, 98),)))
        inject(cluster, "a", from_c(cluster, 99, attempt))
        assert names(cluster["a"].protocol.join_machines) == "ac"
        inject(cluster, "a", from_c(cluster, 100, commitment(cluster, cluster.views["b"][place].id)))
        assert names(sorted(cluster["a"].protocol.join_machines)) == gathered


def test_a_join_by_a_view_that_was_left_is_followed_if_the_machine_is_among_its_faults() -> None:
    cluster = parted()
    join = commitment(cluster, cluster.views["b"][-2].id)
    inject(cluster, "a", from_c(cluster, 99, Join(join.sets, (B,))))
    assert cluster["a"].stage is Stage.GATHERING


def test_a_join_by_an_earlier_view_of_our_own_is_no_invitation() -> None:
    cluster = parted()
    sets = {cluster.views["a"][-2].id: ((A, 0),), cluster["c"].view.id: ((C, 98),)}
    join = Join(tuple(JoiningSet(view, sets[view]) for view in sorted(sets)), ())
    inject(cluster, "a", from_c(cluster, 99, join))
    assert cluster["a"].stage is Stage.IDLE


def test_a_heartbeat_that_was_overtaken_does_not_bring_a_machine_back() -> None:
    neighbours = Neighbours(A, CONFIG)
    neighbours.heard(B, 0.0)
    for clock in (5, 9, 7):
        neighbours.update(B, Presence(view_id("b", clock), (B,), (A,), ()))
    assert neighbours.view_of(B) == view_id("b", 9)
    assert neighbours.has_left(B, view_id("b", 8))
    assert not neighbours.has_left(B, view_id("b", 9))
    assert not neighbours.has_left(B, view_id("b", 10))  # its next heartbeat is on its way
    assert not neighbours.has_left(C, view_id("c", 1))


# Machines that have gone elsewhere


def committed_with_c() -> Cluster:
    """a and b wait for the commitment of c."""
    cluster = settled("abc", MembershipConfig(response_ms=5_000.0))
    cluster.partition("ab|c")
    cluster.run_until_views("ab", "c")
    cluster.run(500.0)
    cluster.heal()
    cluster.drop(lambda source, target, frame: "c" in source + target and is_ending(frame))
    cluster.run_until(lambda: cluster["a"].stage is cluster["b"].stage is Stage.COMMITTED)
    cluster.drop(lambda source, target, frame: source == "c")
    cluster.run(20.0)
    return cluster


def test_who_is_in_a_later_view_without_us_is_not_waited_for_but_with_us_is() -> None:
    for component, is_given_up in (("c", True), ("abc", False)):
        cluster = committed_with_c()
        before, backed_off = cluster["a"].view.id, len(cluster.journal("a", MembershipEvent.BACKED_OFF))
        later = ViewId(cluster["c"].clock + 1_000, *C)
        inject(cluster, "a", Presence(later, machines(component), machines("ab"), ()))
        cluster.run(4.0 * CONFIG.presence_pending_ms)
        assert names(cluster["a"].view.members) == "ab"
        assert (cluster["a"].view.id > before) is is_given_up
        assert (Cause.DEPARTED in cluster.causes("a", MembershipEvent.SUSPECTED)) is is_given_up
        # It has done nothing wrong, so it need not back off.
        assert len(cluster.journal("a", MembershipEvent.BACKED_OFF)) == backed_off


# Repetitions


def test_a_message_that_does_not_help_is_repeated_less_and_less_often() -> None:
    cluster = committed_with_c()
    cluster.drop(lambda source, target, frame: "c" in source + target and is_ending(frame))
    before = len(cluster.journal("a", MembershipEvent.CONTROL_RESENT))
    cluster.run(3_000.0)
    assert cluster["a"].stage is Stage.COMMITTED
    resent = len(cluster.journal("a", MembershipEvent.CONTROL_RESENT)) - before
    assert 5 < resent < 60


def test_a_message_that_waits_for_others_is_not_asked_for_again() -> None:
    cluster = committed_with_c()
    a, last = cluster["a"].protocol.dag, cluster["b"].protocol.dag.own_sequence
    join = cluster["b"].protocol.dag.since(B, last - 1)[0]
    acks = (*join.acks[:-1], (C, dict(join.acks).get(C, 0) + 5))
    inject(cluster, "a", Control(B, last + 1, join.clock + 9, join.view, acks, join.cover, join.body))
    assert dict(a.positions())[B] == last
    assert dict(a.received())[B] == last + 1
    cluster.run(50.0)
    assert dict(cluster.group_frames(Presence, "a")[-1].controls)[B] == last + 1


# Refusals


def test_who_has_to_back_off_is_told_so_and_does_not_ask() -> None:
    cluster = Cluster("ab", MembershipConfig(back_off_ms=1_000.0))
    cluster.drop(lambda source, target, frame: source == "b" and is_ending(frame))
    cluster.run_until(lambda: bool(cluster.journal("a", MembershipEvent.BACKED_OFF)))
    cluster.heal()
    cluster.run(500.0)
    assert cluster.group_frames(Presence, "a")[-1].heard == ()
    asked = len(cluster.journal("b", MembershipEvent.CONTROL_SENT))
    cluster.run(300.0)
    assert len(cluster.journal("b", MembershipEvent.CONTROL_SENT)) == asked
    cluster.run_until_views("ab")


def test_members_and_those_who_join_are_told_that_they_are_heard() -> None:
    neighbours = Neighbours(A, CONFIG)
    for other in (B, C):
        neighbours.heard(other, 0.0)
    neighbours.back_off((B, C), 0.0)
    assert neighbours.willing(frozenset((A, B)), 1.0) == (B,)
    assert neighbours.willing(frozenset((A,)), CONFIG.back_off_ms) == (B, C)


def test_who_is_reported_by_others_does_not_have_to_back_off() -> None:
    failed = FailedJoins(A, CONFIG)
    together = View(view_id("abc", 5), (A, B, C), (A,))
    failed.installed(View(view_id("a"), (A,), (A,)), Installed(together, {}, {}, (), ()), 0.0)
    failed.broke_with([B], Cause.SILENT)
    failed.broke_with([C], Cause.DEPARTED)
    alone = Installed(View(view_id("a", 9), (A,), (A,)), {}, {}, (), ())
    assert failed.installed(together, alone, 500.0) == [B]


@pytest.mark.parametrize(
    ("cause", "backs_off"),
    [(Cause.SILENT, True), (Cause.UNRESPONSIVE, True), (Cause.STUCK, True), (Cause.RESTARTED, False)],
)
def test_who_was_to_join_has_to_back_off_by_our_own_evidence(cause: Cause, backs_off: bool) -> None:
    failed = FailedJoins(A, CONFIG)
    failed.broke_with([B], cause)
    alone = View(view_id("a"), (A,), (A,))
    later = Installed(View(view_id("a", 9), (A,), (A,)), {}, {}, (), absent=(B, C))
    assert failed.installed(alone, later, 0.0) == ([B] if backs_off else [])
    failed.change_ended()
    assert failed.installed(alone, later, 0.0) == []


# Being heard


@pytest.mark.parametrize("seed", range(1, 6))
def test_who_is_heard_again_is_told_soon(seed: int) -> None:
    cluster = Cluster("ab", seed=seed)
    cluster.run_until_views("ab")
    cluster.partition("a|b")
    cluster.run(5_000.0)
    cluster.heal()
    cluster.run_until(lambda: cluster["b"].view.id == cluster["a"]._neighbours.view_of(B))
    told = cluster.run_until(lambda: B in cluster.group_frames(Presence, "a")[-1].heard)
    assert told < 2.0 * CONFIG.presence_pending_ms
