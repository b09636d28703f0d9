"""The claims of "Membership Algorithms for Multicast Communication Groups" (Amir, Dolev, Kramer, Malki), one by
one.

Most tests use bare protocols, to which messages are handed in the very order that would break the claim if the
rule behind it were missing. What the paper calls a configuration change is a view here: J without all faults; the
electors of a view are its members' last FA or JOIN (`membership/protocol.py` lists this and the other deviations).
The paper's Expected and the set of messages before a view are `expected` and `covered` of `Installed`.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from membership.effects import MembershipEvent
from membership.messages import Control, Join
from membership.stages import Cause, Installed, Stage
from tests.membership.adversary import Adversary
from tests.membership.builders import fault, ids, join, machine, machines, names, view_id
from tests.membership.harness import Cluster, Table, gathered, is_ending, settled
from transport.effects import Delivered
from transport.messages import Frame, Packet, Retransmission, Service

SHAPES = [tuple(shape.split("|")) for shape in ("abc", "abcd", "a|b|c", "ab|cd", "ab|c|d", "abc|de", "a|b|c|d")]


def everybody_break(table: Table, *everybody: str, faulty: str) -> None:
    for name in everybody:
        table.break_with(name, faulty)


def commit_all(*components: str) -> Table:
    """Returns a table where every machine has the AJ of every other (message 1) and has sent its JOIN
    (message 2), which no other machine has yet."""
    table = gathered(*components)
    table.alpha(*"".join(components))
    return table


def packet_in(frame: Frame) -> Packet | None:
    carried = frame.packet if isinstance(frame, Retransmission) else frame
    return carried if isinstance(carried, Packet) else None


def agreed(table: Table, members: str) -> Installed:
    """Checks that these machines have installed the same view last, with the same electors and the same Expected,
    and returns it."""
    last = [table.installed(name)[-1] for name in members]
    assert names(last[0].view.members) == members
    for installed in last:
        assert installed.view.id == last[0].view.id
        assert installed.electors == last[0].electors
        assert installed.expected == last[0].expected
    return last[0]


# Section 4: faults


@pytest.mark.parametrize("service", [Service.CAUSAL, Service.AGREED, Service.SAFE])
def test_figure_2_the_fault_is_delivered_after_all_messages_that_survivors_have(service: Service) -> None:
    """A loses C after m1 and declares it faulty; B, who has m3, concurs: the view comes after m3 at both."""
    cluster = settled("abc")
    cluster.multicast("c", b"m1", service)
    cluster.run(1.0)
    cluster.drop(lambda source, target, frame: target == "a" and (source == "c" or packet_in(frame) is not None))
    for payload in (b"m2", b"m3"):
        cluster.multicast("c", payload, service)
        cluster.run(1.0)
    cluster.run_until(cluster["a"].is_changing)
    cluster.crash("c")
    cluster.heal()
    cluster.run_until_views("ab")
    assert cluster.group_frames(Control, "a")[-1].cover[2] == (machine("c"), 1)
    assert cluster.group_frames(Control, "b")[-1].cover[2] == (machine("c"), 3)
    assert cluster.history("a") == cluster.history("b") == ["abc", b"m1", b"m2", b"m3", "ab"]


def test_figure_2_whoever_the_messages_come_from() -> None:
    """The same when C lives, and answers A's requests in vain: B must not take that for an answer."""
    cluster = settled("abc")
    cluster.cut("ca")
    for payload in (b"m1", b"m2", b"m3"):
        cluster.multicast("c", payload)
        cluster.run(1.0)
    cluster.run_until_views("ab")
    assert cluster.history("a") == cluster.history("b") == ["abc", b"m1", b"m2", b"m3", "ab"]


def test_lemma_4_1_who_has_gone_on_is_not_listened_to_before_all_electors_are_here() -> None:
    """b has removed f and goes on to remove c. Its second FA reaches a before c's first, which made b's view: a
    must not count it, or its electors of the view without f would not be b's."""
    table = Table("abcf")
    everybody_break(table, "a", "b", "c", faulty="f")
    table.hand("a:1 c:1", "b")
    assert table.views("b") == ["abc"]
    table.break_with("b", "c")
    table.hand("b:1 b:2", "a")
    assert table.views("a") == []
    table.hand("c:1", "a")
    first = table.installed("a")[0]
    assert list(ids(first.electors)) == ["a:1", "b:1", "c:1"]
    assert (first.electors, first.view) == (table.installed("b")[0].electors, table.installed("b")[0].view)
    table.settle("ab")
    agreed(table, "ab")


