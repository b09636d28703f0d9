"""The traps of the design, one by one. Each story goes wrong if the rule behind it is missing.

Trap 11, damaged records, concerns the log on disk: `test_lmdb_log.py`."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from corel.config import CorelConfig
from corel.effects import CorelEvent, Solicit
from corel.messages import Attempt, Commit, MessageId, Reds, Regular, State
from corel.quorum import Roster
from corel.stages import Cause, Stage
from tests.corel.harness import Act, Do, LogCluster
from transport.messages import Machine


def primary(everybody: str, roster: str = "", **options: object) -> LogCluster:
    """Returns a cluster in which these nodes, among all of the roster, are a primary component."""
    cluster = LogCluster(roster or everybody, **options)  # type: ignore[arg-type]
    cluster.settle(everybody, *[name for name in roster if name not in everybody])
    return cluster


# 1. Persist before you speak


def test_1_a_message_is_acknowledged_when_it_is_on_disk_as_yellow() -> None:
    cluster = primary("abc")
    cluster.disk("b").hold()
    cluster.submit("a", "x")
    cluster.run()
    assert cluster.pictures() == {"|x|"}
    assert [str(member) for member in cluster["a"].acknowledged(cluster["a"].queue.yellow[0])] == ["a.1", "c.1"]
    assert cluster.on_disk("b") == "||"
    cluster.disk("b").complete()
    assert cluster.on_disk("b") == "|x|"
    cluster.run()
    assert cluster.picture("a") == cluster.picture("c") == "x||"


def test_1_a_crash_before_the_disk_has_it_leaves_no_promise_behind() -> None:
    """Were b's word enough, a would have made x green, and b with c, who never heard of x, something else."""
    cluster = primary("ab", roster="abc")
    cluster.disk("b").hold()
    cluster.submit("a", "x")
    cluster.run()
    cluster.restart("b")
    cluster.disk("b").release()
    cluster.settle("a", "bc")
    cluster.submit("c", "y")
    cluster.run()
    cluster.settle("abc")
    assert cluster.pictures() == {"y x||"}


def test_1_the_attempt_is_told_when_it_is_on_disk() -> None:
    cluster = LogCluster("abc")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["b"]._recovery.plan)
    cluster.disk("b").hold()
    cluster.run()
    assert (cluster["b"].stage, cluster["b"].attempted) == (Stage.ESTABLISHING, 1)
    assert len(cluster.payloads(Attempt, "b")) == 2
    assert cluster.disk("b").log.lines.attempted == 0
    cluster.disk("b").complete()
    assert cluster.disk("b").log.lines.attempted == 1
    assert [type(payload) for payload in cluster.outgoing("b")] == [Attempt]


def test_1_the_commitment_is_told_when_it_is_on_disk_together_with_the_yellow_marking() -> None:
    cluster = LogCluster("abc")
    cluster.run()
    cluster.submit("b", "x")
    cluster.run()
    cluster.views("abc")
    cluster.run_until(lambda: cluster["b"].committed)
    cluster.disk("b").hold()
    cluster.run()
    assert len(cluster.payloads(Commit, "b")) == 2
    assert (cluster.disk("b").log.lines.committed, cluster.on_disk("b")) == (0, "||x")
    cluster.disk("b").complete()
    assert (cluster.disk("b").log.lines.committed, cluster.on_disk("b")) == (1, "|x|")
    assert [type(payload) for payload in cluster.outgoing("b")] == [Commit]


# 2. A sender that forgets its own messages


def test_2_an_incarnation_is_a_stream_of_its_own() -> None:
    """b broadcasts lost, crashes before logging it, and goes on to send kept. Whoever has only kept must not seem
    to have lost as well."""
    cluster = primary("ab", roster="abc")
    cluster.disk("b").hold()
    cluster.submit("b", "lost")
    cluster.run()
    cluster.restart("b")
    cluster.disk("b").release()
    cluster.settle("a", "bc")
    assert cluster.picture("a") == "|lost|"
    cluster.submit("b", "kept")
    cluster.run()
    assert cluster.pictures("bc") == {"kept||"}
    cluster.settle("abc")
    assert cluster.pictures() == {"kept lost||"}


