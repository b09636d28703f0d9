"""Faults in the protocol without time and network: Fig. 3, accusations, and machines that have restarted."""

from __future__ import annotations

from membership.messages import AttemptJoin, Control, Join, JoiningSet
from membership.stages import Cause, Stage
from tests.membership.builders import attempt, control, fault, join, machine, names, view_id
from tests.membership.harness import Table, bodies, committed, suspicions
from transport.messages import Machine, ViewId

IDLE, FAULTS, GATHERING, COMMITTED = Stage
ABC = view_id("abc")


# Fig. 3: faults


def test_a_break_is_announced_and_whoever_hears_it_concurs() -> None:
    table = Table("abc")
    table.break_with("a", "c")
    assert bodies(table, "a") == [fault("c")]
    assert suspicions(table, "a") == [("c", Cause.SILENT)]
    table.hand("a:1", "b")
    assert bodies(table, "b") == [fault("c")]
    assert table.entered("b")[0] == (FAULTS, Cause.FAULT_RECEIVED)


def test_the_view_comes_when_all_who_remain_have_concurred() -> None:
    table = Table("abcd")
    table.break_with("a", "d")
    table.hand("a:1", "b", "c")
    table.hand("b:1", "a", "c")
    assert table.views("c") == ["abc"]
    assert table.views("a") == table.views("b") == []
    assert table["a"].awaited() == {machine("c")}
    table.hand("c:1", "a", "b")
    assert table.views("a") == table.views("b") == ["abc"]
    assert table["a"].view == table["b"].view == table["c"].view


def test_a_fault_is_announced_again_only_when_the_set_has_grown() -> None:
    table = Table("abcd")
    table.break_with("a", "d")
    table.break_with("b", "d")
    table.hand("b:1 b:1", "a")
    table.break_with("a", "d")
    assert bodies(table, "a") == [fault("d")]
    table.break_with("a", "c")
    assert bodies(table, "a") == [fault("d"), fault("cd")]


def test_agreement_is_on_the_whole_set() -> None:
    table = Table("abcd")
    table.break_with("a", "cd")
    table.break_with("b", "d")
    table.hand("b:1", "a")
    assert table.views("a") == []  # b does not know of c's fault
    table.hand("a:1", "b")
    table.hand("b:2", "a")
    assert table.views("a") == table.views("b") == ["ab"]


def test_only_members_faults_matter_and_only_members_say_so() -> None:
    table = Table("abc", "de")
    table.offer(control("b", 1, fault("d"), ABC, cover={"a": 0, "c": 0}), "a")
    table.offer(control("d", 1, fault("c"), view_id("de"), cover={"e": 0}), "a")
    assert table["a"].stage is IDLE
    assert table.sent("a") == []


def test_what_ends_a_view_covers_its_messages_and_an_attempt_covers_none() -> None:
    table = Table("abc")
    table.say("c", heard_by="ab")
    table.say("c", heard_by="a")
    table.attempt("a")
    assert table.last("a").cover == ()
    assert not table["a"].is_ending_view()
    table.break_with("a", "c")
    assert dict(table.last("a").cover) == {machine("a"): 0, machine("b"): 0, machine("c"): 2}
    assert table["a"].is_ending_view()


def test_a_fault_enters_when_what_it_covers_is_here() -> None:
    table = Table("abc")
    table.say("c", heard_by="b")
    table.break_with("b", "c")
    table.hand("b:1", "a")
    assert table["a"].stage is IDLE
    assert [dict(cover) for cover in table["a"].covers_to_require()] == [dict(table.last("b").cover)]
    table.recover("a")
    assert table.views("a") == ["ab"]


def test_a_suspects_message_that_others_follow_is_let_in_and_not_acted_upon() -> None:
    table = Table("abcde")
    table.break_with("c", "d")
    table.break_with("a", "c")
    table.offer(control("b", 1, attempt("abcde"), view_id("abcde"), acks={"c": 1}), "a")
    table.hand("c:1", "a")
    assert dict(table["a"].dag.acks())[machine("c")] == 1
    assert names(table["a"].suspects) == "c"  # whoever followed it will say so itself