def test_lemma_4_1_a_faulty_machines_vote_counts_for_all_or_for_none() -> None:
    """s votes against f and dies. b has that vote, so a recovers it though it has given up s; the next one reaches
    both too late, and neither lets it in."""
    table = Table("abfsz")
    table.break_with("s", "f")
    table.hand("s:1", "b")
    table.break_with("a", "s")
    table.hand("b:1", "a")
    assert names(table["a"].suspects) == "s"  # b's vote follows s's, which is not here
    table.hand("s:1", "a")
    assert names(table["a"].suspects) == "fs"
    table.hand("a:1 a:2", "b")
    table.break_with("s", "z")
    table.hand("s:2", "a", "b")
    table.break_with("a", "z")
    table.settle("ab")
    assert [dict(elector.acks)[machine("s")] for elector in agreed(table, "ab").electors] == [1, 1]


def test_lemma_4_2_what_a_survivor_has_all_survivors_deliver_before_the_view() -> None:
    """b has more of f's messages than a. b's FA covers them, and enters a's graph when they are here."""
    table = Table("abf")
    table.say("f", heard_by="ab")
    table.say("f", heard_by="b")
    everybody_break(table, "a", "b", faulty="f")
    table.hand("a:1", "b")
    table.hand("b:1", "a")
    assert table.views("b") == ["ab"]
    assert table.views("a") == []
    table.hear("a", "f", 2)  # nobody but b has it, so it comes from b
    assert table.views("a") == []
    table.recover("a")
    assert agreed(table, "ab")
    assert table.installed("a")[0].covered == table.installed("b")[0].covered
    assert table.installed("a")[0].covered[machine("f")] == 2


@pytest.mark.parametrize("is_in_time", [True, False])
def test_lemma_4_2_a_message_concurrent_with_the_fault_is_delivered_by_all_or_by_none(is_in_time: bool) -> None:
    """c's last message is late. If it reaches b before b's FA, a delivers it as well; if it reaches a and b after
    their FAs, both discard it, though they have it in hand before the view."""
    cluster = settled("abc")
    cluster.drop(lambda source, target, frame: source == "c" or is_ending(frame))
    cluster.multicast("c", b"late", Service.CAUSAL)
    cluster.run(1.0)
    (late,) = [sent.datagram for sent in cluster.sent for frame in sent.datagram.frames if packet_in(frame)]
    cluster.crash("c")
    if is_in_time:
        cluster.inject("b", late)
    cluster.run_until(lambda: cluster["a"].is_changing() and cluster["b"].is_changing())
    if not is_in_time:
        for name in "ab":
            cluster.inject(name, late)
    cluster.heal()
    cluster.run_until_views("ab")
    assert cluster.history("a") == cluster.history("b") == ["abc", *([b"late"] if is_in_time else []), "ab"]


def test_theorem_4_3_whichever_way_members_came_they_agree_on_what_to_expect() -> None:
    """a is in the view without e when d breaks; b and c go straight to the view without both. What a said in the
    view that the others never had is behind it for all of them."""
    table = Table("abcde")
    everybody_break(table, "a", "b", "c", "d", faulty="e")
    table.hand("b:1 c:1 d:1", "a")
    assert table.views("a") == ["abcd"]
    for _ in range(3):
        table.say("a")
    everybody_break(table, "a", "b", "c", faulty="d")
    table.settle("abc")
    assert [table.views(name) for name in "abc"] == [["abcd", "abc"], ["abc"], ["abc"]]
    assert agreed(table, "abc").expected == {machine("a"): 3, machine("b"): 0, machine("c"): 0}
    assert [names(table[name].view.transitional) for name in "abc"] == ["a", "bc", "bc"]


@pytest.mark.parametrize("seed", range(3))
def test_theorem_4_3_consent_outlasts_any_number_of_faults(seed: int) -> None:
    """One machine after the other dies while all of them talk: by induction, those left always agree."""
    cluster = Cluster("abcdef", seed=seed)
    cluster.run_until_views("abcdef")
    began = {name: len(cluster.history(name)) for name in "abcdef"}
    left = "abcdef"
    while len(left) > 1:
        for number in range(30):
            cluster.multicast(left[number % len(left)], f"{left}{number}".encode(), Service.AGREED)
            cluster.run(0.3)
        dead = left[cluster.random.randrange(len(left))]
        cluster.crash(dead)
        left = left.replace(dead, "")
        cluster.run_until_views(left)
        histories = [cluster.history(name)[began[name] :] for name in left]
        assert histories == [histories[0]] * len(left)


