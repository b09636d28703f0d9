"""Machines of which one is far behind the other do not join: a view of both would wait until it has caught up.
Both say so in their heartbeats, and the one that is behind tells the layer above."""

from __future__ import annotations

from itertools import pairwise

from membership.config import MembershipConfig
from membership.effects import LeftBehind, MembershipEvent
from membership.messages import NO_PROGRESS, Presence, Progress
from membership.neighbours import Neighbours
from tests.membership.builders import machines, view_id
from tests.membership.harness import Cluster, settled

A, B, C, D = machines("abcd")
CONFIG = MembershipConfig()

AHEAD = Progress(epoch=9, decided=7, line=900, known=950, floor=500)
BEHIND = Progress(epoch=6, decided=5, line=499, known=800, floor=100)
"""Out of reach of `AHEAD`, by one message."""
IN_REACH = Progress(epoch=6, decided=5, line=500, known=800, floor=100)


# Progress


def test_who_was_there_when_it_was_decided_is_behind_by_what_it_knows_however_short_its_line() -> None:
    assert not Progress(7, 5, 0, 500, 0).is_behind(AHEAD)
    assert not Progress(10, 5, 0, 500, 0).is_behind(AHEAD)
    assert Progress(7, 5, 0, 499, 0).is_behind(AHEAD)


def test_who_is_of_an_earlier_epoch_is_behind_if_its_line_is_below_the_floor() -> None:
    assert BEHIND.is_behind(AHEAD)
    assert not IN_REACH.is_behind(AHEAD)
    assert not AHEAD.is_behind(BEHIND)


def test_machines_are_out_of_reach_if_either_is_behind_the_other() -> None:
    assert not BEHIND.is_in_reach_of(AHEAD)
    assert not AHEAD.is_in_reach_of(BEHIND)
    assert IN_REACH.is_in_reach_of(AHEAD)
    assert AHEAD.is_in_reach_of(IN_REACH)


def test_without_a_floor_nobody_is_out_of_reach() -> None:
    assert NO_PROGRESS.is_in_reach_of(Progress(7, 7, 900, 900, 0))


# Neighbours


def neighbours_of_a(progress: Progress, **others: Progress) -> Neighbours:
    """The neighbours of a, all of which hear each other, in views of their own."""
    neighbours = Neighbours(A, CONFIG)
    neighbours.progress = progress
    for name, of_it in others.items():
        (sender,) = machines(name)
        neighbours.heard(sender, 0.0)
        heard = tuple(other for other in machines("abcd") if other != sender)
        neighbours.update(sender, Presence(view_id(name), (sender,), heard, (), of_it))
    return neighbours


def test_who_is_out_of_reach_of_us_is_not_mutual_whoever_is_behind() -> None:
    for ours, theirs in ((AHEAD, BEHIND), (BEHIND, AHEAD)):
        assert not neighbours_of_a(ours, b=theirs).are_mutual([A], [B], 0.0)
    assert neighbours_of_a(AHEAD, b=IN_REACH).are_mutual([A], [B], 0.0)


def test_who_is_out_of_reach_of_another_of_ours_is_not_mutual() -> None:
    neighbours = neighbours_of_a(IN_REACH, b=BEHIND, c=AHEAD)
    assert neighbours.are_mutual([A], [C], 0.0)
    assert not neighbours.are_mutual([A, B], [C], 0.0)


def test_a_heartbeat_does_not_name_who_is_out_of_reach_unless_it_is_needed() -> None:
    neighbours = neighbours_of_a(AHEAD, b=BEHIND, c=BEHIND, d=IN_REACH)
    assert neighbours.willing(frozenset((A,)), 0.0) == (D,)
    assert neighbours.willing(frozenset((A, B)), 0.0) == (B, D)


def test_who_has_sent_no_heartbeat_is_in_reach() -> None:
    neighbours = neighbours_of_a(BEHIND)
    neighbours.heard(B, 0.0)
    assert neighbours.willing(frozenset((A,)), 0.0) == (B,)
    assert neighbours.furthest_ahead(frozenset((A,)), 0.0) is None


def test_of_those_ahead_the_one_that_has_got_furthest_is_found() -> None:
    further, later = AHEAD._replace(line=901), AHEAD._replace(epoch=10, line=800)
    neighbours = neighbours_of_a(BEHIND, b=further, c=later, d=AHEAD)
    assert neighbours.furthest_ahead(frozenset((A,)), 0.0) == (C, later)
    assert neighbours.furthest_ahead(frozenset((A, C)), 0.0) == (B, further)
    assert neighbours.furthest_ahead(frozenset((A,)), 5.0 * CONFIG.presence_ms + 1.0) is None  # not heard lately