def test_2_old_streams_are_folded_away_once_they_are_green_on_every_disk() -> None:
    cluster = primary("abc")
    cluster.submit("b", "x")
    cluster.run()
    cluster.restart("b")
    cluster.settle("abc")
    old = Machine("b", 1)
    assert cluster["a"].queue.green_last == {old: 1}
    cluster.settle("abc")
    assert [cluster[name].queue.green_last for name in "abc"] == [{}, {}, {}]
    cluster.submit("b", "y")
    cluster.run()
    for name in "abc":
        cluster.restart(name)
    cluster.settle("abc")
    assert cluster.pictures() == {"x y||"}


def test_2_an_old_stream_is_known_while_it_is_not_green_on_every_disk() -> None:
    """c comes back with b's message yellow: to c it is not over."""
    cluster = primary("abc")
    cluster.hold |= {Act(name, Do.HEAR) for name in "abc"}
    cluster.submit("b", "x")
    cluster.run()
    cluster.hold.clear()
    cluster.restart("b")
    cluster.settle("abc")
    assert (cluster.pictures(), cluster.on_disk("c")) == ({"x||"}, "|x|")
    cluster.restart("c")
    cluster.settle("abc")
    assert (cluster.pictures(), cluster.stages()) == ({"x||"}, {Stage.PRIMARY})
    assert cluster["a"].queue.green_last == {Machine("b", 1): 1}


# 3. Cascading changes


def test_3_a_fault_in_mid_recovery_leaves_retransmissions_to_finish_though_nobody_is_new() -> None:
    """e leaves before a's message has been retransmitted. Nobody in abcd was not in abcde, but only a has it."""
    cluster = LogCluster("abcde")
    cluster.settle("ae", "bcd")
    cluster.submit("a", "x")
    cluster.run()
    cluster.views("abcde")
    cluster.run_until(lambda: cluster["a"]._recovery.plan)
    cluster.settle("abcd", "e")
    assert len(cluster.payloads(State, "a")) == 4
    assert cluster.pictures("abcd") == {"x||"}


def test_3_the_next_attempt_is_higher_than_any_that_any_member_knows_of() -> None:
    """a's attempt is on its disk, and b's is not, when d leaves and b crashes."""
    cluster = LogCluster("abcd")
    cluster.views("abcd")
    cluster.run_until(lambda: cluster["b"]._recovery.plan)
    cluster.disk("b").hold()
    cluster.run_until(lambda: cluster.payloads(Attempt, "a"))
    cluster.restart("b")
    cluster.disk("b").release()
    assert (cluster["a"].attempted, cluster["b"].attempted) == (1, 0)
    cluster.settle("abc", "d")
    assert {cluster[name].committed for name in "abc"} == {2}


# 4. Yellow in the same order


def settled_differently() -> LogCluster:
    """At the end of the same primary component, a has x and b has y beyond what all have."""
    cluster = primary("abcde")
    cluster.submit("c", "w")
    cluster.hold |= {Act(name, Do.HEAR) for name in "abcde"}
    cluster.run()
    cluster.deaf |= {(name, "d") for name in "bce"} | {(name, "e") for name in "acd"}
    cluster.submit("d", "x")
    cluster.submit("e", "y")
    cluster.run()
    cluster.hold.clear()
    cluster.settle("a", "b", "cde")
    assert [cluster.picture(name) for name in "ab"] == ["|w x|", "|w y|"]
    return cluster


def test_4_yellow_retreats_to_the_common_prefix_of_the_zones() -> None:
    cluster = settled_differently()
    for name in "cde":
        cluster.crash(name)
    cluster.settle("ab")
    assert cluster.pictures("ab") == {"|w|x y"}
    demoted = [cluster.journal(name, CorelEvent.DEMOTED)[-1].details for name in "ab"]
    ids = [MessageId(Machine(name, 1), 1) for name in "de"]
    assert demoted == [{"ids": [one], "count": 1} for one in ids]