# Section 5.2: which join is agreed on


def test_lemma_5_3_a_commitment_that_somebody_expands_is_never_assented_to() -> None:
    """b has committed to ab; a, who must agree, commits to abc. b may safely shift: nobody will ever have ab."""
    table = Table("a", "b", "c")
    for name in "abc":
        table.attempt(name)
    table.hand("a:1", "b")
    table.alpha("b")
    table.hand("b:1 c:1", "a")
    table.alpha("a")
    assert [table.last(name).body for name in "ab"] == [join("a", "b", "c"), join("a", "b")]
    table.hand("a:2", "b")
    table.hand("c:1", "b")
    assert table.last("b").body == join("a", "b", "c")
    table.hand("b:2 b:3", "a")
    table.hand("a:1 b:1 a:2 b:2 b:3", "c")
    table.alpha("c")
    table.hand("c:2", "a", "b")
    agreed(table, "abc")
    assert [table.views(name) for name in "abc"] == [["abc"]] * 3


@pytest.mark.parametrize("heard_by", ["", "b"])
def test_lemma_5_3_what_a_faulty_machine_suggests_is_followed_by_all_or_by_none(heard_by: str) -> None:
    """a and b have committed to abx. x suggests to join y as well, and dies. Whoever has not given up x by then
    shifts, and takes the others along; whoever has does not even let the suggestion in."""
    table = Table("a", "b", "x", "y")
    for name in "abxy":
        table.attempt(name)
    for name in "abx":
        table.hand(f"{name}:1", *"abx".replace(name, ""))
    table.alpha("a", "b")
    table.hand("y:1", "x")
    table.alpha("x")
    assert table.last("x").body == join("a", "b", "x", "y")
    table.hand("x:2 y:1", *heard_by)
    everybody_break(table, "a", "b", faulty="x")
    table.hand("x:2", "a", "b")
    assert dict(table["a"].dag.acks())[machine("x")] == 1
    table.settle("aby" if heard_by else "ab")
    agreed(table, "aby" if heard_by else "ab")
    assert [len(table.views(name)) for name in "ab"] == [1, 1]


def test_lemma_5_4_a_fault_of_another_commitment_makes_a_new_commitment() -> None:
    """b has committed to abc when it gives up c; a meanwhile has committed to abcd. b will never agree to that
    without c being faulty: a commits anew, with c's fault before the join."""
    table = Table("a", "b", "c", "d")
    for name in "abcd":
        table.attempt(name)
    table.hand("a:1 c:1", "b")
    table.alpha("b")
    table.hand("b:1 c:1 d:1", "a")
    table.alpha("a")
    table.break_with("b", "c")
    assert table.last("b").body == fault("c")
    table.hand("b:2 b:3", "a")
    assert table.last("a").body == join("a", "b", "c", "d", faults="c")
    table.hand("a:1 b:1 c:1", "d")
    table.settle("abd")
    agreed(table, "abd")
    commitments = [sent.body for sent in table.sent("b") if isinstance(sent.body, Join)]
    assert not any(len(body.machines) == 4 and not body.faults for body in commitments)


def test_lemma_5_4_a_fault_of_the_same_commitment_keeps_it() -> None:
    """When both have committed to abc, c's fault comes after the join: nobody commits again."""
    table = commit_all("a", "b", "c")
    table.break_with("b", "c")
    table.hand("b:2 b:3", "a")
    assert table.last("a").body == fault("c")
    table.settle("ab")
    agreed(table, "ab")
    assert sum(isinstance(sent.body, Join) for name in "ab" for sent in table.sent(name)) == 2


def test_lemma_5_4_a_fault_of_one_who_has_the_view_already_is_of_the_same_commitment() -> None:
    """b has the view abc; a, who lacks c's JOIN, gives up c, and b concurs. a must not take b's FA for one that
    cancels the join: both go to ab, and b does not have to join again."""
    table = commit_all("a", "b", "c")
    table.hand("a:2 c:2", "b")
    assert table.views("b") == ["abc"]
    table.break_with("a", "c")
    table.hand("a:3", "b")
    table.hand("b:2 b:3", "a")
    table.hand("c:2", "a")
    agreed(table, "ab")
    assert (table.views("a"), table.views("b")) == (["ab"], ["abc", "ab"])


