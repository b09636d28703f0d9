"""Whole groups: stories of one to six machines on a network that loses exactly what it is told to lose."""

from __future__ import annotations

from itertools import pairwise, permutations
from random import Random

import pytest

from membership import codec
from membership.config import MembershipConfig
from membership.effects import ChangeStarted, Event, Refused, ViewChanged
from membership.messages import Attempt, Control, Fault, Join, JoiningSet, Presence, Probe, ProbeReply
from membership.protocol import TRANSITIONS, Cause, Stage
from tests.membership.harness import (
    SETTLE_MS,
    Cluster,
    attempt,
    control,
    fault,
    letter_in,
    machine,
    machines,
    names,
)
from transport.config import TransportConfig
from transport.effects import Broadcast, Delivered, Journal, Reason
from transport.effects import Event as TransportEvent
from transport.lansis import ViewOver
from transport.messages import (
    SEQUENCE_MAX,
    Datagram,
    Envelope,
    Frame,
    Machine,
    Packet,
    Retransmission,
    Service,
    View,
    ViewId,
)

CONFIG = MembershipConfig()


def settled(
    component: str, config: MembershipConfig = CONFIG, transport_config: TransportConfig | None = None
) -> Cluster:
    """A cluster in one view, known to all to be everybody's."""
    cluster = Cluster(component, config, transport_config)
    cluster.run_until_views(component)
    cluster.run(300.0)
    return cluster


def is_packet(frame: Frame) -> bool:
    return isinstance(frame, Packet | Retransmission)


def is_ending(frame: Frame) -> bool:
    """Whether it carries a FA or JOIN."""
    letter = letter_in(frame)
    return isinstance(letter, Control) and not isinstance(letter.body, Attempt)


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
    assert not any(isinstance(letter.body, Attempt) for letter in cluster.letters(Control, "a"))
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
    assert "accused_me" in cluster.causes("c", Event.SUSPECTED)


def test_who_has_paused_drains_its_sockets_before_it_judges_anyone() -> None:
    cluster = settled("abc")
    count = len(cluster.views["c"])
    cluster.pause("c")
    cluster.run(400.0)  # short enough for the others to wait
    cluster.resume("c")
    cluster.run(2_000.0)
    assert [len(cluster.views[name]) for name in "abc"] == [count] * 3
    assert cluster.journal("c", Event.SUSPECTED) == []


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
    assert cluster.causes("a", Event.SUSPECTED) == ["departed"]
    cluster.heal()
    cluster.run_until_views("ab")


def test_a_window_that_is_stuck_leads_to_a_view() -> None:
    cluster = settled("abc", transport_config=TransportConfig(window_messages_max=30, stuck_after_ms=400.0))
    cluster.drop(lambda source, target, frame: target == "c" and is_packet(frame))  # it hears all but messages
    for number in range(40):
        cluster.multicast("a", b"%d" % number)
    cluster.run_until_views("ab")
    assert "stuck" in cluster.causes("a", Event.SUSPECTED) + cluster.causes("b", Event.SUSPECTED)
    cluster.run(100.0)
    assert cluster.delivered("b") == cluster.delivered("a") == [b"%d" % number for number in range(40)]


def test_a_member_that_answers_probes_and_is_not_heard_otherwise_is_given_up() -> None:
    cluster = settled("abc")
    cluster.drop(
        lambda source, target, frame: source == "c" and not isinstance(letter_in(frame), Probe | ProbeReply)
    )
    cluster.run(CONFIG.mute_after_ms - 500.0)
    assert cluster.is_view("abc")
    assert cluster.journal("a", Event.PROBED)
    cluster.run_until_views("ab")


def test_who_does_not_answer_our_last_word_is_given_up_heard_or_not() -> None:
    cluster = settled("abcd")
    cluster.drop(lambda source, target, frame: source == "c" and is_ending(frame))
    cluster.crash("d")
    cluster.run_until_views("ab", within_ms=2_500.0)
    assert "unresponsive" in cluster.causes("a", Event.SUSPECTED) + cluster.causes("b", Event.SUSPECTED)


def test_a_lost_control_message_is_repeated() -> None:
    cluster = settled("abc")
    losses = iter((True, True))
    cluster.drop(lambda source, target, frame: source == "a" and is_ending(frame) and next(losses, False))
    cluster.crash("c")
    cluster.run_until_views("ab", within_ms=1_000.0)
    assert next(losses, None) is None
    assert cluster.journal("a", Event.CONTROL_RESENT)


