"""A node that lacks much takes over the green prefix of another outside any view, and then joins (decision 28)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corel.config import CorelConfig
from corel.learning import NotAhead, check_ahead
from corel.log_state import LogState
from corel.recovery_plan import OutOfReach, make_plan
from corel.stages import Phase, Stage
from corel.storage import Lines, LogSize, Yellow, restore
from tests.corel.builders import ROSTER, machine, state
from tests.corel.harness import LogCluster
from tests.corel.test_traps import primary

ANEW = b"a new generation"


def learn(cluster: LogCluster, name: str, source: str, cut: int | None = None) -> None:
    """Has a node that is down take over the green prefix of another, and starts it."""
    cluster.flush(source)
    log, own = cluster.disk(source).log, cluster.disk(name).log
    own.take_over(name, log, log.lines.green if cut is None else cut)
    for checker in cluster.checkers:
        checker.took_over(name, own.lines)
    cluster.start(name)


def test_an_empty_disk_takes_over_the_green_prefix_and_joins() -> None:
    cluster = primary("ab", roster="abc")
    cluster.submit("a", "k l m n")
    cluster.run()
    cluster.crash("c")
    cluster.replace_disk("c")
    learn(cluster, "c", "a", cut=3)
    assert (cluster["c"].queue.green, cluster["c"].cut, cluster["c"].committed) == (4, 3, 1)
    cluster.settle("abc")
    assert cluster.stages() == {Stage.PRIMARY}
    cluster.submit("c", "o")
    cluster.run()
    assert cluster["c"].queue.green_digest == cluster["a"].queue.green_digest
    assert cluster["c"].is_voter


def test_who_has_taken_over_a_log_brings_nobody_up_to_whom_it_would_have_to_send_what_is_before_the_cut() -> None:
    cluster = primary("ab", roster="abc")
    cluster.submit("a", "k l m n")
    cluster.run()
    cluster.crash("c")
    learn(cluster, "c", "a", cut=3)
    assert (cluster["a"].progress.floor, cluster["c"].progress.floor) == (0, 3)


def test_a_message_of_its_own_that_is_green_by_now_is_there_once() -> None:
    cluster = primary("abc")
    cluster.submit("c", "x")
    cluster.run()
    cluster.crash("c")
    assert cluster.on_disk("c") == "|x|"
    cluster.settle("ab")
    cluster.submit("a", "k")
    cluster.run()
    learn(cluster, "c", "a", cut=0)
    assert [record.body for record in cluster.disk("c").log.messages] == [b"x", b"k"]


def test_red_messages_of_its_own_survive_and_what_is_green_by_now_is_not_there_twice() -> None:
    cluster = primary("abc")
    cluster.settle("ab", "c")
    cluster.submit("c", "x y")
    cluster.submit("a", "k")
    cluster.run()
    cluster.settle("abc")
    cluster.settle("ab", "c")
    cluster.submit("a", "l m")
    cluster.submit("c", "z")
    cluster.run()
    cluster.crash("c")
    learn(cluster, "c", "b")
    assert len(cluster["c"].queue.red) == 1
    cluster.settle("abc")
    assert cluster["a"].queue.green == 6
    assert len({cluster[name].queue.green_digest for name in "abc"}) == 1


def test_who_has_learned_of_a_primary_component_does_not_speak_for_it() -> None:
    """n became green at a and b after c had taken over their log. b knows, although its own disk says yellow."""
    cluster = primary("ab", roster="abc")
    cluster.submit("a", "m")
    cluster.run()
    cluster.crash("c")
    learn(cluster, "c", "a")
    cluster.submit("a", "n")
    cluster.run()
    cluster.crash("a")
    cluster.settle("bc")
    assert not cluster["c"].is_representative
    assert cluster.stages("bc") == {Stage.PRIMARY}
    assert {cluster[name].queue.green for name in "bc"} == {2}


def test_what_is_learned_of_is_the_last_component_that_was_established_not_one_that_was_committed_to() -> None:
    cluster = primary("ab", roster="abc")
    cluster.submit("a", "m")
    cluster.run()
    cluster.flush("ab")
    cluster.views("ab")
    cluster.run_until(lambda: cluster.disk("a").log.lines.committed == 2)
    cluster.crash("b")
    cluster.settle("a")
    cluster.crash("c")
    learn(cluster, "c", "a")
    assert (cluster["a"].committed, cluster["c"].committed) == (2, 1)


def test_those_who_have_learned_bring_up_who_knows_less_and_make_no_primary_component() -> None:
    """c and d have taken over what a and b made green. Together with e they are a majority, which cannot be."""
    cluster = primary("abe", roster="abcde")
    cluster.submit("a", "m")
    cluster.run()
    for name in "cd":
        cluster.crash(name)
    learn(cluster, "c", "a", cut=0)
    cluster.submit("a", "n")
    cluster.run()
    learn(cluster, "d", "a", cut=0)
    cluster.settle("cd", "abe")
    assert cluster.stages("cd") == {Stage.NON_PRIMARY}
    assert cluster.picture("c") == cluster.picture("d") == "m n||"
    cluster.settle("abcde")
    assert cluster.stages() == {Stage.PRIMARY}


def test_where_nobody_knows_more_than_it_has_learned_there_is_no_primary_component() -> None:
    """A majority always has a member that knows more, so no story leads here: the disks are written by hand."""
    cluster = primary("abc")
    for name in "abc":
        cluster.crash(name)
        log = cluster.disk(name).log
        log.lines = replace(log.lines, is_learned=True)
        cluster.start(name)
    cluster.settle("abc")
    assert cluster.stages() == {Stage.NON_PRIMARY}


def test_its_old_yellow_messages_are_red_again_where_the_later_component_does_not_have_them() -> None:
    """y was yellow at c alone. The next primary component was established without it."""
    cluster = primary("abc")
    for name in "ab":
        cluster.disk(name).hold()
    cluster.submit("c", "y")
    cluster.run()
    assert cluster.picture("c") == "|y|"
    cluster.crash("c")
    for name in "ab":
        cluster.crash(name)
        cluster.disk(name).release()
        cluster.start(name)
    cluster.settle("ab")
    cluster.submit("a", "m")
    cluster.run()
    learn(cluster, "c", "a")
    cluster.settle("abc")
    assert cluster["c"].queue.green == len(cluster["c"].queue)
    assert len({cluster[name].queue.green_digest for name in "abc"}) == 1


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (Lines(committed=5), "same primary component"),
        (Lines(committed=6, is_learned=True), "or of a later one"),
        (Lines(committed=4, generation=b"y" * 16), "another generation"),
        (Lines(committed=5, is_learned=True, green=11), "as many green messages"),
        (Lines(committed=5, is_learned=True, green=10), "as many green messages"),
    ],
)
def test_a_log_that_knows_no_more_is_not_taken_over(own: Lines, why: str) -> None:
    source = Lines(committed=5, green=10, generation=b"x" * 16, established=5, established_base=8)
    if own.generation == Lines().generation:
        own = replace(own, generation=b"x" * 16)
    with pytest.raises(NotAhead, match=why):
        check_ahead(own, source)
    check_ahead(replace(own, committed=3, is_learned=False, green=0, generation=source.generation), source)


def test_nor_is_one_that_does_not_have_the_base_of_its_primary_component() -> None:
    source = Lines(committed=6, green=7, generation=b"x" * 16, established=5, established_base=8)
    with pytest.raises(NotAhead, match="began with"):
        check_ahead(Lines(), source)
    with pytest.raises(NotAhead, match="no primary component that was established"):
        check_ahead(Lines(green=1), replace(source, established=0))


def test_an_empty_disk_takes_over_what_a_restored_cluster_begins_with_where_a_majority_needs_it() -> None:
    """a and b are restored from a backup whose log is cut at 2. There is no primary component without c."""
    old = primary("abcd")
    old.submit("a", "k l m n")
    old.run()
    old.flush("a")
    cluster = LogCluster("abcd")
    for name in "abcd":
        cluster.crash(name)
        cluster.replace_disk(name)
    for name in "ab":
        log = old.disk("a").log
        cluster.disk(name).log.begin_anew(ANEW, log.lines, 2, log.green_digest(2), log.tail_from(2))
    cluster.begin_with(old, "ab")
    cluster.start("a")
    cluster.start("b")
    cluster.settle("ab")
    learn(cluster, "c", "a")
    assert (cluster["c"].queue.green, cluster["c"].is_learned, cluster["c"].generation) == (4, False, ANEW)
    cluster.settle("abc")
    assert cluster.stages("abc") == {Stage.PRIMARY}
    assert cluster["c"].is_voter


# Cuts


def test_the_log_is_cut_behind_what_is_applied_and_kept() -> None:
    cluster = LogCluster(
        "abc", config=CorelConfig(recovery_messages_max=1, messages_kept=3, debug_invariants=True)
    )
    cluster.settle("abc")
    cluster.submit("a", "k l m n o p")
    cluster.run()
    cluster.flush("ab")
    cluster["a"].applied(5, LogSize(0, 0))
    assert cluster["a"].cut == 3
    cluster["a"].applied(2, LogSize(0, 0))
    assert cluster["a"].cut == 3, "it never goes back"
    cluster["b"].applied(1, LogSize(0, 0))
    assert cluster["b"].cut == 1, "what is not applied is kept"
    cluster.submit("a", "q")
    cluster.run()
    assert cluster.disk("a").log.lines.cut == 3


def test_nothing_is_cut_while_a_member_is_brought_up() -> None:
    """a has said that it can retransmit everything, and does so after its tree is on disk."""
    bounds = CorelConfig(recovery_messages_max=1, messages_kept=2, batch_bytes_max=1, batches_ahead_max=1)
    cluster = LogCluster("abc", config=bounds)
    cluster.settle("abc")
    cluster.settle("ab", "c")
    cluster.submit("a", "k l m n o p")
    cluster.run()
    cluster.flush("ab")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["c"].phase is Phase.PRIORITY_MESSAGES)
    for name in "ab":
        cluster[name].applied(6, LogSize(0, 0))
    cluster.run()
    assert (cluster["c"].queue.green, cluster["a"].cut) == (6, 0)
    cluster["a"].applied(6, LogSize(0, 0))
    assert cluster["a"].cut == 4


def test_who_has_all_that_is_green_as_yellow_messages_is_in_reach_however_far_its_green_line_is_back() -> None:
    """c was in the last primary component that was established, so there is nothing that it could take over. Its
    green line is before the cut of a, which has committed to the next one with b; then b crashed."""
    bounds = CorelConfig(recovery_messages_max=1, messages_kept=2, write_gather_ms=0.0, debug_invariants=True)
    cluster = LogCluster("abc", config=bounds)
    cluster.settle("abc")
    cluster.submit("a", "k l m n")
    cluster.run()
    cluster.flush("ab")
    for name in "ab":
        cluster[name].applied(4, LogSize(0, 0))
    cluster.crash("c")
    assert cluster.on_disk("c") == "|k l m n|"
    cluster.views("ab")
    cluster.run_until(lambda: cluster.disk("a").log.lines.committed == 2)
    cluster.crash("b")
    cluster.settle("a")
    cluster.start("c")
    assert cluster.disk("a").log.lines.cut == 2
    with pytest.raises(NotAhead, match="same primary component"):
        check_ahead(cluster.disk("c").log.lines, cluster.disk("a").log.lines)
    assert cluster["c"].progress.is_in_reach_of(cluster["a"].progress)
    cluster.settle("ac")
    assert cluster.stages("ac") == {Stage.PRIMARY}
    assert cluster["c"].queue.green == 4


def test_bytes_cut_the_log_too_but_not_what_a_node_in_reach_may_lack() -> None:
    config = CorelConfig(recovery_messages_max=2, messages_kept=100, bytes_kept=500, recovery_bytes_max=100)
    cluster = LogCluster("a", config=config)
    cluster.settle("a")
    cluster.submit("a", " ".join("abcdefghijklmnop"))
    cluster.run()
    cluster.flush("a")
    cluster["a"].applied(16, LogSize(1_600, 16))
    assert cluster["a"].cut == 11
    cluster["a"].applied(16, LogSize(160_000, 16))
    assert cluster["a"].cut == 12, "twice what a node in reach may lack"


def test_a_member_that_lacks_what_all_others_have_cut_leaves_them() -> None:
    laggard, other = state(committed=1, green=3), state(committed=2, green=9, base=9, cut=5)
    with pytest.raises(OutOfReach) as raised:
        make_plan({machine("a"): laggard, machine("b"): other, machine("c"): other}, ROSTER)
    assert raised.value.unbelieved(ROSTER) == [machine("a")]


def test_the_representative_is_one_that_still_has_what_is_to_be_retransmitted() -> None:
    laggard = state(committed=1, green=3)
    short, long = state(committed=2, green=9, base=9, cut=5), state(committed=2, green=9, base=9, cut=2)
    plan = make_plan({machine("a"): laggard, machine("b"): short, machine("c"): long}, ROSTER)
    assert plan.representative == machine("c")


def test_a_representative_whose_green_line_is_below_the_cut_of_another_needs_nothing() -> None:
    low, high = state(committed=2, green=3, base=9), state(committed=2, green=9, base=9, cut=5)
    assert make_plan({machine("a"): low, machine("b"): high}, ROSTER).priority_from is None


def test_what_is_kept_does_not_depend_on_how_fast_the_rest_is_deleted() -> None:
    """Ten million messages of 2 KB are on disk, far more than is to be kept, and are deleted a few at a time."""
    green, kept = 10_000_000, 1_000_000
    state = LogState(restore(Lines(green=green, established=1), Yellow(), ()), CorelConfig(messages_kept=kept))
    beginning = 0
    for _ in range(20):
        state.truncate(green, LogSize((green - beginning) * 2_048, green - beginning))
        assert green - state.cut == kept
        assert green - state.floor == CorelConfig().recovery_messages_max
        beginning += 1_024


def test_a_node_knows_from_its_start_how_large_its_messages_are() -> None:
    """It has not written a checkpoint yet: a view must not bring anybody up by gigabytes."""
    size = LogSize(10_000 * 1_048_576, 10_000)
    image = restore(Lines(green=10_000, established=1), Yellow(), (), size=size)
    assert LogState(image, CorelConfig()).floor == 10_000 - 32


def test_before_a_primary_component_is_known_to_be_established_nobody_is_out_of_reach_and_nothing_is_cut() -> None:
    """As on disks of an older format: nobody could take over what they have."""
    ahead = LogState(restore(Lines(committed=5, green=100_000), Yellow(), ()), CorelConfig(messages_kept=50_000))
    ahead.truncate(100_000, LogSize(0, 0))
    assert (ahead.floor, ahead.cut) == (0, 0)
    ahead.note_established(6, 100_000)
    ahead.truncate(100_000, LogSize(0, 0))
    assert (ahead.floor, ahead.cut) == (90_000, 50_000)


def test_an_empty_disk_takes_nothing_over_from_who_has_committed_and_cannot_tell_what_was_established() -> None:
    source = Lines(committed=5, green=10, generation=b"x" * 16)
    with pytest.raises(NotAhead, match="no primary component that was established"):
        check_ahead(Lines(), source)


def test_but_it_does_from_who_has_committed_in_a_cluster_that_was_restored_and_is_cut_at_its_beginning() -> None:
    """Seed 1186 of the simulator: the first primary component was committed to and not established, and a majority
    needs the nodes with empty disks."""
    check_ahead(Lines(), Lines(committed=1, green=10, cut=10, generation=b"x" * 16))


def test_messages_that_are_not_green_do_not_make_the_others_seem_larger() -> None:
    """Seed 1150 of the simulator: a node starts with many messages of which few are green. When all are, whoever
    lacks them is in reach, if their bytes are within the bound."""
    size = LogSize(2_000 * 10_000, 2_000)
    image = restore(Lines(green=1_000, established=1), Yellow(), (), size=size)
    assert LogState(image, CorelConfig(recovery_bytes_max=800 * 10_000)).floor == 1_000 - 800
