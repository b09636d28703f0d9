"""The claims of "Efficient Message Ordering in Dynamic Networks" (Keidar and Dolev), section by section.

Stories are told by bare logs over an ideal group communication. A picture of a log is its green | yellow | red
messages. Where the code differs from the paper (`corel/corel.py` and `corel/recovery.py` list it), the claim is
what the paper promises, not how: acknowledgements are marks, and a message is logged, and yellow, when it is
received."""

from __future__ import annotations

from itertools import pairwise

import pytest

from corel import codec
from corel.corel import Stage
from corel.effects import Event, Multicast
from corel.messages import Attempt, Commit, Copy, Priority, Reds, Regular, State
from corel.quorum import Roster
from tests.corel.harness import Act, Do, LogCluster


def primary(component: str, everybody: str = "") -> LogCluster:
    """These have established a primary component; each of the others is alone."""
    cluster = LogCluster(everybody or component)
    cluster.settle(component, *[name for name in everybody if name not in component])
    assert cluster.stages(component) == {Stage.PRIMARY}
    return cluster


def say(cluster: LogCluster, name: str, bodies: str) -> None:
    cluster.submit(name, bodies)
    cluster.run()


def half_green() -> LogCluster:
    """In a primary component of abc, m is green at a, and yellow at b and c, who have not heard of each other's
    disks; d and e have a red message of their own."""
    cluster = LogCluster("abcde")
    cluster.settle("abc", "de")
    say(cluster, "d", "d1")
    cluster.hold |= {Act("b", Do.HEAR), Act("c", Do.HEAR)}
    say(cluster, "c", "m")
    cluster.hold.clear()
    assert [cluster.picture(name) for name in "abcd"] == ["m||", "|m|", "|m|", "||d1"]
    return cluster


def copies(cluster: LogCluster, name: str, kind: type[Priority] | type[Reds]) -> list[Copy]:
    return [copy for letter in cluster.letters(kind, name) for copy in letter.copies]


def retransmitted(cluster: LogCluster, name: str, kind: type[Priority] | type[Reds]) -> list[str]:
    return [cluster.bodies[copy.id] for copy in copies(cluster, name, kind)]


# 3.1 Reliable multicast


def test_3_1_every_message_that_is_received_is_logged_in_a_majority_or_not() -> None:
    cluster = LogCluster("abcde")
    cluster.settle("abc", "de")
    say(cluster, "a", "x")
    say(cluster, "d", "y")
    logged = {name: [record.body for record in cluster.disk(name).log.messages] for name in "abcde"}
    assert logged == {"a": [b"x"], "b": [b"x"], "c": [b"x"], "d": [b"y"], "e": [b"y"]}


def test_3_1_a_message_is_acknowledged_after_it_is_written_not_when_it_is_received() -> None:
    cluster = primary("abc")
    cluster.disk("b").hold()
    say(cluster, "a", "x")
    (entry,) = cluster["a"].queue.yellow
    assert [member.name for member in cluster["a"].acknowledged(entry)] == ["a", "c"]
    cluster.disk("b").complete()
    cluster.run_until(lambda: cluster["a"].queue.green)


def test_3_1_the_recovery_procedure_is_invoked_when_components_merge() -> None:
    cluster = half_green()
    cluster.views("abcde")
    assert cluster.stages() == {Stage.RECOVERING}
    cluster.run()
    assert len(cluster.letters(State, "a")) == 5
    assert cluster.pictures() == {"m d1||"}


def test_3_1_messages_are_kept_as_long_as_somebody_may_need_them() -> None:
    """a's messages were green at everybody but e for long, and all but the last were so over many changes."""
    cluster = primary("abcd", "abcde")
    for number in range(3):
        say(cluster, "a", f"x{number}")
        cluster.settle("abcd")
    cluster.settle("abcde")
    assert cluster.picture("e") == "x0 x1 x2||"
    assert [cluster.disk("e").log.body(number) for number in range(3)] == [b"x0", b"x1", b"x2"]


# 3.2 Message ordering