def test_4_the_retreat_is_on_disk() -> None:
    """What was logged as yellow is red after a restart, too."""
    cluster = settled_differently()
    for name in "cde":
        cluster.crash(name)
    cluster.settle("ab")
    cluster.restart("a")
    assert cluster.picture("a") == cluster.on_disk("a") == "|w|x y"


def test_4_equal_lengths_are_not_equal_zones() -> None:
    """c, d and e went on without a and b, and made both x and y green. a's and b's zones are of one length."""
    cluster = settled_differently()
    assert cluster.pictures("cde") == {"w x y||"}
    cluster.settle("ab", "cde")
    cluster.settle("abcde")
    assert cluster.pictures() == {"w x y||"}


def test_4_what_the_end_of_a_view_settles_is_not_final() -> None:
    """All have logged x, and a knows it, but not that c sent y before it heard of x: y comes first."""
    cluster = primary("abc")
    cluster.hold.add(Act("c", Do.RECEIVE))
    cluster.deaf |= {("a", "c"), ("b", "c")}
    cluster.advance_clock("a", 10)
    cluster.submit("a", "x")
    cluster.submit("c", "y")
    cluster.run()
    cluster.hold.clear()
    cluster.run()
    assert [member.name for member in cluster["a"].acknowledged(cluster["a"].queue.yellow[0])] == ["a", "b", "c"]
    assert [cluster.picture(name) for name in "abc"] == ["|x|", "|x|", "|y x|"]
    cluster.settle("a", "bc")
    assert (cluster.picture("a"), cluster.pictures("bc")) == ("|x|", {"y x||"})
    cluster.settle("abc")
    assert cluster.pictures() == {"y x||"}


def test_4_acknowledgements_count_only_in_the_view_they_were_sent_in() -> None:
    """Everybody logged three messages of a in the last view. In this one b has not logged any."""
    cluster = primary("abc")
    cluster.submit("a", "x y z")
    cluster.run()
    cluster.settle("abc")
    cluster.disk("b").hold()
    cluster.submit("a", "w")
    cluster.run()
    assert cluster.pictures() == {"x y z|w|"}


def test_4_who_has_another_order_commits_to_nothing() -> None:
    """It cannot be; if it is, nobody may go on as if it were not."""
    cluster = LogCluster("abcde", config=CorelConfig(write_gather_ms=0.0, debug_invariants=False))
    for name in "ab":
        cluster.submit(name, name)
        cluster.run()
    cluster.settle("ab")
    assert cluster.pictures("ab") == {"||a b"}
    cluster["b"].queue.red.reverse()
    cluster.settle("abc")
    assert cluster.stages("abc") == {Stage.NON_PRIMARY}
    assert {cluster[name].committed for name in "abc"} == {0}
    reasons = {cluster.journal(name, CorelEvent.STAGE)[-1].reason for name in "abc"}
    assert reasons == {Cause.ORDERS_DIFFER}


def test_4_step_6_is_one_atomic_write() -> None:
    """d adopts number, order and lines of the primary component: its disk has either none of it or all."""
    cluster = primary("abc", roster="abcd")
    cluster.submit("a", "x")
    cluster.submit("d", "late")
    cluster.run()
    cluster.views("abcd")
    cluster.run_until(lambda: cluster["d"].committed)
    cluster.disk("d").hold()
    cluster.run()
    assert (cluster.disk("d").log.lines.committed, cluster.on_disk("d")) == (0, "||late")
    cluster.disk("d").complete()
    lines = cluster.disk("d").log.lines
    assert (lines.committed, lines.green, lines.base, cluster.on_disk("d")) == (1, 1, 0, "x||late")


def test_4_red_is_in_timestamp_order_whoever_brings_it_whenever() -> None:
    cluster = LogCluster("abcdefg")
    for name, clock in (("a", 30), ("b", 20), ("c", 10)):
        cluster.advance_clock(name, clock)
        cluster.submit(name, f"{name}1 {name}2")
        cluster.run()
    cluster.settle("ab")
    cluster.settle("abc")
    assert cluster.pictures("abc") == {"||c1 c2 b1 b2 a1 a2"}


# 5. Retransmitted messages


