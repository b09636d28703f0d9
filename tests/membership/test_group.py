"""Which views whole groups form: stories of one to six machines on a network that loses what it is told to."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from membership import codec
from membership.config import MembershipConfig
from membership.effects import MembershipEvent
from membership.messages import AttemptJoin, Control, JoiningSet, Probe, ProbeReply
from membership.stages import Cause, Stage
from tests.membership.builders import group_frame_in, machine, names
from tests.membership.harness import SETTLE_MS, Cluster, is_ending, is_packet, settled
from transport.config import TransportConfig
from transport.messages import Datagram, Envelope, Service

CONFIG = MembershipConfig()


# Joining


@pytest.mark.parametrize("count", range(1, 7))
def test_machines_that_start_together_become_one_view(count: int) -> None:
    everybody = "abcdef"[:count]
    cluster = Cluster(everybody)
    cluster.run_until_views(everybody, within_ms=1_000.0)
    for name in everybody:
        assert [names(view.members) for view in cluster.views[name]][-1] == everybody
        assert len(cluster.views[name]) <= 2
        assert cluster[name].view.transitional == (machine(name),)


def test_machines_that_start_one_after_the_other_become_one_view() -> None:
    cluster = Cluster("abcde")
    for name in "bcde":
        cluster.crash(name)
    for up in ("ab", "abc", "abcd", "abcde"):
        cluster.run(70.0)
        cluster.start(up[-1])
    cluster.run_until_views("abcde")


def test_three_components_merge_at_once() -> None:
    cluster = settled("abcdef")
    cluster.partition("ab|cd|ef")
    cluster.run_until_views("ab", "cd", "ef")
    cluster.run(1_000.0)
    cluster.heal()
    assert cluster.run_until_views("abcdef") < 1_000.0
    for name in "abcdef":
        *_, before, after = cluster.views[name]
        assert (len(before.members), len(after.members)) == (2, 6)
        assert after.transitional == before.members


def test_a_view_takes_no_more_than_it_can_hold() -> None:
    cluster = Cluster("abcde", transport_config=TransportConfig(members_max=3))
    cluster.run(5_000.0)
    views = {name: cluster[name].view.members for name in "abcde"}
    assert max(map(len, views.values())) == 3
    cluster.run(5_000.0)
    assert {name: cluster[name].view.members for name in "abcde"} == views


def test_nobody_is_invited_while_a_member_is_not_in_the_view_yet() -> None:
    cluster = settled("abcd")
    cluster.partition("abc|d")
    cluster.run_until_views("abc", "d")
    cluster.run(300.0)
    cluster.drop(lambda source, target, frame: target == "c" and is_ending(frame))
    cluster.crash("b")
    cluster.run_until(lambda: names(cluster["a"].view.members) == "ac")
    cluster.partition("acd")
    cluster.sent.clear()
    cluster.run(600.0)
    assert cluster["c"].stage is Stage.FAULTS
    assert not any(isinstance(group_frame.body, AttemptJoin) for group_frame in cluster.group_frames(Control, "a"))
    cluster.heal()
    cluster.run_until_views("acd")


@pytest.mark.parametrize("seed", range(4))
def test_a_fifth_of_everything_may_be_lost(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster("abcde", seed=seed)
    cluster.drop(lambda source, target, frame: random.random() < 0.2)
    cluster.run_until_views("abcde")
    cluster.partition("abc|de")
    cluster.run_until_views("abc", "de")
    cluster.partition("abcde")
    cluster.run_until_views("abcde", within_ms=2.0 * SETTLE_MS)


def test_a_network_with_a_delay_of_50_ms_is_no_hindrance() -> None:
    cluster = Cluster("abcd", delay_ms=50.0)
    cluster.run_until_views("abcd")
    count = sum(map(len, cluster.views.values()))
    cluster.run(5_000.0)
    assert sum(map(len, cluster.views.values())) == count


# Invitations


@pytest.mark.parametrize("is_over", [True, False])
def test_an_invitation_to_a_view_that_is_over_is_ignored(is_over: bool) -> None:
    cluster = settled("ab", MembershipConfig(foreign_stable_ms=200.0))
    cluster.partition("a|b")
    cluster.run(5_000.0)
    cluster.heal()
    cluster.run(CONFIG.presence_ms + 50.0)  # they hear each other, but not for long enough
    view = cluster.views["b"][-2 if is_over else -1].id
    invitation = AttemptJoin(JoiningSet(view, ((machine("b"), 98),)))
    group_frame = Control(machine("b"), 99, 99, view, (), (), invitation)
    cluster.inject("a", Datagram(machine("b"), (Envelope(codec.encode(group_frame)),)))
    assert cluster["a"].stage is (Stage.IDLE if is_over else Stage.GATHERING)


def test_who_waits_for_its_next_attempt_answers_those_of_others() -> None:
    cluster = Cluster("ab")
    cluster.drop(lambda source, target, frame: isinstance(group_frame_in(frame), Control))
    cluster.run_until(
        lambda: all(Cause.NOBODY_ANSWERED in cluster.causes(name, MembershipEvent.STAGE) for name in "ab")
    )
    cluster.heal()
    cluster.run_until_views("ab")
    causes = cluster.causes("a", MembershipEvent.STAGE) + cluster.causes("b", MembershipEvent.STAGE)
    assert causes.count(Cause.INVITED) == 1


def test_who_was_declared_faulty_is_not_invited_any_more() -> None:
    cluster = settled("abc", MembershipConfig(response_ms=5_000.0))
    cluster.partition("ab|c")
    cluster.run_until_views("ab", "c")
    cluster.run(300.0)
    cluster.heal()
    cluster.drop(lambda source, target, frame: source + target in ("ac", "bc", "ba") and is_ending(frame))
    cluster.run_until(lambda: cluster["c"].stage is Stage.COMMITTED)
    cluster.drop(lambda source, target, frame: target == "c" or (source + target == "ba" and is_ending(frame)))
    cluster.run_until(lambda: machine("c") in cluster["a"].protocol.suspects)
    before = len(cluster.journal("a", MembershipEvent.CONTROL_RESENT))
    cluster.run(500.0)
    assert cluster["a"].stage is Stage.COMMITTED
    assert len(cluster.journal("a", MembershipEvent.CONTROL_RESENT)) == before


def test_an_invitation_is_not_answered_while_a_member_is_not_in_the_view_yet() -> None:
    cluster = settled("abcd")
    cluster.partition("abc|d")
    cluster.run_until_views("abc", "d")
    cluster.run(300.0)
    cluster.drop(lambda source, target, frame: target == "c" and is_ending(frame))
    cluster.crash("b")
    cluster.run_until(lambda: names(cluster["a"].view.members) == "ac")
    cluster.partition("acd")
    cluster.run(300.0)
    d = cluster["d"]
    sequence = d.protocol.dag.own_sequence
    body = AttemptJoin(JoiningSet(d.view.id, ((d.me, sequence),)))
    invitation = Control(d.me, sequence + 1, d.lansis.clock + 1, d.view.id, (), (), body)
    cluster.inject("a", Datagram(d.me, (Envelope(codec.encode(invitation)),)))
    assert cluster["c"].stage is Stage.FAULTS
    assert cluster["a"].stage is Stage.IDLE


# Faults


def test_a_cut_becomes_two_views_and_a_healed_one_becomes_one() -> None:
    cluster = settled("abcde")
    cluster.partition("ab|cde")
    assert cluster.run_until_views("ab", "cde") < 1_000.0
    cluster.heal()
    assert cluster.run_until_views("abcde") < 1_000.0
    assert [names(view.members) for view in cluster.views["a"][-3:]] == ["abcde", "ab", "abcde"]
    assert [names(view.transitional) for view in cluster.views["d"][-2:]] == ["cde", "cde"]


def test_who_crashes_is_expelled_and_those_who_crash_together_at_once() -> None:
    cluster = settled("abcde")
    for name in "bd":
        cluster.crash(name)
    assert cluster.run_until_views("ace") < 1_000.0
    assert len(cluster.views["a"]) == 3


def test_the_last_one_is_alone() -> None:
    cluster = settled("abc")
    cluster.crash("a")
    cluster.crash("c")
    cluster.run_until_views("b")
    cluster.multicast("b", b"x", Service.SAFE)
    cluster.run(10.0)
    assert cluster.delivered("b") == [b"x"]


def test_a_machine_that_was_expelled_though_it_lived_rejoins() -> None:
    cluster = settled("abc")
    cluster.cut("ca")
    cluster.run_until(lambda: names(cluster["a"].view.members) == "ab")
    cluster.heal()
    cluster.run_until_views("abc")
    assert "accused_me" in cluster.causes("c", MembershipEvent.SUSPECTED)


def test_who_has_paused_drains_its_sockets_before_it_judges_anyone() -> None:
    cluster = settled("abc")
    count = len(cluster.views["c"])
    cluster.pause("c")
    cluster.run(400.0)  # short enough for the others to wait
    cluster.resume("c")
    cluster.run(2_000.0)
    assert [len(cluster.views[name]) for name in "abc"] == [count] * 3
    assert cluster.journal("c", MembershipEvent.SUSPECTED) == []


def test_who_has_paused_for_too_long_finds_itself_expelled_and_rejoins() -> None:
    cluster = settled("abc")
    cluster.pause("c")
    cluster.run(5_000.0)
    assert cluster.is_view("ab")
    cluster.resume("c")
    cluster.run_until_views("abc")


def test_a_member_that_has_gone_to_another_view_has_left() -> None:
    cluster = settled("ab")
    cluster.drop(lambda source, target, frame: source == "a" or is_ending(frame))
    cluster.run_until(lambda: names(cluster["b"].view.members) == "b")  # a has not been told
    cluster.run_until(lambda: names(cluster["a"].view.members) == "a", CONFIG.departed_ms + 300.0)
    assert cluster.causes("a", MembershipEvent.SUSPECTED) == ["departed"]
    cluster.heal()
    cluster.run_until_views("ab")


def test_a_window_that_is_stuck_leads_to_a_view() -> None:
    cluster = settled("abc", transport_config=TransportConfig(window_messages_max=30, stuck_after_ms=400.0))
    cluster.drop(lambda source, target, frame: target == "c" and is_packet(frame))  # it hears all but messages
    for number in range(40):
        cluster.multicast("a", b"%d" % number)
    cluster.run_until_views("ab")
    assert "stuck" in cluster.causes("a", MembershipEvent.SUSPECTED) + cluster.causes(
        "b", MembershipEvent.SUSPECTED
    )
    cluster.run(100.0)
    assert cluster.delivered("b") == cluster.delivered("a") == [b"%d" % number for number in range(40)]


def test_a_member_that_answers_probes_and_is_not_heard_otherwise_is_given_up() -> None:
    cluster = settled("abc")
    cluster.drop(
        lambda source, target, frame: source == "c" and not isinstance(group_frame_in(frame), Probe | ProbeReply)
    )
    cluster.run(CONFIG.mute_after_ms - 500.0)
    assert cluster.is_view("abc")
    assert cluster.journal("a", MembershipEvent.PROBED)
    cluster.run_until_views("ab")


def test_who_does_not_answer_our_last_word_is_given_up_heard_or_not() -> None:
    cluster = settled("abcd")
    cluster.drop(lambda source, target, frame: source == "c" and is_ending(frame))
    cluster.crash("d")
    cluster.run_until_views("ab", within_ms=2_500.0)
    assert "unresponsive" in cluster.causes("a", MembershipEvent.SUSPECTED) + cluster.causes(
        "b", MembershipEvent.SUSPECTED
    )


def test_a_lost_control_message_is_repeated() -> None:
    cluster = settled("abc")
    losses = iter((True, True))
    cluster.drop(lambda source, target, frame: source == "a" and is_ending(frame) and next(losses, False))
    cluster.crash("c")
    cluster.run_until_views("ab", within_ms=1_000.0)
    assert next(losses, None) is None
    assert cluster.journal("a", MembershipEvent.CONTROL_RESENT)


def test_what_a_dead_machine_said_is_repeated_by_those_who_heard_it() -> None:
    cluster = settled("abcd")
    cluster.drop(lambda source, target, frame: source == "c" and target == "a" and is_ending(frame))
    cluster.crash("d")
    cluster.run_until(lambda: bool(cluster.group_frames(Control, "c")[2:]) and cluster["b"].is_changing())
    cluster.crash("c")
    cluster.run_until_views("ab")
    resent = [entry.id for entry in cluster.journal("b", MembershipEvent.CONTROL_RESENT)]
    assert "c.1:3" in resent


# Restarts


def test_a_restarted_machine_expels_its_predecessor_at_once() -> None:
    cluster = settled("abc")
    cluster.restart("c")
    took_ms = cluster.run_until(lambda: machine("c", 1) not in cluster["a"].view.members)
    assert took_ms < CONFIG.suspect_after_ms / 2.0
    assert "restarted" in cluster.causes("a", MembershipEvent.SUSPECTED)
    cluster.run_until_views("abc")
    assert cluster["a"].view.members == (machine("a"), machine("b"), machine("c", 2))


def test_view_ids_ascend_over_restarts() -> None:
    cluster = settled("abc")
    for name in "caab":
        cluster.restart(name)
        cluster.run_until_views("abc")
    for name in "abc":
        identities = [view.id for view in cluster.views[name]]
        assert identities == sorted(set(identities))
        assert len(identities) > 6


# Links that are one-way, or not transitive


def everybody_hears_each_other(cluster: Cluster, *cut: str) -> bool:
    """Whether no view has two members between which a link is cut."""
    views = [names(group.view.members) for group in cluster.groups.values()]
    pairs = [pair for members in views for pair in permutations(members, 2)]
    return not any(one + other in cut for one, other in pairs)


@pytest.mark.parametrize("from_the_start", [True, False])
@pytest.mark.parametrize(
    ("everybody", "cut"),
    [
        ("abc", ("ac",)),
        ("abc", ("ac", "ca")),
        ("abcd", ("ac", "db")),
        ("abcd", ("ac", "ca", "bd", "db")),
        ("abcde", ("ae", "ea", "bd")),
    ],
)
def test_one_way_and_non_transitive_links_leave_views_that_last(
    everybody: str, cut: tuple[str, ...], from_the_start: bool
) -> None:
    cluster = Cluster(everybody)
    if not from_the_start:
        cluster.run_until_views(everybody)
    cluster.cut(*cut)
    cluster.run(6_000.0)
    assert everybody_hears_each_other(cluster, *cut)
    views = {name: list(cluster.views[name]) for name in everybody}
    cluster.run(20_000.0)
    assert cluster.views == views
    assert max(len(group.view.members) for group in cluster.groups.values()) > 1
    cluster.heal()
    cluster.run_until_views(everybody)


def test_a_link_that_flaps_makes_its_machine_wait_longer_each_time() -> None:
    cluster = settled("ab")
    joins: list[float] = []
    for _ in range(5):
        cluster.partition("a|b")
        cluster.run_until_views("a", "b")
        cluster.heal()
        joins.append(cluster.run_until_views("ab", within_ms=8_000.0))
    assert joins[-1] > 2_000.0 > joins[0]
    assert len(cluster.journal("a", MembershipEvent.BACKED_OFF)) >= 4


def test_who_was_to_join_and_did_not_has_to_wait() -> None:
    cluster = Cluster("ab")
    cluster.drop(lambda source, target, frame: source == "b" and is_ending(frame))
    cluster.run_until(lambda: cluster["a"].stage is Stage.COMMITTED)
    cluster.crash("b")
    cluster.run_until_views("a")
    assert [names(view.members) for view in cluster.views["a"]] == ["a", "a"]
    assert [entry.details["machines"] for entry in cluster.journal("a", MembershipEvent.BACKED_OFF)] == [["b.1"]]
