"""The claims of "Efficient Message Ordering in Dynamic Networks" (Keidar and Dolev), sections 3.1 to 3.4: logging,
the order of messages, the colours, and the invariants. `corel_clusters.py` explains the pictures."""

from __future__ import annotations

from itertools import pairwise

import pytest

from corel.messages import State
from corel.stages import Stage
from tests.corel.harness import Act, Do, LogCluster
from tests.paper.corel_clusters import half_green, primary, say

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
    assert len(cluster.payloads(State, "a")) == 5
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