def test_theorem_5_5_who_has_committed_cannot_be_led_elsewhere() -> None:
    """a has assented to abc, with b's commitment. b lacks c's, and is tempted: by a foreign machine that
    would join, by that machine's commitment, by c's silence. Whatever it assents to, it is that join."""
    table = Table("a", "b", "c", "d")
    for name in "abcd":
        table.attempt(name)
    for name in "abc":
        table.hand(f"{name}:1", *"abc".replace(name, ""))
        table.hand(f"{name}:1", "d")
    table.alpha(*"abcd")
    table.hand("b:2 c:2", "a")
    assert table.views("a") == ["abc"]
    table.hand("d:1 d:2 d:2", "b")
    assert machine("d") not in table["b"].dag.streams
    table.break_with("b", "c")
    table.hand("d:2", "b")
    assert table["b"].last_join[machine("b")] == (frozenset(map(view_id, "abc")), frozenset())
    assert table.last("b").body == fault("c")
    table.settle("ab")
    agreed(table, "ab")


def test_theorem_5_5_a_vote_for_one_join_does_not_count_for_a_later_one_of_the_same_machines() -> None:
    """a has counted b's JOIN, given b up, and hears the JOIN again, which b still stands by. But a comes from
    another view now: b has not agreed to join that one."""
    table = commit_all("a", "b")
    table.hand("b:2", "a")
    table.break_with("a", "b")
    assert table.views("a") == ["ab", "a"]
    table.hand("b:1 b:2", "a")
    table.alpha("a")
    assert table.views("a") == ["ab", "a"]


def test_theorem_5_5_in_whole_groups_a_vote_makes_one_view() -> None:
    """a's JOIN does not reach b, who therefore repeats its own. a has counted that, and given b up in between."""
    cluster = Cluster("ab")
    cluster.drop(lambda source, target, frame: source == "a" and is_ending(frame))
    cluster.run_until(lambda: names(cluster["a"].view.members) == "ab")
    cluster.drop(lambda source, target, frame: source == "b" or is_ending(frame))
    cluster.run_until(lambda: names(cluster["a"].view.members) == "a")
    cluster.drop(lambda source, target, frame: source == "a" and is_ending(frame))
    cluster.run(2_000.0)
    votes = " ".join(str(entry.details["electors"]) for entry in cluster.journal("a", MembershipEvent.VIEW))
    assert votes.count("'b.1:2'") == 1


@pytest.mark.parametrize("shape", SHAPES, ids="-".join)
def test_theorem_5_5_every_vote_makes_one_view_at_most(shape: tuple[str, ...]) -> None:
    """Whatever happens: no FA or JOIN is an elector of two views, so nobody assents to something else than those
    who have counted on it. (The adversary compares all views of all machines.)"""
    views = 0
    for seed in range(80):
        adversary = Adversary(seed, *shape)
        adversary.play(150)
        adversary.come_to_rest()
        views += adversary.happened["views"]
    assert views > 100


# Section 5.3: virtual synchrony


def test_lemma_5_6_a_member_that_had_given_up_waiting_is_taken_along_by_a_join() -> None:
    """b has seen a's AJ, and its α ended in silence. When a's JOIN comes, b enters Stage 1 again: its JOIN is
    needed."""
    table = Table("ab", "c")
    table.attempt("a")
    table.hand("a:1", "b")
    table.alpha("b")
    assert table["b"].stage is Stage.IDLE
    table.attempt("c")
    table.hand("c:1", "a")
    table.alpha("a")
    table.hand("a:2 c:1", "b")
    assert table.entered("b")[-1] == (Stage.GATHERING, Cause.JOIN_RECEIVED)
    table.settle("abc")
    agreed(table, "abc")


def test_lemma_5_6_whoever_tells_of_a_set_does_not_hide_its_joins() -> None:
    """c learns of ab from b, who entered Stage 1 when it had a's JOIN. c needs that JOIN too: the cut-vector of b
    must be before it."""
    table = Table("ab", "c")
    table.attempt("a")
    table.hand("a:1", "b")
    table.alpha("b")
    table.attempt("c")
    table.hand("c:1", "a")
    table.alpha("a")
    table.hand("a:2 c:1", "b")
    table.alpha("b")
    table.hand("b:1 a:2", "c")
    table.settle("abc")
    agreed(table, "abc")