def test_what_a_suspects_message_covers_is_required_if_others_follow_it() -> None:
    table = Table("abcd")
    table.say("d", heard_by="c")
    table.break_with("c", "d")
    table.break_with("a", "c")
    table.hand("c:1", "a")
    assert list(table["a"].covers_to_require()) == []
    table.offer(control("b", 1, attempt("abcd"), view_id("abcd"), acks={"c": 1}), "a")
    table.recover("a")
    assert dict(table["a"].dag.acks())[machine("c")] == 1
    assert table.planes["a"].here[machine("d")] == 1


# Accusations


def test_who_declares_us_faulty_is_faulty_to_us() -> None:
    table = Table("abcd")
    table.break_with("b", "a")
    table.hand("b:1", "a")
    assert suspicions(table, "a") == [("b", Cause.ACCUSED_ME)]
    assert bodies(table, "a") == [fault("b")]
    assert dict(table["a"].dag.acks())[machine("b")] == 0


def test_a_commitment_that_counts_us_among_the_faulty_is_an_accusation() -> None:
    table = committed("a", "b", "c")
    table.offer(control("b", 2, join("a", "b", "c", faults="a")), "a")
    assert suspicions(table, "a") == [("b", Cause.ACCUSED_ME)]
    assert bodies(table, "a")[-1] == fault("b")


def test_who_concurs_with_an_accusation_is_faulty_to_us_as_well() -> None:
    table = Table("abcd")
    table.break_with("b", "a")
    table.hand("b:1", "c")
    table.hand("b:1 c:1", "a")
    assert names(table["a"].suspects) == "bc"
    table.hand("a:1 a:2", "d")
    assert table["a"].awaited() == {machine("d")}


def test_an_accusation_that_somebody_follows_who_has_not_concurred_enters_without_effect() -> None:
    table = Table("abcd")
    table.break_with("b", "a")
    table.hand("b:1", "a")
    table.offer(control("c", 1, attempt("abcd"), view_id("abcd"), acks={"b": 1}), "a")
    assert dict(table["a"].dag.acks())[machine("b")] == 1
    assert names(table["a"].suspects) == "b"


def test_a_joiner_that_accuses_us_leaves_us_to_the_faults_it_has_told_us_of() -> None:
    table = Table("ac", "b")
    table.attempt("b")
    table.hand("b:1", "a")
    table.offer(control("b", 2, fault("c")), "a")
    table.offer(control("b", 3, fault("ac")), "a")
    assert table["a"].stage is not GATHERING
    assert suspicions(table, "a") == [("c", Cause.FAULT_RECEIVED), ("b", Cause.ACCUSED_ME)]


def test_an_accuser_invites_us_again_only_from_its_next_view() -> None:
    table = Table("ab", "c")
    table.offer(control("c", 1, fault("a")), "a")
    table.offer(control("c", 2, attempt("c")), "a")
    assert table["a"].stage is IDLE
    table.offer(control("c", 3, attempt("c"), view_id("c", clock=9)), "a")
    assert table.entered("a") == [(GATHERING, Cause.INVITED)]


# Incarnations


def restarted(name: str, sequence: int, clock: int = 50) -> Control:
    """Returns an AJ of the next incarnation of a machine."""
    again = Machine(name, 2)
    view = ViewId(clock, *again)
    return Control(again, sequence, clock + sequence, view, (), (), AttemptJoin(JoiningSet(view, ((again, 0),))))


def test_of_two_incarnations_in_a_join_the_older_is_faulty() -> None:
    table = Table("abc")
    table.offer(restarted("c", 1), "a")
    assert suspicions(table, "a") == [("c", Cause.RESTARTED)]
    table.alpha("a")
    assert table["a"].accept == {machine("a"), machine("b"), Machine("c", 2)}
    assert table.last("a").accuses(machine("c", 1))
    assert not table.last("a").accuses(machine("c", 2))


def test_who_would_join_a_later_me_is_left_alone() -> None:
    table = Table("a", "b")
    table.offer(restarted("a", 1), "a")
    assert table["a"].stage is IDLE
    table = Table("ab")
    again = restarted("a", 1)
    assert isinstance(again.body, AttemptJoin)
    later = control("b", 1, Join((attempt("ab").joining, again.body.joining), ()), view_id("ab"), cover={"a": 0})
    table.offer(later, "a")
    assert suspicions(table, "a") == [("b", Cause.ACCUSED_ME)]
    assert table.views("a") == ["a"]