def test_what_a_dead_machine_said_is_repeated_by_those_who_heard_it() -> None:
    cluster = settled("abcd")
    cluster.drop(lambda source, target, frame: source == "c" and target == "a" and is_ending(frame))
    cluster.crash("d")
    cluster.run_until(lambda: bool(cluster.letters(Control, "c")[2:]) and cluster["b"].is_changing())
    cluster.crash("c")
    cluster.run_until_views("ab")
    resent = [entry.id for entry in cluster.journal("b", Event.CONTROL_RESENT)]
    assert "c.1:3" in resent


# Restarts


def test_a_restarted_machine_expels_its_predecessor_at_once() -> None:
    cluster = settled("abc")
    cluster.restart("c")
    took_ms = cluster.run_until(lambda: machine("c", 1) not in cluster["a"].view.members)
    assert took_ms < CONFIG.suspect_after_ms / 2.0
    assert "restarted" in cluster.causes("a", Event.SUSPECTED)
    cluster.run_until_views("abc")
    assert cluster["a"].view.members == (machine("a"), machine("b"), machine("c", 2))


def test_what_an_old_incarnation_sent_comes_too_late() -> None:
    cluster = settled("ab")
    cluster.restart("b")
    cluster.run_until_views("ab")
    late = Datagram(machine("b", 1), (Envelope(codec.encode(control("b", 9, fault("a")))),))
    assert rejected(cluster, "a", late) == [Reason.OLD_INCARNATION]


def test_view_ids_ascend_over_restarts() -> None:
    cluster = settled("abc")
    for name in "caab":
        cluster.restart(name)
        cluster.run_until_views("abc")
    for name in "abc":
        identities = [view.id for view in cluster.views[name]]
        assert identities == sorted(set(identities))
        assert len(identities) > 6


# Messages and views


def test_nothing_is_sent_between_the_start_of_a_change_and_its_view() -> None:
    cluster = settled("abcd")
    cluster.drop(lambda source, target, frame: is_ending(frame) and cluster.random.random() < 0.8)  # takes a while
    cluster.crash("d")
    for number in range(300):
        cluster.multicast("abc"[number % 3], b"%d" % number)
        cluster.run(3.0)
    for name in "abc":
        is_changing = False
        for _, effect in cluster.log[name]:
            if isinstance(effect, ChangeStarted):
                is_changing = True
            elif isinstance(effect, ViewChanged):
                is_changing = False
            elif isinstance(effect, Broadcast):
                assert not (is_changing and any(isinstance(frame, Packet) for frame in effect.datagram.frames))


def test_every_change_of_view_is_announced_before() -> None:
    cluster = settled("abc")
    cluster.partition("ab|c")
    cluster.run_until_views("ab", "c")
    cluster.heal()
    cluster.run_until_views("abc")
    for name in "abc":
        changes = [effect for _, effect in cluster.log[name] if isinstance(effect, ChangeStarted | ViewChanged)]
        assert [type(change) for change in changes] == [ChangeStarted, ViewChanged] * 3
        assert [change.view for change in changes[::2]] == cluster.views[name][:-1]


def test_what_is_accepted_during_a_change_goes_out_in_the_next_view() -> None:
    cluster = settled("abc")
    cluster.crash("c")
    cluster.drop(lambda source, target, frame: target == "a" and is_ending(frame))
    cluster.run_until(cluster["a"].is_changing)
    cluster.multicast("a", b"held")
    cluster.run(100.0)
    assert cluster.delivered("a") == []
    cluster.heal()
    cluster.run_until_views("ab")
    cluster.run(10.0)
    assert cluster.history("a")[-2:] == cluster.history("b")[-2:] == ["ab", b"held"]
    (delivered,) = cluster.effects(Delivered, "b")
    assert delivered.messages[0].view == cluster["b"].view.id


def test_a_message_bound_to_a_view_that_is_ending_is_not_accepted() -> None:
    cluster = settled("abc")
    cluster.crash("c")
    cluster.drop(lambda source, target, frame: target == "a" and is_ending(frame))
    cluster.run_until(cluster["a"].is_changing)
    with pytest.raises(ViewOver):
        cluster.multicast("a", b"too late", bound=True)


def test_a_message_bound_to_a_view_that_ended_before_it_was_sent_is_refused() -> None:
    cluster = settled("abc", transport_config=TransportConfig(window_messages_max=6, packet_units_max=1))
    cluster.crash("c")  # so that the window fills
    bound = [b"bound %d" % number for number in range(10)]
    for payload in bound:
        cluster.multicast("a", payload, bound=True)
    cluster.multicast("a", b"free")
    cluster.run_until_views("ab")
    cluster.run(100.0)
    (refusal,) = cluster.effects(Refused, "a")
    refused = [payload for _, payload in refusal.messages]
    assert 0 < len(refused) < len(bound)
    before = bound[: -len(refused)]
    assert bound == before + refused
    assert cluster.history("a") == cluster.history("b") == ["abc", *before, "ab", b"free"]