def test_3_2_a_message_is_written_together_with_its_timestamp() -> None:
    cluster = primary("abc")
    cluster.advance_clock("b", 7)
    say(cluster, "b", "x")
    (message,) = [message for message in cluster.nodes["a"].component.sent if message.payload.endswith(b"x")]
    records = [cluster.disk(name).log.messages[0] for name in "abc"]
    assert {(record.clock, record.view) for record in records} == {(message.clock, message.view)}


def test_3_2_within_a_majority_component_messages_are_ordered_by_timestamp() -> None:
    """b has not heard of a's message when it sends its own, with a lower timestamp."""
    cluster = primary("abc")
    cluster.advance_clock("a", 10)
    cluster.hold.add(Act("b", Do.RECEIVE))
    cluster.submit("a", "second")
    cluster.run()
    cluster.submit("b", "first")
    cluster.hold.clear()
    cluster.run()
    assert cluster.pictures() == {"first second||"}


def test_3_2_the_majoritys_messages_come_before_concurrent_ones_of_a_minority_whatever_their_timestamps() -> None:
    cluster = LogCluster("abc")
    cluster.settle("ab", "c")
    say(cluster, "c", "minority")
    cluster.advance_clock("a", 100)
    say(cluster, "a", "majority")
    cluster.settle("abc")
    assert cluster.pictures() == {"majority minority||"}
    clocks = [record.clock for record in cluster.disk("a").log.messages]
    assert clocks[0] > clocks[1]


def test_3_2_the_order_preserves_causality() -> None:
    """c answers in the minority to what it heard in the majority, and b to what it hears of that."""
    cluster = primary("abc")
    say(cluster, "a", "question")
    cluster.settle("ab", "c")
    say(cluster, "c", "answer")
    cluster.settle("a", "bc")
    say(cluster, "b", "thanks")
    cluster.settle("abc")
    assert cluster.pictures() == {"question answer thanks||"}


def test_3_2_the_timestamp_of_a_retransmission_is_ignored() -> None:
    cluster = LogCluster("abc")
    say(cluster, "c", "x")
    original = cluster["c"].queue.red[0].timestamp
    cluster.advance_clock("c", 100)
    cluster.views("abc")
    cluster.run_until(lambda: len(cluster["a"].queue))
    (entry,) = cluster["a"].queue
    assert entry.timestamp == original


def test_3_2_the_primary_component_bit_is_set_in_a_primary_component_and_nowhere_else() -> None:
    cluster = primary("abc", "abcde")
    assert cluster.stages("de") == {Stage.NON_PRIMARY}
    cluster.views("ab", "cde")
    assert Stage.PRIMARY not in cluster.stages()
    cluster.run()
    assert cluster.stages("cde") == {Stage.PRIMARY}
    assert cluster.stages("ab") == {Stage.NON_PRIMARY}


@pytest.mark.parametrize("last", "abcde")
def test_3_2_order_rule_1_takes_the_acknowledgements_of_all_members(last: str) -> None:
    cluster = primary("abcde")
    cluster.disk(last).hold()
    say(cluster, "a", "x")
    assert cluster.pictures() == {"|x|"}
    cluster.disk(last).complete()
    cluster.disk(last).release()
    cluster.run()
    assert cluster.pictures() == {"x||"}


def test_3_2_who_orders_a_message_knows_that_all_others_have_it_on_disk_and_yellow() -> None:
    cluster = primary("abc")
    cluster.submit("b", "x")
    while cluster.step():
        if any("g" in cluster.colors(name) for name in "abc"):
            assert {cluster.on_disk(name) for name in "abc"} <= {"x||", "|x|"}
    assert cluster.pictures() == {"x||"}


def test_3_2_a_message_is_ordered_within_two_communication_rounds() -> None:
    """One brings the message, one says that it is logged; nothing else is sent."""
    cluster = primary("abc")
    cluster.submit("a", "x")
    sent = len(cluster.nodes["a"].component.sent)
    cluster.each(Do.SEND, "a")
    cluster.each(Do.RECEIVE, "bc")
    cluster.each(Do.SYNC, "abc")
    cluster.each(Do.HEAR, "abc", count=2)
    cluster.each(Do.DELIVER, "abc")
    assert cluster.pictures() == {"x||"}
    assert len(cluster.nodes["a"].component.sent) == sent + 1