def test_5_a_retransmitted_message_keeps_its_timestamp_and_id() -> None:
    cluster = LogCluster("abcde")
    (message_id,) = cluster.submit("d", "early")
    cluster.run()
    original = cluster.disk("d").log.messages[0]
    cluster.advance_clock("a", 100)
    cluster.submit("a", "late")
    cluster.run()
    cluster.settle("ad")
    cluster.settle("abcde")
    assert cluster.pictures() == {"early late||"}
    copies = [r for name in "abcde" for r in cluster.disk(name).log.messages if r.id == message_id]
    assert {(copy.clock, copy.view, copy.body) for copy in copies} == {(original.clock, original.view, b"early")}
    assert len(copies) == 5


# 6. The state message


def test_6_the_state_is_told_when_everything_before_it_is_on_disk() -> None:
    """b has two writes to wait for: the one under way, and the one that gathers meanwhile."""
    cluster = primary("abc")
    cluster.disk("b").hold()
    cluster.submit("a", "x")
    cluster.run()
    cluster.submit("a", "y")
    cluster.run()
    cluster.settle("ab", "c")
    assert len(cluster.payloads(State, "a")) == 1
    cluster.disk("b").complete()
    cluster.run()
    assert len(cluster.payloads(State, "a")) == 1
    cluster.disk("b").complete()
    (state,) = cluster.outgoing("b")
    assert isinstance(state, State)
    assert [message_id.sequence for message_id in state.tail] == [1, 2]
    assert cluster.on_disk("b") == "|x y|"


def test_6_a_commitment_on_its_way_to_disk_is_not_reported_as_absent() -> None:
    cluster = primary("abc")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["b"].committed == 2)
    cluster.disk("b").hold()
    cluster.settle("ab", "c")
    assert cluster.outgoing("b") == []
    cluster.disk("b").complete()
    assert cluster.outgoing("b") == []
    cluster.disk("b").complete()
    (state,) = cluster.outgoing("b")
    assert isinstance(state, State)
    assert state.committed == cluster.disk("b").log.lines.committed == 2


# 7. A disk that forgot


def test_7_a_disk_that_forgot_does_not_vote() -> None:
    """a and b made m green; a's disk is replaced. a and c are two of three, and know nothing of m."""
    cluster = primary("ab", roster="abc")
    cluster.submit("a", "m")
    cluster.run()
    cluster.crash("a")
    cluster.replace_disk("a")
    cluster.start("a")
    cluster.settle("ac")
    assert cluster.stages("ac") == {Stage.NON_PRIMARY}
    cluster.submit("c", "n")
    cluster.run()
    cluster.settle("abc")
    assert cluster.pictures() == {"m n||"}
    assert cluster.stages() == {Stage.PRIMARY}
    assert cluster.disk("a").log.lines.is_voter


def test_7_it_votes_again_when_it_has_recovered_with_half_of_all_votes() -> None:
    """In a cluster of four that takes two; then it makes a majority with them."""
    cluster = primary("abc", roster="abcd")
    cluster.crash("a")
    cluster.replace_disk("a")
    cluster.start("a")
    cluster.settle("ab")
    assert (cluster.stages("ab"), cluster["a"].is_voter) == ({Stage.NON_PRIMARY}, False)
    cluster.settle("abd")
    assert (cluster.stages("abd"), cluster["a"].is_voter) == ({Stage.PRIMARY}, True)


def test_7_empty_disks_alone_never_make_a_primary() -> None:
    cluster = LogCluster("abc")
    for name in "abc":
        cluster.crash(name)
        cluster.replace_disk(name)
        cluster.start(name)
    cluster.settle("abc")
    assert cluster.stages() == {Stage.NON_PRIMARY}
    assert not any(cluster[name].is_voter for name in "abc")


# 8. Green waits for all


def test_8_a_stalled_disk_stops_all_until_its_node_leaves() -> None:
    cluster = primary("abc")
    cluster.disk("c").hold()
    cluster.submit("a", "x y")
    cluster.run()
    assert cluster.pictures() == {"|x y|"}
    cluster.settle("ab", "c")
    assert cluster.pictures("ab") == {"x y||"}
    cluster.disk("c").release()
    cluster.run()
    assert cluster.picture("c") == "|x y|"
    cluster.settle("abc")
    assert cluster.pictures() == {"x y||"}


