"""What a group tells its peers and its journal, and which frames of its peers it does not accept."""

from __future__ import annotations

from itertools import pairwise

from membership import codec
from membership.config import MembershipConfig
from membership.effects import MembershipEvent
from membership.messages import AttemptJoin, Control, Fault, Join, Presence
from membership.stages import TRANSITIONS, Cause, Stage
from tests.membership.builders import attempt, control, fault, machine, machines
from tests.membership.harness import Cluster, is_ending, settled
from transport.effects import Journal, Reason, TransportEvent
from transport.messages import SEQUENCE_MAX, Datagram, Envelope, Machine, Service, ViewId

CONFIG = MembershipConfig()


# What heartbeats and the journal say


def test_a_heartbeat_says_where_one_is_and_whom_one_hears() -> None:
    cluster = settled("abc")
    cluster.run(200.0)
    presence = cluster.group_frames(Presence, "a")[-1]
    assert presence.view == cluster["a"].view.id
    assert presence.members == machines("abc")
    assert presence.heard == machines("bc")
    assert [member for member, _ in presence.controls] == list(machines("abc"))


def test_heartbeats_are_more_frequent_while_a_change_is_pending() -> None:
    cluster = settled("abc")
    quiet = len(cluster.group_frames(Presence, "a"))
    cluster.run(1_000.0)
    quiet = len(cluster.group_frames(Presence, "a")) - quiet
    cluster.drop(lambda source, target, frame: source == "b" and is_ending(frame))
    cluster.crash("c")
    cluster.run_until(cluster["a"].is_changing)
    pending = len(cluster.group_frames(Presence, "a"))
    cluster.run(500.0)
    pending = len(cluster.group_frames(Presence, "a")) - pending
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
        entries = cluster.journal(name, MembershipEvent.STAGE)
        stages = ["idle", *[str(entry.details["stage"]) for entry in entries]]
        assert all(Stage(after) in TRANSITIONS[Stage(before)] for before, after in pairwise(stages))
        assert all(isinstance(entry.reason, Cause) and entry.details["machines"] for entry in entries)
        causes.update(str(entry.reason) for entry in entries)
    assert {"invited", "alpha_expired", "assented"} <= causes
    assert causes & {"silent", "fault_received"}


def test_a_view_is_journaled_with_its_electors() -> None:
    cluster = settled("abc")
    (entry,) = cluster.journal("a", MembershipEvent.VIEW)
    assert entry.id == str(cluster["a"].view.id)
    assert entry.details["members"] == ["a.1", "b.1", "c.1"]
    electors = entry.details["electors"]
    assert isinstance(electors, list)
    sent = [entry.id for name in "abc" for entry in cluster.journal(name, MembershipEvent.CONTROL_SENT)]
    assert set(electors) <= set(sent)


def test_an_idle_group_says_no_more_than_its_heartbeats() -> None:
    cluster = settled("abc")
    cluster.sent.clear()
    cluster.run(10_000.0)
    assert len(cluster.sent) <= 3 * 2 * 10_000.0 / CONFIG.presence_ms * 1.1
    assert not any(cluster.group_frames(Control, name) for name in "abc")


def test_it_is_always_known_when_to_look_again() -> None:
    cluster = settled("abc")
    for _ in range(100):
        cluster.run(cluster.random.random() * 100.0)
        for name in "abc":
            assert cluster.now <= cluster[name].next_deadline() <= cluster.now + CONFIG.pause_ms / 2.0


# What peers do wrong


def rejected(cluster: Cluster, target: str, datagram: Datagram) -> list[object]:
    """Hands over a datagram, and returns the reasons for which its frames were dropped."""
    effects = cluster.inject(target, datagram)
    return [
        effect.reason
        for effect in effects
        if isinstance(effect, Journal) and effect.event is TransportEvent.DROPPED
    ]


def from_b(body: Fault | AttemptJoin | Join, view: ViewId, clock: int = 50, **cover: int) -> Datagram:
    group_frame = control("b", 9, body, view, cover=cover, clock=clock)
    return Datagram(machine("b"), (Envelope(codec.encode(group_frame)),))


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


def test_what_an_old_incarnation_sent_comes_too_late() -> None:
    cluster = settled("ab")
    cluster.restart("b")
    cluster.run_until_views("ab")
    late = Datagram(machine("b", 1), (Envelope(codec.encode(control("b", 9, fault("a")))),))
    assert rejected(cluster, "a", late) == [Reason.OLD_INCARNATION]


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


# Hosts that say that no process listens


def test_a_dead_process_whose_host_refuses_probes_is_expelled_when_its_heartbeat_is_overdue() -> None:
    cluster = settled("abc")
    cluster.crash("c")
    cluster.run_until(lambda: is_probed(cluster, "a") and is_probed(cluster, "b"))
    for name in "ab":
        cluster[name].port_unreachable(machine("c"), cluster.now)
    assert cluster.run_until_views("ab") < 10.0
    assert cluster.now - last_heard(cluster) < CONFIG.suspect_after_ms / 2.0 + 10.0
    assert cluster.causes("a", MembershipEvent.SUSPECTED) == ["port_unreachable"]


def test_a_refusal_is_forgotten_when_its_machine_is_heard() -> None:
    cluster = settled("abc")
    for _ in range(20):
        cluster["a"].port_unreachable(machine("c"), cluster.now)
        cluster.run(CONFIG.presence_ms)
    cluster.pause("c")  # it was heard after the last refusal, and now misses one heartbeat
    cluster.run(CONFIG.presence_ms * CONFIG.overdue_gaps + 50.0)
    assert is_probed(cluster, "a")
    cluster.resume("c")
    cluster.run(1_000.0)
    assert cluster.is_view("abc")
    assert cluster.journal("a", MembershipEvent.SUSPECTED) == []


def test_a_refusal_counts_from_before_the_heartbeat_was_overdue_but_not_before_it_is() -> None:
    cluster = settled("abc")
    cluster.run(1.0)  # nothing of c is on its way any more
    cluster.crash("c")
    cluster["a"].port_unreachable(machine("c"), cluster.now)
    heard_at = last_heard(cluster)
    cluster.run_until(cluster["a"].is_changing)
    assert CONFIG.presence_ms < cluster.now - heard_at < CONFIG.suspect_after_ms / 2.0 + 1.0


def test_a_late_refusal_of_a_process_that_runs_again_is_harmless() -> None:
    cluster = settled("abc")
    cluster.restart("c")
    cluster.run_until_views("abc")
    view = cluster["a"].view
    for _ in range(30):  # some of them between two heartbeats, when c has not been heard for a while
        cluster.run(37.0)
        for name in "ab":
            for incarnation in (1, 2):
                cluster[name].port_unreachable(machine("c", incarnation), cluster.now)
    cluster.run(2_000.0)
    assert cluster["a"].view == view


def is_probed(cluster: Cluster, name: str) -> bool:
    return bool(cluster.journal(name, MembershipEvent.PROBED))


def last_heard(cluster: Cluster) -> float:
    return max(sent.at for sent in cluster.sent if sent.source == "c")