# 3.2.1 The colors model


def test_3_2_1_the_queue_is_a_green_prefix_a_yellow_zone_and_a_red_suffix() -> None:
    cluster = primary("abc", "abcde")
    say(cluster, "a", "green")
    cluster.hold |= {Act("b", Do.HEAR), Act("c", Do.HEAR)}
    say(cluster, "a", "yellow")
    cluster.hold.clear()
    cluster.settle("a", "bc")
    say(cluster, "b", "red")
    assert cluster.pictures("bc") == {"green|yellow|red"}
    assert cluster.colors("b") == "gyr"


def test_3_2_1_messages_are_identified_by_sender_and_counter() -> None:
    cluster = primary("abc")
    ids = [*cluster.submit("a", "x y"), *cluster.submit("b", "z")]
    assert [str(message_id) for message_id in ids] == ["a.1.1", "a.1.2", "b.1.1"]


def test_3_2_1_new_messages_go_to_the_end_of_the_queue() -> None:
    cluster = primary("abc", "abcde")
    for number in range(4):
        say(cluster, "de"[number % 2], f"x{number}")
        cluster.settle("de")
    assert cluster.pictures("de") == {"||x0 x1 x2 x3"}


def test_3_2_1_retransmitted_messages_interleave_with_local_ones_but_never_precede_green_ones() -> None:
    cluster = primary("abc", "abcde")
    say(cluster, "d", "d1 d2")
    cluster.advance_clock("e", cluster.nodes["d"].clock - cluster.nodes["e"].clock)
    say(cluster, "e", "e1")
    cluster.advance_clock("d", 1)
    say(cluster, "d", "d3")
    cluster.advance_clock("a", 100)
    say(cluster, "a", "green")
    cluster.settle("de")
    assert cluster.pictures("de") == {"||d1 d2 e1 d3"}
    cluster.settle("abcde")
    assert cluster.pictures() == {"green d1 d2 e1 d3||"}


def test_3_2_1_a_message_is_green_when_all_are_known_to_have_it_yellow() -> None:
    """c hears of a's disk and not of b's, and so does not know."""
    cluster = primary("abc")
    cluster.hold.add(Act("c", Do.HEAR))
    say(cluster, "a", "x")
    assert [cluster.picture(name) for name in "abc"] == ["x||", "x||", "|x|"]
    cluster.each(Do.HEAR, "c")
    assert cluster.picture("c") == "|x|"
    cluster.each(Do.HEAR, "c")
    assert cluster.picture("c") == "x||"


def test_3_2_1_a_message_received_in_a_primary_component_is_yellow_and_elsewhere_red() -> None:
    cluster = primary("abc", "abcde")
    cluster.hold |= {Act(name, Do.HEAR) for name in "abc"}
    say(cluster, "a", "x")
    say(cluster, "d", "y")
    assert (cluster.colors("a"), cluster.colors("d")) == ("y", "r")


def test_3_2_1_somebody_in_the_next_primary_component_has_every_green_message_yellow_or_green() -> None:
    """m is green at a alone; a and b are gone. c is in the next primary component, and enforces it."""
    cluster = half_green()
    cluster.settle("ab", "cde")
    assert cluster.pictures("cde") == {"m d1||"}
    cluster.settle("abcde")
    assert cluster.pictures() == {"m d1||"}


def test_3_2_1_members_of_the_last_primary_enforce_green_and_yellow_before_concurrent_red() -> None:
    """Though d's message has the lower timestamp."""
    cluster = LogCluster("abcde")
    cluster.settle("abc", "de")
    say(cluster, "d", "red")
    cluster.advance_clock("a", 100)
    cluster.hold |= {Act(name, Do.HEAR) for name in "abc"}
    say(cluster, "a", "yellow")
    cluster.hold.clear()
    cluster.settle("a", "b", "cde")
    assert cluster.pictures("cde") == {"yellow red||"}