# Groups


def started(**progress: Progress) -> Cluster:
    """Machines that have just started and have got so far."""
    cluster = Cluster("".join(progress))
    report(cluster, **progress)
    return cluster


def report(cluster: Cluster, **progress: Progress) -> None:
    for name, of_it in progress.items():
        cluster[name].report_progress(of_it)


def test_heartbeats_say_how_far_their_sender_has_got() -> None:
    cluster = started(a=AHEAD, b=BEHIND)
    cluster.run(200.0)
    assert cluster.group_frames(Presence, "a")[-1].progress == AHEAD
    report(cluster, a=IN_REACH)
    cluster.run(200.0)
    assert cluster.group_frames(Presence, "a")[-1].progress == IN_REACH


def test_machines_out_of_reach_stay_apart_and_join_once_they_are_in_reach() -> None:
    cluster = started(a=AHEAD, b=BEHIND)
    cluster.run(5_000.0)
    assert [len(cluster.views[name]) for name in "ab"] == [1, 1]  # the views that they began with
    report(cluster, b=IN_REACH)
    cluster.run_until_views("ab", within_ms=500.0)


def test_who_is_out_of_reach_is_told_so_and_does_not_ask() -> None:
    cluster = started(a=AHEAD, b=BEHIND)
    cluster.run(2_000.0)
    for name in "ab":
        assert cluster.group_frames(Presence, name)[-1].heard == ()
        assert cluster.journal(name, MembershipEvent.CONTROL_SENT) == []


def test_who_is_behind_is_told_so_and_who_is_ahead_is_not() -> None:
    cluster = started(a=AHEAD, b=BEHIND)
    cluster.run(2_000.0)
    assert set(cluster.effects(LeftBehind, "b")) == {LeftBehind(A, AHEAD)}
    assert cluster.effects(LeftBehind, "a") == []


def test_it_is_said_again_but_not_more_often_than_heartbeats_are_sent() -> None:
    cluster = started(a=AHEAD, b=BEHIND, c=BEHIND)
    cluster.run(2_000.0)  # b and c join each other meanwhile
    times = [at for at, effect in cluster.log["b"] if isinstance(effect, LeftBehind)]
    assert all(after >= before + CONFIG.presence_ms for before, after in pairwise(times))
    assert len(times) > 10


def test_it_is_not_said_any_more_once_the_machine_has_caught_up() -> None:
    cluster = started(a=AHEAD, b=BEHIND)
    cluster.run(1_000.0)
    report(cluster, b=IN_REACH)
    before = len(cluster.effects(LeftBehind, "b"))
    cluster.run(1_000.0)
    assert len(cluster.effects(LeftBehind, "b")) == before


def test_a_view_one_of_whose_members_is_out_of_reach_is_not_joined() -> None:
    cluster = settled("abc")
    cluster.partition("ab|c")
    cluster.run_until_views("ab", "c")
    report(cluster, a=IN_REACH, b=BEHIND, c=AHEAD)
    cluster.run(1_000.0)
    cluster.heal()
    views = {name: len(cluster.views[name]) for name in "abc"}
    cluster.run(5_000.0)
    assert {name: len(cluster.views[name]) for name in "abc"} == views
    assert cluster.is_view("ab")
    assert (cluster.effects(LeftBehind, "a"), cluster.effects(LeftBehind, "c")) == ([], [])
    assert set(cluster.effects(LeftBehind, "b")) == {LeftBehind(C, AHEAD)}
    report(cluster, b=IN_REACH)
    cluster.run_until_views("abc")


def test_machines_of_one_view_are_not_parted_by_progress() -> None:
    cluster = settled("abc")
    view = cluster["a"].view
    report(cluster, a=AHEAD, b=BEHIND, c=IN_REACH)
    cluster.run(5_000.0)
    assert cluster.is_view("abc")
    assert cluster["a"].view == view
    assert not any(cluster.effects(LeftBehind, name) for name in "abc")


def test_the_survivors_of_a_view_stay_together_however_far_they_are_apart() -> None:
    cluster = settled("abc")
    report(cluster, a=AHEAD, b=BEHIND, c=IN_REACH)
    cluster.crash("c")
    cluster.run_until_views("ab")
    cluster.run(2_000.0)
    assert cluster.is_view("ab")
