"""The claims of "Efficient Message Ordering in Dynamic Networks" (Keidar and Dolev), sections 3.5.2 and 4: the
recovery procedure, and the discussion. `corel_clusters.py` explains the pictures."""

from __future__ import annotations

from corel import codec
from corel.effects import CorelEvent, Multicast
from corel.messages import Attempt, Commit, Copy, Priority, Reds, State
from corel.quorum import Roster
from corel.stages import Stage
from tests.corel.harness import Act, Do, LogCluster
from tests.paper.corel_clusters import half_green, primary, say


def copies(cluster: LogCluster, name: str, kind: type[Priority] | type[Reds]) -> list[Copy]:
    """Returns the copies that were retransmitted in the view of this node, in payloads of this kind."""
    return [copy for payload in cluster.payloads(kind, name) for copy in payload.copies]


def retransmitted(cluster: LogCluster, name: str, kind: type[Priority] | type[Reds]) -> list[str]:
    """Returns the bodies of the messages that were retransmitted in the view of this node."""
    return [cluster.bodies[copy.id] for copy in copies(cluster, name, kind)]


# 3.5.2 The recovery procedure


def test_3_5_2_step_1_the_state_message_says_what_is_there_and_which_colours_it_has() -> None:
    cluster = half_green()
    cluster.views("abcde")
    cluster.run()
    a, c, d = (
        next(payload for effect in cluster.effects[name][::-1] if (payload := state_in(effect))) for name in "acd"
    )
    assert (a.committed, a.attempted, a.green, a.tail, a.have) == (1, 1, 1, (), ())
    assert (c.green, [cluster.bodies[message_id] for message_id in c.tail]) == (0, ["m"])
    assert [(str(stream), last) for stream, last in c.have] == [("c.1", 1)]
    assert (d.committed, d.green, [(str(stream), last) for stream, last in d.have]) == (0, 0, [("d.1", 1)])


def state_in(effect: object) -> State | None:
    """Returns the state message that the effect sends, if it sends one."""
    payload = codec.decode(effect.payload) if isinstance(effect, Multicast) else None
    return payload if isinstance(payload, State) else None


def test_3_5_2_step_2_nothing_happens_before_all_states_are_there() -> None:
    cluster = half_green()
    before = {name: cluster.picture(name) for name in "abcde"}
    cluster.views("abcde")
    cluster.hold.add(Act("e", Do.SEND))
    cluster.run()
    assert len(cluster.payloads(State, "a")) == 4
    assert {name: cluster.picture(name) for name in "abcde"} == before
    assert {type(payload) for payload in cluster.payloads(object, "a")} == {State}


def test_3_5_2_step_3_the_representatives_are_those_with_the_last_committed_primary() -> None:
    cluster = half_green()
    cluster.settle("abcde")
    plan = cluster["e"]._recovery.plan
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
    assert len(cluster.journal("b", CorelEvent.DEMOTED)) == 1


def test_3_5_2_step_4_if_all_are_representatives_there_are_no_priority_messages() -> None:
    cluster = half_green()
    cluster.settle("bc")
    assert cluster.pictures("bc") == {"|m|"}
    cluster.settle("abc")
    assert cluster.payloads(Priority, "a") == []
    assert cluster.pictures("abc") == {"m||"}


def test_3_5_2_step_4_one_representative_is_chosen_by_all_alike() -> None:
    cluster = half_green()
    cluster.settle("abcde")
    plans = [plan for name in "abcde" if (plan := cluster[name]._recovery.plan)]
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
    """Returns a cluster in which a committed to primary component 1 with x yellow in it, and the others went on to
    2 without a and without x."""
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
    assert {type(payload) for payload in cluster.payloads(object, "a")} == {State, Attempt, Commit}
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