def test_frames_of_a_view_we_do_not_have_yet_are_kept_for_it() -> None:
    cluster = settled("abc")
    cluster.crash("c")
    cluster.drop(lambda source, target, frame: source + target == "ba" and is_ending(frame))
    cluster.run_until(lambda: names(cluster["b"].view.members) == "ab")
    cluster.multicast("b", b"early", Service.CAUSAL)
    cluster.run(2.0)
    assert cluster["a"].stage is Stage.FAULTS
    packets = [frame for sent in cluster.sent for frame in sent.datagram.frames if isinstance(frame, Packet)]
    assert [packet.payloads for packet in packets] == [(b"early",)]
    cluster.drop(lambda source, target, frame: is_packet(frame))  # it is not sent again
    cluster.run_until_views("ab")
    assert cluster.history("a")[-2:] == ["ab", b"early"]


def test_what_is_kept_of_early_frames_is_bounded_and_the_rest_is_asked_for() -> None:
    cluster = settled("abc", config=MembershipConfig(early_bytes_max=1_000))
    cluster.crash("c")
    cluster.drop(lambda source, target, frame: source + target == "ba" and is_ending(frame))
    cluster.run_until(lambda: names(cluster["b"].view.members) == "ab")
    for _ in range(20):
        cluster.multicast("b", bytes(400))
        cluster.run(1.0)
    assert 0 < cluster["a"]._early.bytes <= 1_000
    cluster.heal()
    cluster.run_until_views("ab")
    cluster.run(100.0)
    assert cluster.delivered("a") == [bytes(400)] * 20


def test_a_closed_view_answers_a_slower_survivor() -> None:
    cluster = settled("abc")
    cluster.drop(lambda source, target, frame: target == "a" and not isinstance(frame, Envelope))
    cluster.multicast("c", b"only b has it")
    cluster.run(0.5)
    cluster.crash("c")
    cluster.run_until(lambda: names(cluster["b"].view.members) == "ab")
    cluster.run(50.0)
    assert cluster["a"].stage is Stage.FAULTS  # b's FA tells it that something is missing, and nothing else does
    cluster.heal()
    cluster.run_until_views("ab", within_ms=500.0)
    assert cluster.history("a")[-2:] == cluster.history("b")[-2:] == [b"only b has it", "ab"]
    again = [frame for sent in cluster.sent for frame in sent.datagram.frames if isinstance(frame, Retransmission)]
    assert {frame.packet.view for frame in again} == {cluster.views["b"][-2].id}


def test_closed_views_are_forgotten_when_everybody_is_in_the_current_one() -> None:
    cluster = settled("abc")
    cluster.crash("c")
    cluster.run_until_views("ab")
    assert len(cluster["a"]._closed) == 1
    cluster.run(300.0)
    assert len(cluster["a"]._closed) == 0


def test_messages_flow_while_views_come_and_go() -> None:
    random = Random(5)
    cluster = settled("abcd")
    for components in ("ab|cd", "abcd", "a|bcd", "abcd"):
        cluster.partition(components)
        for number in range(200):
            cluster.multicast(random.choice("abcd"), b"%d" % number, random.choice((Service.AGREED, Service.SAFE)))
            cluster.run(random.choice((0.0, 5.0, 10.0)))
        cluster.run_until_views(*components.split("|"))
    cluster.run(500.0)
    last = cluster.views["a"][-1]
    for name in "bcd":
        assert since(cluster, name, last) == since(cluster, "a", last)
        assert len(cluster.delivered(name)) > 200


def since(cluster: Cluster, name: str, view: View) -> list[bytes]:
    """What this machine has delivered in a view."""
    messages = [message for effect in cluster.effects(Delivered, name) for message in effect.messages]
    return [message.payload for message in messages if message.view == view.id]


# Links that are one-way, or not transitive


def everybody_hears_each_other(cluster: Cluster, *cut: str) -> bool:
    """Whether no view has two members between whom something is cut."""
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
    assert len(cluster.journal("a", Event.BACKED_OFF)) >= 4


def test_who_was_to_join_and_did_not_has_to_wait() -> None:
    cluster = Cluster("ab")
    cluster.drop(lambda source, target, frame: source == "b" and is_ending(frame))
    cluster.run_until(lambda: cluster["a"].stage is Stage.COMMITTED)
    cluster.crash("b")
    cluster.run_until_views("a")
    assert [names(view.members) for view in cluster.views["a"]] == ["a", "a"]
    assert [entry.details["machines"] for entry in cluster.journal("a", Event.BACKED_OFF)] == [["b.1"]]