def test_3_2_1_concurrent_red_messages_are_interleaved_by_timestamp() -> None:
    cluster = LogCluster("abcde")
    for clock, name in enumerate("edcba"):
        cluster.advance_clock(name, 10 * clock)
        say(cluster, name, f"{name}1 {name}2")
    cluster.settle("abcde")
    assert cluster.pictures() == {"e1 e2 d1 d2 c1 c2 b1 b2 a1 a2||"}


# 3.4 Invariants: checkers look at them at every step of every story here; these show what they mean


def test_3_4_causal_what_its_sender_had_is_before_a_message_in_every_queue() -> None:
    """d has x of e's in its queue when it sends y. Whoever has y has x, at every step."""
    cluster = LogCluster("abcde")
    cluster.settle("abc", "de")
    say(cluster, "e", "x")
    say(cluster, "d", "y")
    cluster.views("abcd")
    while cluster.step():
        for name in "abcd":
            assert cluster.picture(name).strip("|") in ("", "x", "x y")
    assert cluster.pictures("abcd") == {"x y||"}


def test_3_4_no_changes_in_green_but_at_its_end() -> None:
    cluster = half_green()
    seen = {name: [""] for name in "abcde"}
    for components in (("abcde",), ("ab", "cde"), ("a", "b", "cde"), ("abcde",)):
        cluster.views(*components)
        cluster.submit("c", "c" + "-".join(components))
        while cluster.step():
            for name in "abcde":
                seen[name].append(cluster.picture(name).split("|")[0])
    assert all(later.startswith(earlier) for greens in seen.values() for earlier, later in pairwise(greens))


def test_3_4_agreed_green_one_of_two_green_prefixes_is_a_prefix_of_the_other() -> None:
    cluster = half_green()
    cluster.views("abcde")
    while cluster.step():
        greens = sorted((cluster.picture(name).split("|")[0] for name in "abcde"), key=len)
        assert all(longer.startswith(shorter) for shorter, longer in pairwise(greens))


def test_3_4_yellow_who_knows_of_a_primary_has_what_became_green_in_it_at_the_same_place() -> None:
    """e recovers with c: from then on it knows of the primary component of abc, though it never was in it."""
    cluster = half_green()
    cluster.settle("ab", "ce", "d")
    assert cluster["e"].committed == cluster["c"].committed == 1
    assert cluster.picture("e") == "|m|d1"
    cluster.settle("ab", "c", "de")
    assert cluster.pictures("de") == {"|m|d1"}


# Figure 2: the handler


def test_figure_2_the_primary_component_bit_is_unset_and_regular_messages_stop() -> None:
    cluster = primary("abc")
    cluster.views("abc")
    cluster.submit("a", "x")
    assert Stage.PRIMARY not in cluster.stages()
    assert not any(cluster[name].is_open for name in "abc")
    cluster.run_until(lambda: cluster["a"].stage is Stage.PRIMARY)
    assert cluster.letters(Regular, "a") == []
    cluster.run()
    assert cluster.pictures() == {"x||"}


def test_figure_2_a_minority_continues_without_establishing() -> None:
    cluster = LogCluster("abcde")
    cluster.settle("abc", "de")
    assert cluster.letters(Attempt, "d") == []
    assert cluster["d"].is_open
    say(cluster, "e", "x")
    assert cluster.pictures("de") == {"||x"}


def test_figure_2_a_majority_establishes_and_then_continues() -> None:
    cluster = LogCluster("abcde")
    cluster.views("abc", "de")
    cluster.submit("b", "x")
    cluster.run()
    assert len(cluster.letters(Commit, "a")) == 3
    assert cluster.pictures("abc") == {"x||"}


def test_figure_2_what_was_not_sent_when_the_view_ended_is_sent_in_the_next() -> None:
    cluster = primary("abc")
    cluster.hold.add(Act("a", Do.SEND))
    cluster.submit("a", "x y")
    cluster.views("abc")
    cluster.hold.clear()
    cluster.run()
    assert cluster.pictures() == {"x y||"}


# 3.5 Handling configuration changes


