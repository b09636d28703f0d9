"""The views that the protocol makes without time and network, and what it tells its caller on the way."""

from __future__ import annotations

from membership.stages import Cause, Entered, Stage
from tests.membership.builders import attempt, control, ids, machine, names, view_id
from tests.membership.harness import Table, committed
from transport.messages import ViewId

IDLE, FAULTS, GATHERING, COMMITTED = Stage


# Views


def test_a_view_is_named_after_the_last_of_its_electors() -> None:
    table = Table("abc")
    table.break_with("a", "c")
    table.hand("a:1", "b")
    (installed,) = table.installed("b")
    assert list(ids(installed.electors)) == ["a:1", "b:1"]
    last = installed.electors[1]
    assert installed.view.id == ViewId(last.clock, *last.sender)


def test_what_is_expected_in_a_view_follows_what_its_electors_cover() -> None:
    table = committed("ab", "c")
    for _ in range(3):
        table.say("b", heard_by="a")
    table.say("c")
    table.alpha("b", "c")
    table.settle("abc")
    for name in "abc":
        (installed,) = table.installed(name)
        assert installed.expected == {machine("a"): 0, machine("b"): 3, machine("c"): 1}


def test_those_who_come_from_another_view_are_not_transitional() -> None:
    table = Table("abcd")
    for name, others in (("a", "d"), ("b", "d"), ("c", "d")):
        table.break_with(name, others)
    table.hand("b:1 c:1", "a")
    assert table.views("a") == ["abc"]
    table.break_with("a", "c")  # before the others have that view
    table.break_with("b", "c")
    table.hand("a:1 c:1 a:2", "b")
    table.hand("b:2", "a")
    assert table.views("a") == ["abc", "ab"]
    assert table["a"].view.members == table["b"].view.members
    assert table["a"].view.id == table["b"].view.id


# What is said


def test_every_change_of_stage_says_why_and_who_must_agree() -> None:
    table = committed("a", "b")
    table.alpha("b")
    table.settle("ab")
    entered = [output for output in table.outputs["a"] if isinstance(output, Entered)]
    assert [(output.stage, output.cause, names(output.accept)) for output in entered] == [
        (GATHERING, Cause.FOREIGN_HEARD, "a"),
        (COMMITTED, Cause.ALPHA_EXPIRED, "ab"),
        (IDLE, Cause.ASSENTED, "ab"),
    ]


def test_what_is_to_be_sent_comes_before_the_view_it_makes() -> None:
    table = Table("ab")
    table.break_with("a", "b")
    kinds = [type(output).__name__ for output in table.outputs["a"]]
    assert kinds == ["Suspected", "Entered", "Emitted", "Installed", "Entered"]


def test_control_messages_are_numbered_timed_and_follow_what_was_heard() -> None:
    table = Table("abcd")
    table.offer(control("b", 1, attempt("abcd"), view_id("abcd"), clock=40), "a")
    table.break_with("a", "d")
    table.break_with("a", "c")
    first, second = table.sent("a")
    assert (first.sequence, second.sequence) == (1, 2)
    assert 40 < first.clock < second.clock
    assert dict(first.acks) == {machine("b"): 1, machine("c"): 0, machine("d"): 0}
    assert first.view == view_id("abcd")