def test_lemma_5_6_every_join_follows_the_cut_vectors_and_nothing_before_them_is_needed() -> None:
    """a and b have talked before, which c has not heard and nobody repeats. Their cut-vectors say so."""
    table = Table("ab", "c")
    for _ in range(3):
        for name, other in ("ab", "ba"):
            table.attempt(name)
            table.hand(f"{name}:{table[name].dag.own_sequence}", other)
            table.alpha("a", "b")
    table.attempt("c")
    table.attempt("a")
    table.hand("a:4", "b", "c")
    table.hand("c:1", "a", "b")
    table.alpha("a", "b", "c")
    table.hand("a:5 b:4", "c")
    assert table.views("c") == ["abc"]
    joins = [sent.body for sent in table.controls.values() if isinstance(sent.body, Join)]
    announced = [joined for body in joins for joined in body.sets]
    for elector in table.installed("c")[0].electors:
        assert all(elector.sequence > dict(joined.cut_vector).get(elector.sender, 0) for joined in announced)


def test_lemma_5_7_a_join_that_one_survivor_has_all_survivors_have() -> None:
    """c's JOIN has reached b alone when c dies. a, who has given up c, recovers it before it goes on with b."""
    table = commit_all("a", "b", "c")
    table.hand("c:2", "b")
    everybody_break(table, "a", "b", faulty="c")
    table.hand("a:2 a:3", "b")
    table.hand("b:2 b:3", "a")
    assert (table.views("a"), table.views("b")) == ([], ["ab"])
    table.repeat("b", "a")  # b has gone on, but keeps what others may lack
    assert [dict(elector.acks)[machine("c")] for elector in agreed(table, "ab").electors] == [1, 2]
    assert table["a"].view.transitional == machines("a")


def test_lemma_5_7_a_join_that_no_survivor_had_in_time_nobody_has() -> None:
    """c's JOIN reaches a and b after each has acknowledged c's fault: it stays out, though it would complete
    abc."""
    table = commit_all("a", "b", "c")
    everybody_break(table, "a", "b", faulty="c")
    table.hand("c:2", "a", "b")
    table.hand("b:2 c:2", "a")
    table.hand("a:2 c:2", "b")
    assert table.views("a") == table.views("b") == []
    assert dict(table["a"].dag.acks())[machine("c")] == 1
    table.hand("b:3", "a")
    table.hand("a:3", "b")
    assert [dict(elector.acks)[machine("c")] for elector in agreed(table, "ab").electors] == [1, 1]


def test_theorem_5_8_who_merges_agrees_on_the_view_and_on_what_to_expect() -> None:
    """Three components with histories of their own merge, each machine learning of the JOINs in another order, and
    of the last messages of its old view after its own JOIN."""
    table = Table("ab", "c", "de")
    for name in "abcde":
        table.attempt(name)
    for name in "abcde":
        table.hand(f"{name}:1", *"abcde".replace(name, ""))
    for sender, heard_by, count in (("b", "a", 2), ("c", "", 4), ("e", "", 3)):
        for _ in range(count):
            table.say(sender, heard_by)
    table.alpha("d")  # it has not heard e's messages when it commits
    table.alpha("a", "b", "c", "e")
    for name, order in (("a", "edcb"), ("b", "aced"), ("c", "dbae"), ("d", "aebc"), ("e", "badc")):
        table.hand(" ".join(f"{sender}:2" for sender in order), name)
        table.recover(name)
    assert list(agreed(table, "abcde").expected.values()) == [0, 2, 4, 0, 3]
    assert [names(table[name].view.transitional) for name in "abcde"] == ["ab", "ab", "c", "de", "de"]
    assert table.installed("d")[0].covered == table.installed("e")[0].covered == {machine("d"): 0, machine("e"): 3}


def test_theorem_5_8_a_join_that_was_withdrawn_is_not_expected_to_be_followed() -> None:
    """c follows a's first JOIN, which a has withdrawn in a message that is lost; a has c's JOIN when it has
    committed anew. If both took that for agreement, c would expect messages that a has sent alone."""
    table = Table("a", "c")
    table.attempt("c")
    table.hand("c:1", "a")
    table.alpha("c", "a")  # nobody has answered c
    table.hand("a:1 a:2", "c")
    table.break_with("a", "c")
    table.say("a")
    table.hand("c:2", "a")
    table.hand("a:4", "c")
    table.alpha("a", "c")
    table.hand("c:3", "a")
    assert (table.views("a"), table.views("c")) == (["a"], ["ac"])
    table.hand("a:3", "c")
    assert table.views("c") == ["ac", "c"]