def test_3_5_new_messages_are_not_inserted_before_the_recovery_ends() -> None:
    """e is done with the recovery and sends new; d still waits for a retransmission that must come before."""
    cluster = LogCluster("abcdefg")
    cluster.settle("a", "de")
    say(cluster, "a", "old")
    cluster.views("ade")
    cluster.hold.add(Act("d", Do.DELIVER))
    cluster.submit("e", "new")
    with pytest.raises(AssertionError, match="nothing moves"):
        cluster.run_until(lambda: len(cluster["d"].queue))
    assert (cluster.picture("e"), cluster.picture("d")) == ("||old new", "||")
    cluster.hold.clear()
    cluster.run()
    assert cluster.pictures("ade") == {"||old new"}


def test_3_5_the_new_green_line_is_the_highest_of_all() -> None:
    cluster = half_green()
    cluster.settle("ad", "bc", "e")
    assert cluster.pictures("ad") == {"m||d1"}
    assert cluster.pictures("bc") == {"|m|"}
    cluster.settle("ab")
    assert cluster.pictures("ab") == {"m||d1"}


def test_3_5_the_new_yellow_line_is_the_lowest_of_those_who_know_of_the_last_primary() -> None:
    """x reached b alone before the component fell apart, so nobody can have made it green."""
    cluster = half_green()
    cluster.deaf |= {("c", "a")}
    cluster.submit("a", "x")
    cluster.run()
    cluster.settle("a", "b", "c")
    assert [cluster.picture(name) for name in "bc"] == ["m|x|", "m||"]
    cluster.settle("bc")
    assert cluster.pictures("bc") == {"m||x"}


def test_3_5_yellow_messages_come_before_new_and_red_ones() -> None:
    cluster = half_green()
    cluster.views("b", "cde")
    cluster.submit("e", "new")
    cluster.run()
    assert cluster.pictures("cde") == {"m d1 new||"}


def test_3_5_committed_primaries_are_numbered_in_sequence() -> None:
    cluster = LogCluster("abc")
    for number, component in enumerate(("abc", "ab", "bc", "abc"), 1):
        cluster.settle(component)
        assert {cluster[name].committed for name in component} == {number}


# 3.5.1 Establishing a primary component (Figure 3)


def interrupted(until: type[Attempt] | type[Commit]) -> LogCluster:
    """b's letter is on its way, and nobody else's, when c leaves."""
    cluster = LogCluster("abc")
    say(cluster, "a", "x")
    cluster.views("abc")
    cluster.hold |= {Act(name, Do.SEND) for name in "abc"}
    while not (outgoing := cluster.outgoing("b")) or not isinstance(outgoing[0], until):
        if cluster.step() is None:
            for name in "abc":
                if cluster.outgoing(name):
                    cluster.perform(Act(name, Do.SEND))
    cluster.hold.clear()
    return cluster


def test_figure_3_the_number_is_one_more_than_the_highest_attempt_of_any_member() -> None:
    """a and b attempt in vain while c is away."""
    cluster = interrupted(Attempt)
    for _ in range(2):
        cluster.views("ab", "c")
        cluster.run_until(lambda: cluster["a"].stage is Stage.ESTABLISHING)
    attempted = cluster["a"].attempted
    assert attempted > cluster["c"].attempted
    cluster.settle("abc")
    assert {cluster[name].committed for name in "abc"} == {attempted + 1}


def test_figure_3_the_attempt_is_on_stable_storage_before_it_is_sent() -> None:
    cluster = LogCluster("abc")
    cluster.views("abc")
    while cluster.step():
        for name in "abc":
            if any(isinstance(letter, Attempt) for letter in cluster.outgoing(name)):
                assert cluster.disk(name).log.lines.attempted == 1


def test_figure_3_attempts_of_all_members_are_waited_for() -> None:
    cluster = LogCluster("abc")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["c"].plan)
    cluster.hold.add(Act("c", Do.SEND))
    cluster.run()
    assert len(cluster.letters(Attempt, "a")) == 2
    assert {cluster[name].committed for name in "abc"} == {0}
    cluster.hold.clear()
    cluster.run()
    assert {cluster[name].committed for name in "abc"} == {1}