# What heartbeats and the journal say


def test_a_heartbeat_says_where_one_is_and_whom_one_hears() -> None:
    cluster = settled("abc")
    cluster.run(200.0)
    presence = cluster.letters(Presence, "a")[-1]
    assert presence.view == cluster["a"].view.id
    assert presence.members == machines("abc")
    assert presence.heard == machines("bc")
    assert [member for member, _ in presence.controls] == list(machines("abc"))


def test_heartbeats_are_more_frequent_while_a_change_is_pending() -> None:
    cluster = settled("abc")
    quiet = len(cluster.letters(Presence, "a"))
    cluster.run(1_000.0)
    quiet = len(cluster.letters(Presence, "a")) - quiet
    cluster.drop(lambda source, target, frame: source == "b" and is_ending(frame))
    cluster.crash("c")
    cluster.run_until(cluster["a"].is_changing)
    pending = len(cluster.letters(Presence, "a"))
    cluster.run(500.0)
    pending = len(cluster.letters(Presence, "a")) - pending
    assert quiet <= 1_000.0 / CONFIG.presence_ms + 1
    assert pending > 25


def test_every_stage_entered_is_journaled_with_its_cause() -> None:
    cluster = settled("abcd")
    cluster.partition("ab|cd")
    cluster.run_until_views("ab", "cd")
    cluster.crash("b")
    cluster.heal()
    cluster.run_until_views("acd")
    causes: set[str] = set()
    for name in "acd":
        entries = cluster.journal(name, Event.STAGE)
        stages = ["idle", *[str(entry.details["stage"]) for entry in entries]]
        assert all(Stage(after) in TRANSITIONS[Stage(before)] for before, after in pairwise(stages))
        assert all(isinstance(entry.reason, Cause) and entry.details["accept"] for entry in entries)
        causes.update(str(entry.reason) for entry in entries)
    assert {"invited", "alpha_expired", "assented"} <= causes
    assert causes & {"silent", "fault_received"}


def test_a_view_is_journaled_with_its_electors() -> None:
    cluster = settled("abc")
    (entry,) = cluster.journal("a", Event.VIEW)
    assert entry.id == str(cluster["a"].view.id)
    assert entry.details["members"] == ["a.1", "b.1", "c.1"]
    electors = entry.details["electors"]
    assert isinstance(electors, list)
    sent = [entry.id for name in "abc" for entry in cluster.journal(name, Event.CONTROL_SENT)]
    assert set(electors) <= set(sent)


def test_an_idle_group_says_no_more_than_its_heartbeats() -> None:
    cluster = settled("abc")
    cluster.sent.clear()
    cluster.run(10_000.0)
    assert len(cluster.sent) <= 3 * 2 * 10_000.0 / CONFIG.presence_ms * 1.1
    assert not any(cluster.letters(Control, name) for name in "abc")


# What peers do wrong


def rejected(cluster: Cluster, target: str, datagram: Datagram) -> list[object]:
    effects = cluster.inject(target, datagram)
    return [
        effect.reason
        for effect in effects
        if isinstance(effect, Journal) and effect.event is TransportEvent.DROPPED
    ]


def from_b(body: Fault | Attempt | Join, view: ViewId, clock: int = 50, **cover: int) -> Datagram:
    letter = control("b", 9, body, view, cover=cover, clock=clock)
    return Datagram(machine("b"), (Envelope(codec.encode(letter)),))


def test_what_cannot_be_right_is_dropped_and_counted() -> None:
    cluster = settled("abc")
    view = cluster["a"].view.id
    for incarnation in (1, 2):
        namesake = Datagram(machine("a", incarnation), (Envelope(b""),))
        assert rejected(cluster, "a", namesake) == [Reason.MY_OWN_NAME]
    assert rejected(cluster, "a", Datagram(machine("b"), (Envelope(b"?"),))) == [Reason.UNDECODABLE]
    assert rejected(cluster, "a", from_b(fault("c"), view, clock=2**50)) == [Reason.CLOCK_JUMP]
    assert rejected(cluster, "a", from_b(attempt("b"), view, clock=SEQUENCE_MAX)) == [Reason.CLOCK_JUMP]
    assert rejected(cluster, "a", from_b(fault("c"), view, a=0, b=0, z=0)) == [Reason.NOT_A_MEMBER]
    assert rejected(cluster, "a", from_b(fault("c"), view, a=7)) == [Reason.ACKS_UNSENT]
    stranger = Datagram(machine("b"), (Envelope(codec.encode(control("z", 1, fault("c"), view))),))
    assert rejected(cluster, "a", stranger) == [Reason.NOT_A_MEMBER]
    assert cluster["a"].stage is Stage.IDLE
    assert cluster["a"].counters["dropped_not_a_member"] == 2