@pytest.mark.parametrize("shape", SHAPES, ids="-".join)
def test_theorem_5_9_members_that_stay_together_deliver_the_same_messages_between_the_same_views(
    shape: tuple[str, ...],
) -> None:
    """Whatever happens: machines that install the same view agree on its members, electors and Expected; if they
    come from the same view, on the messages in it; and its transitional set are exactly those who do."""
    compared = 0
    for seed in range(80, 160):
        adversary = Adversary(seed, *shape)
        adversary.play(150)
        adversary.come_to_rest()
        compared += adversary.happened["compared"]
    assert compared > 50


def test_theorem_5_9_in_merges_and_cuts_members_of_two_views_deliver_the_same_between_them() -> None:
    """The same with whole groups, messages of every service and loss."""
    cluster = Cluster("abcde", seed=9)
    loss = cluster.random
    cluster.drop(lambda source, target, frame: loss.random() < 0.1)
    for components in ("abcde", "ab|cde", "abcde", "abd|ce", "abcde"):
        cluster.partition(components)
        for number in range(150):
            service = (Service.CAUSAL, Service.AGREED, Service.SAFE)[number % 3]
            cluster.multicast("abcde"[number % 5], b"%d" % number, service)
            cluster.run(8.0)
    shared = 0
    for one, other in (("a", "b"), ("c", "e"), ("a", "d")):
        ours, theirs = periods(cluster, one), periods(cluster, other)
        for period in ours.keys() & theirs.keys():
            assert ours[period] == theirs[period]
            shared += len(ours[period])
    assert shared > 300


def periods(cluster: Cluster, name: str) -> dict[tuple[object, object], set[tuple[object, bytes]]]:
    """Returns the messages that a machine delivered between each two consecutive views of its."""
    delivered: dict[object, set[tuple[object, bytes]]] = {}
    for effect in cluster.effects(Delivered, name):
        for message in effect.messages:
            delivered.setdefault(message.view, set()).add((message.sender, message.payload))
    views = [view.id for view in cluster.views[name]]
    return {(old, new): delivered.get(old, set()) for old, new in pairwise(views)}


# Section 5.4: liveness


@pytest.mark.parametrize("shape", SHAPES, ids="-".join)
def test_theorem_5_11_whoever_starts_the_protocol_completes_it(shape: tuple[str, ...]) -> None:
    """From whatever state a schedule has left: when messages arrive, and those who do not answer are extracted,
    every machine is idle again. Each extraction adds a fault, so there are no more of them than machines."""
    started = 0
    for seed in range(100):
        adversary = Adversary(seed, *shape)
        adversary.play(60)
        started += any(adversary[name].stage is not Stage.IDLE for name in adversary.alive)
        assert adversary.come_to_rest() <= len("".join(shape))
    assert started > 10


def test_lemma_5_10_nobody_waits_for_what_was_said_before_it_could_be_heard() -> None:
    """c commits to abc when b has committed to ab, and c is not in b's J. When a takes b along, c's JOIN counts: c
    has no reason to send it again, and b must not wait until c is extracted."""
    table = Table("a", "b", "c")
    for name in "abc":
        table.attempt(name)
    table.hand("a:1", "b")
    table.hand("a:1 b:1", "c")
    table.alpha("b", "c")
    table.hand("b:1 c:1 c:2", "a")
    table.alpha("a")
    table.settle("abc")
    agreed(table, "abc")


def test_theorem_5_11_a_fault_is_said_once_by_each_and_not_for_ever() -> None:
    """Fig. 7 answers every FA with a FA; then a and b would never be done. We answer only what is new to us."""
    table = commit_all("a", "b", "c", "d")
    everybody_break(table, "a", "b", "c", faulty="d")
    table.settle("abc")
    agreed(table, "abc")
    assert [len(table.sent(name)) for name in "abc"] == [3, 3, 3]
    everybody_break(table, "a", "b", faulty="c")
    table.settle("ab")
    agreed(table, "ab")
    assert [len(table.sent(name)) for name in "ab"] == [4, 4]