def test_figure_3_the_commitment_and_the_yellow_marking_are_one_atomic_step() -> None:
    cluster = LogCluster("abc")
    say(cluster, "a", "x")
    cluster.views("abc")
    while cluster.step():
        log = cluster.disk("b").log
        is_red = cluster.on_disk("b") in ("||", "||x")
        assert is_red == (log.lines.committed == 0)
        if any(isinstance(letter, Commit) for letter in cluster.outgoing("b")):
            assert (log.lines.committed, cluster.on_disk("b")) == (1, "|x|")


def test_figure_3_commitments_of_all_members_establish_and_everything_is_green() -> None:
    cluster = LogCluster("abc")
    say(cluster, "a", "x")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["c"].committed)
    cluster.hold.add(Act("c", Do.SEND))
    cluster.run()
    assert len(cluster.letters(Commit, "a")) == 2
    assert cluster.stages() == {Stage.ESTABLISHING}
    assert cluster.pictures() == {"|x|"}
    cluster.hold.clear()
    cluster.run()
    assert cluster.stages() == {Stage.PRIMARY}
    assert cluster.pictures() == {"x||"}


@pytest.mark.parametrize("phase", [Attempt, Commit])
def test_figure_3_a_change_aborts_the_establishing_but_its_effects_stay(
    phase: type[Attempt] | type[Commit],
) -> None:
    """b knows that it has attempted, or committed, and is still bound by it in the next component."""
    cluster = interrupted(phase)
    cluster.settle("a", "b", "c")
    assert cluster.stages() == {Stage.NON_PRIMARY}
    assert cluster["b"].attempted == 1
    assert cluster["b"].committed == (phase is Commit)
    assert cluster.picture("b") == ("|x|" if phase is Commit else "||x")
    cluster.settle("abc")
    assert {cluster[name].committed for name in "abc"} == {2}


# 3.5.2 The recovery procedure


def test_3_5_2_step_1_the_state_message_says_what_is_there_and_which_colours_it_has() -> None:
    cluster = half_green()
    cluster.views("abcde")
    cluster.run()
    a, c, d = (
        next(letter for effect in cluster.effects[name][::-1] if (letter := state_in(effect))) for name in "acd"
    )
    assert (a.committed, a.attempted, a.green, a.tail, a.have) == (1, 1, 1, (), ())
    assert (c.green, [cluster.bodies[message_id] for message_id in c.tail]) == (0, ["m"])
    assert [(str(stream), last) for stream, last in c.have] == [("c.1", 1)]
    assert (d.committed, d.green, [(str(stream), last) for stream, last in d.have]) == (0, 0, [("d.1", 1)])


def state_in(effect: object) -> State | None:
    letter = codec.decode(effect.payload) if isinstance(effect, Multicast) else None
    return letter if isinstance(letter, State) else None


def test_3_5_2_step_2_nothing_happens_before_all_states_are_there() -> None:
    cluster = half_green()
    before = {name: cluster.picture(name) for name in "abcde"}
    cluster.views("abcde")
    cluster.hold.add(Act("e", Do.SEND))
    cluster.run()
    assert len(cluster.letters(State, "a")) == 4
    assert {name: cluster.picture(name) for name in "abcde"} == before
    assert {type(letter) for letter in cluster.letters(object, "a")} == {State}


def test_3_5_2_step_3_the_representatives_are_those_with_the_last_committed_primary() -> None:
    cluster = half_green()
    cluster.settle("abcde")
    plan = cluster["e"].plan
    assert plan is not None
    assert [member.name for member in plan.representatives] == ["a", "b", "c"]
    assert (plan.committed, plan.green, plan.yellow) == (1, 1, 1)


def test_3_5_2_step_3_representatives_retreat_to_what_all_of_them_have_yellow() -> None:
    cluster = primary("abc", "abcde")
    cluster.deaf.add(("c", "a"))
    cluster.submit("a", "x")
    cluster.run()
    cluster.settle("a", "b", "c")
    assert [cluster.picture(name) for name in "bc"] == ["|x|", "||"]
    cluster.settle("bc")
    assert cluster.pictures("bc") == {"||x"}
    assert len(cluster.journal("b", Event.DEMOTED)) == 1