def test_a_fault_that_covers_less_than_its_sender_has_sent_is_a_lie() -> None:
    cluster = settled("abc")
    for _ in range(2):
        cluster.multicast("b", b"x", Service.CAUSAL)
    cluster.run(10.0)
    lie = from_b(fault("c"), cluster["a"].view.id, a=0, b=1, c=0)
    assert rejected(cluster, "a", lie) == [Reason.OUT_OF_ORDER]
    assert cluster["a"].stage is Stage.IDLE


@pytest.mark.parametrize("is_over", [True, False])
def test_an_invitation_to_a_view_that_is_over_is_ignored(is_over: bool) -> None:
    cluster = settled("ab")
    cluster.partition("a|b")
    cluster.run(5_000.0)
    cluster.heal()
    cluster.run(CONFIG.presence_ms + 50.0)  # they hear each other, but not for long enough
    view = cluster.views["b"][-2 if is_over else -1].id
    invitation = Attempt(JoiningSet(view, ((machine("b"), 98),)))
    letter = Control(machine("b"), 99, 99, view, (), (), invitation)
    cluster.inject("a", Datagram(machine("b"), (Envelope(codec.encode(letter)),)))
    assert cluster["a"].stage is (Stage.IDLE if is_over else Stage.GATHERING)


def test_a_lansis_of_the_view_before_still_counts_in_the_same_counters() -> None:
    cluster = settled("ab")
    cluster.multicast("a", b"x")
    cluster.run(10.0)
    cluster.crash("b")
    cluster.run_until_views("a")
    cluster.multicast("a", b"y")
    cluster.run(10.0)
    assert cluster["a"].counters["messages_delivered"] == 2


def test_it_is_always_known_when_to_look_again() -> None:
    cluster = settled("abc")
    for _ in range(100):
        cluster.run(cluster.random.random() * 100.0)
        for name in "abc":
            assert cluster.now <= cluster[name].next_deadline() <= cluster.now + CONFIG.pause_ms / 2.0


def test_two_machines_of_one_name_do_not_upset_the_others() -> None:
    cluster = settled("abc")
    twin = Machine("c", 2)
    presence = Presence(ViewId(900, *twin), (twin,), machines("ab"), ())
    for _ in range(40):
        for name in "ab":
            cluster.inject(name, Datagram(twin, (Envelope(codec.encode(presence)),)))
        cluster.run(100.0)
    assert cluster.is_view("ab")
    assert cluster["c"].view.members == (machine("c"),)


def test_who_waits_for_its_next_attempt_answers_those_of_others() -> None:
    cluster = Cluster("ab")
    cluster.drop(lambda source, target, frame: isinstance(letter_in(frame), Control))
    cluster.run_until(lambda: all(Cause.NOBODY_ANSWERED in cluster.causes(name, Event.STAGE) for name in "ab"))
    cluster.heal()
    cluster.run_until_views("ab")
    causes = cluster.causes("a", Event.STAGE) + cluster.causes("b", Event.STAGE)
    assert causes.count(Cause.INVITED) == 1


def test_who_was_declared_faulty_is_not_invited_any_more() -> None:
    cluster = settled("abc", MembershipConfig(response_ms=5_000.0))
    cluster.partition("ab|c")
    cluster.run_until_views("ab", "c")
    cluster.run(300.0)
    cluster.heal()
    cluster.run_until(lambda: cluster["c"].stage is Stage.COMMITTED)
    cluster.drop(lambda source, target, frame: target == "c" or (source + target == "ba" and is_ending(frame)))
    cluster.run_until(lambda: machine("c") in cluster["a"].protocol.suspects)
    before = len(cluster.journal("a", Event.CONTROL_RESENT))
    cluster.run(500.0)
    assert cluster["a"].stage is Stage.COMMITTED
    assert len(cluster.journal("a", Event.CONTROL_RESENT)) == before


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
    body = Attempt(JoiningSet(d.view.id, ((d.me, sequence),)))
    invitation = Control(d.me, sequence + 1, d.lansis.clock + 1, d.view.id, (), (), body)
    cluster.inject("a", Datagram(d.me, (Envelope(codec.encode(invitation)),)))
    assert cluster["c"].stage is Stage.FAULTS
    assert cluster["a"].stage is Stage.IDLE
