"""The claims of "Efficient Message Ordering in Dynamic Networks" (Keidar and Dolev), sections 3.5 and 3.5.1: the
handler of configuration changes, and the establishment of a primary component. `corel_clusters.py` explains the
pictures."""

from __future__ import annotations

import pytest

from corel.messages import Attempt, Commit, Regular
from corel.stages import Stage
from tests.corel.harness import Act, Do, LogCluster
from tests.paper.corel_clusters import half_green, primary, say

# Figure 2: the handler


def test_figure_2_the_primary_component_bit_is_unset_and_regular_messages_stop() -> None:
    cluster = primary("abc")
    cluster.views("abc")
    cluster.submit("a", "x")
    assert Stage.PRIMARY not in cluster.stages()
    assert not any(cluster[name].is_open for name in "abc")
    cluster.run_until(lambda: cluster["a"].stage is Stage.PRIMARY)
    assert cluster.payloads(Regular, "a") == []
    cluster.run()
    assert cluster.pictures() == {"x||"}


def test_figure_2_a_minority_continues_without_establishing() -> None:
    cluster = LogCluster("abcde")
    cluster.settle("abc", "de")
    assert cluster.payloads(Attempt, "d") == []
    assert cluster["d"].is_open
    say(cluster, "e", "x")
    assert cluster.pictures("de") == {"||x"}


def test_figure_2_a_majority_establishes_and_then_continues() -> None:
    cluster = LogCluster("abcde")
    cluster.views("abc", "de")
    cluster.submit("b", "x")
    cluster.run()
    assert len(cluster.payloads(Commit, "a")) == 3
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
    """Returns a cluster of abc in which b is about to send its attempt or commit message. The queues hold x of
    a."""
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
            if any(isinstance(payload, Attempt) for payload in cluster.outgoing(name)):
                assert cluster.disk(name).log.lines.attempted == 1


def test_figure_3_attempts_of_all_members_are_waited_for() -> None:
    cluster = LogCluster("abc")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["c"]._recovery.plan)
    cluster.hold.add(Act("c", Do.SEND))
    cluster.run()
    assert len(cluster.payloads(Attempt, "a")) == 2
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
        if any(isinstance(payload, Commit) for payload in cluster.outgoing("b")):
            assert (log.lines.committed, cluster.on_disk("b")) == (1, "|x|")


def test_figure_3_commitments_of_all_members_establish_and_everything_is_green() -> None:
    cluster = LogCluster("abc")
    say(cluster, "a", "x")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["c"].committed)
    cluster.hold.add(Act("c", Do.SEND))
    cluster.run()
    assert len(cluster.payloads(Commit, "a")) == 2
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