def test_3_5_2_step_4_if_all_are_representatives_there_are_no_priority_messages() -> None:
    cluster = half_green()
    cluster.settle("bc")
    assert cluster.pictures("bc") == {"|m|"}
    cluster.settle("abc")
    assert cluster.letters(Priority, "a") == []
    assert cluster.pictures("abc") == {"m||"}


def test_3_5_2_step_4_one_representative_is_chosen_by_all_alike() -> None:
    cluster = half_green()
    cluster.settle("abcde")
    plans = [plan for name in "abcde" if (plan := cluster[name].plan)]
    assert [plan.representative.name for plan in plans] == ["a"] * 5
    senders = {message.sender.name for message in cluster.nodes["a"].component.sent if message.payload[1] == 4}
    assert senders == {"a"}


def test_3_5_2_step_5_what_is_green_for_all_is_not_retransmitted() -> None:
    cluster = primary("abcde")
    say(cluster, "a", "everybody's")
    cluster.settle("abc", "de")
    say(cluster, "a", "ours")
    cluster.settle("abcde")
    assert retransmitted(cluster, "a", Priority) == ["ours"]


def test_3_5_2_step_5_of_what_all_have_only_the_header_is_sent() -> None:
    """stable is red at d and e, green at a; fresh they do not have."""
    cluster = LogCluster("abcde")
    cluster.settle("ad", "bc", "e")
    say(cluster, "d", "stable")
    cluster.settle("de")
    cluster.settle("abc", "de")
    say(cluster, "b", "fresh")
    cluster.settle("abcde")
    bodies = {cluster.bodies[copy.id]: copy.body for copy in copies(cluster, "a", Priority)}
    assert bodies == {"stable": None, "fresh": b"fresh"}
    assert cluster.pictures() == {"stable fresh||"}


def test_3_5_2_step_5_priority_messages_go_ahead_of_others_after_the_green_prefix() -> None:
    cluster = primary("abcde")
    say(cluster, "a", "green")
    cluster.settle("abc", "de")
    say(cluster, "d", "local")
    cluster.advance_clock("a", 100)
    say(cluster, "a", "priority")
    cluster.settle("ad")
    assert cluster.picture("d") == "green priority||local"


def test_3_5_2_step_5_who_has_them_in_a_contradicting_order_adopts_the_representatives() -> None:
    """e has x and y red, by timestamp; the primary component had y before it heard of x."""
    cluster = LogCluster("abcde")
    cluster.settle("abc", "de")
    say(cluster, "d", "x")
    cluster.advance_clock("a", 100)
    say(cluster, "a", "y")
    cluster.settle("abcd")
    cluster.settle("ad", "e")
    assert cluster.pictures("ad") == {"y x||"}
    assert cluster.picture("e") == "||x"
    cluster.settle("ade")
    assert cluster.picture("e") == "y x||"


def behind() -> LogCluster:
    """a committed to primary component 2 with x yellow in it; the others went on to 3 without a and without x."""
    cluster = LogCluster("abc")
    cluster.settle("abc")
    cluster.deaf |= {("b", "a"), ("c", "a")}
    cluster.submit("a", "x")
    cluster.run()
    cluster.settle("a", "bc")
    say(cluster, "b", "y")
    assert [cluster.picture(name) for name in "abc"] == ["|x|", "y||", "y||"]
    return cluster


def test_3_5_2_step_6_yellow_messages_that_were_not_retransmitted_become_red_by_timestamp() -> None:
    cluster = behind()
    say(cluster, "a", "later")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["a"].committed == 2)
    assert cluster.picture("a") == "y||x later"


def test_3_5_2_step_6_number_lines_and_order_are_one_atomic_step() -> None:
    cluster = behind()
    cluster.views("abc")
    seen = []
    while cluster.step():
        seen.append((cluster.disk("a").log.lines.committed, cluster.on_disk("a")))
    assert sorted(set(seen), key=seen.index)[:2] == [(1, "|x|"), (2, "y||x")]


def test_3_5_2_step_6_the_lines_are_those_of_the_representative() -> None:
    """The yellow line is the last message that was retransmitted."""
    cluster = half_green()
    cluster.settle("ab", "ce", "d")
    assert cluster.picture("c") == cluster.picture("e") == "|m|d1"
    assert cluster["e"].queue.base_digest == cluster["c"].queue.base_digest