def test_8_those_whose_disks_are_waited_for_are_asked() -> None:
    """Their acknowledgements may have been lost."""
    cluster = primary("abc")
    cluster.disk("c").hold()
    cluster.submit("a", "x")
    cluster.run()
    log = cluster["a"]
    assert log.tick(1_000.0) == []
    due = log.next_deadline()
    assert due == 1_000.0 + log.config.solicit_after_ms
    assert log.tick(due) == [Solicit((Machine("c", 1),), log.view.id)]
    assert log.next_deadline() == due + 2 * log.config.solicit_after_ms


# 9. Even rosters


def test_9_two_halves_are_both_red_and_agree_when_they_meet() -> None:
    cluster = primary("abcd")
    cluster.settle("ab", "cd")
    cluster.submit("a", "x")
    cluster.submit("c", "y")
    cluster.run()
    assert cluster.stages() == {Stage.NON_PRIMARY}
    assert (cluster.pictures("ab"), cluster.pictures("cd")) == ({"||x"}, {"||y"})
    cluster.settle("abcd")
    assert cluster.pictures() == {"x y||"}


def test_9_one_half_is_primary_if_its_node_weighs_more() -> None:
    cluster = LogCluster("abcd", roster=Roster({"a": 2, "b": 1, "c": 1, "d": 1}))
    cluster.settle("abcd")
    cluster.settle("ab", "cd")
    assert cluster.stages("ab") == {Stage.PRIMARY}
    assert cluster.stages("cd") == {Stage.NON_PRIMARY}


# 10. Retransmission without waiting for each other


def test_10_retransmitters_do_not_wait_for_each_other() -> None:
    """d's and e's messages alternate by timestamp. Both send everything at once, in several batches."""
    config = CorelConfig(batch_bytes_max=1)
    cluster = LogCluster("abcde", config=config)
    for number in range(3):
        for name in "de":
            cluster.advance_clock(name, 10 - (name == "e"))
            cluster.submit(name, f"{name}{number}")
            cluster.run()
    cluster.views("abcde")
    cluster.run_until(lambda: any(isinstance(payload, Reds) for payload in cluster.outgoing("d")))
    cluster.hold.add(Act("d", Do.DELIVER))
    cluster.hold.add(Act("e", Do.RECEIVE))
    cluster.run()
    assert len(cluster.payloads(Reds, "a")) == 6
    cluster.hold.clear()
    cluster.run()
    assert cluster.pictures() == {"e0 d0 e1 d1 e2 d2||"}


def test_10_what_is_merged_is_causally_closed_at_every_moment() -> None:
    """Messages answer each other across d and e; with any of them, a has all that it answers. The checker of the
    Causal invariant looks at every step."""
    random = Random(10)
    config = CorelConfig(batch_bytes_max=1, batches_ahead_max=1)
    cluster = LogCluster("abcde", config=config)
    cluster.settle("abc", "de")
    for number in range(8):
        cluster.submit(random.choice("de"), f"m{number}")
        cluster.run()
    cluster.settle("d", "e")
    cluster.views("abcde")
    seen: list[str] = []
    while cluster.step():
        seen.append(cluster.picture("a").strip("|"))
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen))
    assert len(set(seen)) > 4
    assert cluster.pictures() == {"m0 m1 m2 m3 m4 m5 m6 m7||"}


def test_regular_messages_wait_in_the_queue_until_the_recovery_is_over() -> None:
    """b is primary and sends x while a still waits for a commitment."""
    cluster = LogCluster("abc")
    cluster.views("abc")
    cluster.run_until(lambda: len(cluster.payloads(Commit)) == 3)
    cluster.hold.add(Act("a", Do.DELIVER))
    cluster.submit("b", "x")
    cluster.run()
    assert len(cluster.payloads(Regular, "a")) == 1
    assert (cluster.picture("a"), cluster.picture("b")) == ("||", "|x|")
    cluster.hold.clear()
    cluster.run()
    assert cluster.pictures() == {"x||"}