def test_3_5_2_step_7_only_what_not_all_have_is_retransmitted_and_by_one_of_them() -> None:
    cluster = LogCluster("abcde")
    cluster.settle("de")
    say(cluster, "d", "both")
    cluster.settle("d", "e")
    say(cluster, "e", "mine")
    cluster.settle("de")
    assert retransmitted(cluster, "d", Reds) == ["mine"]
    cluster.settle("abcde")
    assert sorted(retransmitted(cluster, "a", Reds)) == ["both", "mine"]


def test_3_5_2_step_7_everybody_takes_part_in_retransmitting() -> None:
    """Each message by whoever has it; together they are interleaved by their original timestamps."""
    cluster = LogCluster("abcde")
    for clock, name in enumerate("cab"):
        cluster.advance_clock(name, 10 * clock)
        say(cluster, name, name * 2)
    cluster.settle("abc")
    senders = {message.sender.name for message in cluster.nodes["a"].component.sent if message.payload[1] == 5}
    assert senders == {"a", "b", "c"}
    assert cluster.pictures("abc") == {"cc aa bb||"}


def test_3_5_2_a_change_restarts_the_procedure_and_nothing_is_undone() -> None:
    """d has adopted the primary component's order, and no more, when it is alone again."""
    cluster = half_green()
    cluster.views("abcde")
    cluster.run_until(lambda: cluster["d"].committed == 1)
    cluster.settle("abc", "d", "e")
    assert cluster.picture("d") == "m||d1"
    cluster.settle("abcde")
    assert cluster.pictures() == {"m d1||"}


def test_3_5_2_after_retransmission_a_majority_establishes_and_a_minority_does_not() -> None:
    cluster = LogCluster("abcde", roster=Roster.of("abcde"))
    say(cluster, "d", "x")
    cluster.settle("abc", "de")
    assert (cluster.stages("abc"), cluster.stages("de")) == ({Stage.PRIMARY}, {Stage.NON_PRIMARY})
    assert cluster.pictures("de") == {"||x"}


def test_3_5_2_if_there_are_only_faults_nothing_is_retransmitted() -> None:
    """From Property 2.2: all have received the same."""
    cluster = primary("abcde")
    cluster.hold |= {Act(name, Do.HEAR) for name in "abcde"}
    say(cluster, "a", "x y")
    cluster.hold.clear()
    cluster.settle("abc", "de")
    assert {type(letter) for letter in cluster.letters(object, "a")} == {State, Attempt, Commit}
    assert cluster.pictures("abc") == {"x y||"}


def test_figure_4_a_message_is_retransmitted_after_what_precedes_it() -> None:
    """e's y answers d's x. a hears of them from d and e, who retransmit one each, y being sent first."""
    cluster = LogCluster("abcdefg")
    cluster.settle("de")
    say(cluster, "d", "x")
    say(cluster, "e", "y")
    cluster.views("ade")
    cluster.hold |= {Act("d", Do.SEND), Act("e", Do.SEND)}
    for _ in range(100):
        if cluster.step() is None:
            for name in "ed":
                if cluster.outgoing(name):
                    cluster.perform(Act(name, Do.SEND))
        assert cluster.picture("a") in ("||", "||x", "||x y")
    assert cluster.pictures("ade") == {"||x y"}


# 4 Discussion


def test_4_a_message_is_ordered_though_its_initiator_never_was_in_a_majority() -> None:
    """d sends x in a minority with e, and is never heard of again. e carries it into a majority."""
    cluster = LogCluster("abcde")
    cluster.settle("abc", "de")
    say(cluster, "d", "x")
    cluster.crash("d")
    cluster.settle("abce")
    assert cluster.pictures("abce") == {"x||"}


def test_4_a_message_diffuses_through_minorities() -> None:
    """From a to c by way of b, none of whom is in a majority before c is."""
    cluster = LogCluster("abcdefg")
    say(cluster, "a", "x")
    cluster.settle("ab")
    cluster.settle("bc")
    assert cluster.picture("c") == "||x"
    cluster.settle("cdef")
    assert cluster.pictures("cdef") == {"x||"}
