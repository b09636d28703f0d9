"""The protocol without time and network: one machine's answer to each input in each stage, and the joins of
Figs. 5 to 8.

`tests/paper/` shows what the answers of all machines together guarantee.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise, product

import pytest

from membership.messages import Body
from membership.stages import TRANSITIONS, Cause, Stage
from tests.membership.adversary import Adversary
from tests.membership.builders import attempt, control, fault, join, machine, machines, names, view_id
from tests.membership.harness import Table, bodies, committed, suspicions
from transport.errors import BrokenInvariant

IDLE, FAULTS, GATHERING, COMMITTED = Stage
ABC = view_id("abc")


# Every stage, every input


def in_stage(stage: Stage) -> Table:
    """Returns a table where member a of the view abcz is in this stage; d and e are foreign. In Stages 1 and 2, d
    is about to join. No message of z arrives, so that no view is installed."""
    table = Table("abcz", "d", "e")
    if stage is FAULTS:
        table.break_with("a", "c")
    if stage in (GATHERING, COMMITTED):
        table.attempt("d")
        table.hand("d:1", "a")
    if stage is COMMITTED:
        table.alpha("a")
    assert table["a"].stage is stage
    return table


def offered(sender: str, body: Body) -> Callable[[Table], None]:
    """Returns an input of a table: the next control message of the sender, with this body, arrives at a."""

    def offer(table: Table) -> None:
        stream = table["a"].dag.streams.get(machine(sender))
        sequence = 1 if stream is None else stream.inserted_through + 1
        component = "abcz" if sender in "abcz" else sender
        table.offer(control(sender, sequence, body, view_id(component), cover=dict.fromkeys(component, 0)), "a")

    return offer


INPUTS: dict[str, Callable[[Table], None]] = {
    "a foreign machine is heard": lambda table: table.attempt("a"),
    "α expires": lambda table: table.alpha("a"),
    "a member breaks": lambda table: table.break_with("a", "b"),
    "a foreign machine breaks": lambda table: table.break_with("a", "d"),
    "we break with ourselves": lambda table: table.break_with("a", "a"),
    "AJ of a member": offered("b", attempt("abcz")),
    "AJ of a foreign machine": offered("e", attempt("e")),
    "JOIN of a member": offered("b", join("abcz", "d")),
    "JOIN of a foreign machine": offered("d", join("abcz", "d")),
    "JOIN that leaves us out": offered("e", join("e", "d")),
    "FA of a member": offered("b", fault("c")),
    "FA of a member that accuses us": offered("b", fault("a")),
    "FA of a foreign machine": offered("e", fault("c")),
    "FA of a joining machine": offered("d", fault("c")),
}
RESULTS: dict[str, tuple[Stage, Stage, Stage, Stage]] = {
    # in                               idle       faults     gathering  committed
    "a foreign machine is heard":     (GATHERING, FAULTS,    GATHERING, COMMITTED),
    "α expires":                      (IDLE,      FAULTS,    COMMITTED, COMMITTED),
    "a member breaks":                (FAULTS,    FAULTS,    COMMITTED, COMMITTED),
    "a foreign machine breaks":       (IDLE,      FAULTS,    GATHERING, COMMITTED),
    "we break with ourselves":        (IDLE,      FAULTS,    GATHERING, COMMITTED),
    "AJ of a member":                 (GATHERING, GATHERING, GATHERING, COMMITTED),
    "AJ of a foreign machine":        (GATHERING, FAULTS,    GATHERING, COMMITTED),
    "JOIN of a member":               (GATHERING, GATHERING, GATHERING, COMMITTED),
    "JOIN of a foreign machine":      (GATHERING, FAULTS,    GATHERING, COMMITTED),
    "JOIN that leaves us out":        (IDLE,      FAULTS,    GATHERING, COMMITTED),
    "FA of a member":                 (FAULTS,    FAULTS,    GATHERING, COMMITTED),
    "FA of a member that accuses us": (FAULTS,    FAULTS,    COMMITTED, COMMITTED),
    "FA of a foreign machine":        (IDLE,      FAULTS,    GATHERING, COMMITTED),
    "FA of a joining machine":        (IDLE,      FAULTS,    GATHERING, COMMITTED),
}  # fmt: skip


@pytest.mark.parametrize(("name", "stage"), [*product(INPUTS, Stage)])
def test_every_input_in_every_stage_leads_where_the_table_says(name: str, stage: Stage) -> None:
    table = in_stage(stage)
    INPUTS[name](table)
    assert table["a"].stage is RESULTS[name][list(Stage).index(stage)]


def test_schedules_of_all_kinds_make_every_transition_there_is_and_no_other() -> None:
    seen: Counter[tuple[Stage, Stage]] = Counter()
    for seed in range(150):
        adversary = Adversary(seed, "abcd") if seed % 2 else Adversary(seed, "abc", "d")
        adversary.play(200)
        for name in "abcd":
            stages = [IDLE, *[stage for stage, _ in adversary.entered(name)]]
            seen.update(pairwise(stages))
    listed = {(stage, following) for stage, followings in TRANSITIONS.items() for following in followings}
    assert set(seen) == listed


def test_a_transition_that_is_not_listed_is_a_broken_invariant() -> None:
    table = in_stage(COMMITTED)
    with pytest.raises(BrokenInvariant, match="cannot go from committed to faults"):
        table["a"]._enter_faults(Cause.SILENT)


def test_no_machine_declares_itself_faulty() -> None:
    table = in_stage(IDLE)
    with pytest.raises(BrokenInvariant, match="itself faulty"):
        table["a"]._add_faults_before(frozenset(machines("a")), Cause.SILENT)


# Fig. 6: Stage 1


def test_foreign_machines_heard_make_it_advertise_its_view_with_a_cut_vector() -> None:
    table = Table("ab", "c")
    table.offer(control("b", 1, attempt("ab"), view_id("ab")), "a")
    table.alpha("a")
    table.attempt("a")
    assert bodies(table, "a") == [attempt("ab", b=1)]
    assert table.entered("a")[-1] == (GATHERING, Cause.FOREIGN_HEARD)


def test_an_attempt_of_a_member_is_followed_without_another() -> None:
    table = Table("ab", "c")
    table.attempt("a")
    table.hand("a:1", "b")
    assert table.entered("b") == [(GATHERING, Cause.ATTEMPT_RECEIVED)]
    assert table.sent("b") == []


def test_alpha_collects_every_set_that_shows_up() -> None:
    table = Table("ab", "c", "de")
    for name in "acd":
        table.attempt(name)
    table.hand("c:1 d:1", "a")
    assert names(table["a"].join_machines) == "abcde"
    table.alpha("a")
    assert bodies(table, "a")[-1] == join("ab", "c", "de")
    assert table.entered("a")[-1] == (COMMITTED, Cause.ALPHA_EXPIRED)


def test_stage_1_ends_in_silence_when_nobody_has_answered() -> None:
    table = Table("ab", "c")
    table.attempt("a")
    table.alpha("a")
    assert table.entered("a")[-1] == (IDLE, Cause.NOBODY_ANSWERED)
    assert bodies(table, "a") == [attempt("ab")]
    assert not table["a"].is_ending_view()


def test_stage_1_returns_to_the_faults_it_interrupted_when_nobody_has_answered() -> None:
    table = Table("abc")
    table.break_with("a", "c")
    table.offer(control("b", 1, attempt("abc"), ABC), "a")
    table.alpha("a")
    assert [stage for stage, _ in table.entered("a")] == [FAULTS, GATHERING, FAULTS]
    assert bodies(table, "a") == [fault("c")]  # said once is enough
    table.offer(control("b", 2, fault("c"), ABC, acks={"a": 1}, cover={"a": 0, "c": 0}), "a")
    assert table.views("a") == ["ab"]


def test_faults_reported_in_stage_1_are_part_of_the_commitment() -> None:
    table = Table("abc", "d")
    table.attempt("d")
    table.hand("d:1", "a")
    table.offer(control("b", 1, fault("c"), ABC, cover={"a": 0, "c": 0}), "a")
    table.alpha("a")
    assert bodies(table, "a")[-1] == join("abc", "d", faults="c")


def test_a_break_with_a_member_ends_stage_1_at_once() -> None:
    table = Table("abc", "d")
    table.attempt("d")
    table.hand("d:1", "a")
    table.break_with("a", "c")
    assert table.entered("a")[-1] == (COMMITTED, Cause.SILENT)
    assert bodies(table, "a")[-1] == join("abc", "d", faults="c")


def test_a_break_with_a_member_when_nobody_joins_is_just_a_fault() -> None:
    table = Table("abc", "d")
    table.attempt("a")
    table.break_with("a", "c")
    assert table.entered("a")[-1] == (FAULTS, Cause.SILENT)
    assert bodies(table, "a")[-1] == fault("c")


def test_a_joining_machine_that_breaks_in_stage_1_is_left_out() -> None:
    table = Table("a", "b", "c")
    for name in "bc":
        table.attempt(name)
        table.hand(f"{name}:1", "a")
    table.break_with("a", "c")
    assert table["a"].stage is GATHERING
    table.alpha("a")
    assert bodies(table, "a")[-1] == join("a", "b", "c", faults="c")
    assert names(table["a"].accept) == "ab"


def test_a_member_that_has_committed_takes_us_along_even_if_its_joiner_breaks() -> None:
    table = Table("ab", "c")
    table.attempt("c")
    table.hand("c:1", "a")
    table.alpha("a")
    table.hand("a:1 c:1 a:2", "b")
    table.break_with("b", "c")
    table.alpha("b")
    assert table.entered("b")[-1] == (COMMITTED, Cause.ALPHA_EXPIRED)
    assert table.last("b").accuses(machine("c"))


def test_a_join_that_would_be_too_large_leaves_out_the_last_of_the_newcomers() -> None:
    table = Table("ab", "c", "d", "e")
    table.members_max = 3
    for name in "acde":
        table.attempt(name)
    table.hand("e:1 c:1 d:1", "a")
    assert suspicions(table, "a") == [("e", Cause.NO_ROOM), ("d", Cause.NO_ROOM)]
    assert names(table["a"].accept) == "abc"
    table.alpha("a")
    table.settle("abc")
    assert table.views("a") == table.views("c") == ["abc"]
    assert names(table.installed("a")[-1].absent) == "de"


# Invitations


def test_a_foreign_attempt_is_answered_with_our_own() -> None:
    table = Table("ab", "c")
    table.attempt("c")
    table.hand("c:1", "a")
    assert table.entered("a") == [(GATHERING, Cause.INVITED)]
    assert bodies(table, "a") == [attempt("ab")]
    assert names(table["a"].join_machines) == "abc"


def test_a_foreign_commitment_that_includes_us_is_an_invitation() -> None:
    table = Table("ab", "c")
    table.offer(control("c", 2, join("c", "ab")), "a")
    assert table.entered("a") == [(GATHERING, Cause.INVITED)]
    table.offer(control("c", 1, attempt("c")), "a")
    table.alpha("a")
    assert bodies(table, "a")[-1] == join("ab", "c")
    assert table["a"].awaited() == {machine("b")}


@pytest.mark.parametrize("body", [join("c", "d"), join("c", "ab", faults="a"), fault("d")])
def test_what_does_not_include_us_invites_us_to_nothing(body: Body) -> None:
    table = Table("ab", "c")
    table.offer(control("c", 1, body), "a")
    assert table["a"].stage is IDLE
    assert machine("c") not in table["a"].dag.streams


def test_nobody_is_invited_by_a_set_it_is_not_in() -> None:
    table = Table("a", "c", "d")
    table.offer(control("c", 1, attempt("d")), "a")
    assert table["a"].stage is IDLE


def test_who_does_not_hear_everybody_of_ours_invites_in_vain() -> None:
    table = Table("ab", "cd")
    table.strangers = {"ad"}
    table.attempt("c")
    table.hand("c:1", "a", "b")
    assert table["a"].stage is IDLE
    assert table["b"].stage is GATHERING


def test_a_machine_that_a_join_leaves_behind_as_faulty_need_not_hear_us() -> None:
    table = Table("a", "bc")
    table.strangers = {"ac"}
    table.offer(control("b", 1, join("a", "bc", faults="c"), view_id("bc"), cover={"c": 0}), "a")
    assert table.entered("a") == [(GATHERING, Cause.INVITED)]


def test_an_invitation_comes_too_late_in_the_middle_of_a_change() -> None:
    for stage in (FAULTS, COMMITTED):
        table = in_stage(stage)
        table.attempt("e")
        table.hand("e:1", "a")
        assert machine("e") not in table["a"].dag.streams


def test_who_is_not_heard_any_more_when_its_attempt_enters_is_not_gathered() -> None:
    table = Table("a", "c", "d")
    table.offer(control("c", 2, join("a", "c")), "a")
    table.offer(control("d", 1, attempt("d"), acks={"c": 1}), "a")  # waits for c's first message
    table.strangers = {"ad"}
    table.offer(control("c", 1, attempt("c")), "a")
    assert dict(table["a"].dag.acks())[machine("d")] == 1
    assert names(table["a"].join_machines) == "ac"


def test_a_foreign_commitment_without_us_or_with_strangers_is_not_followed_in_stage_1() -> None:
    for body in (join("c", "d"), join("a", "c", "d")):
        table = Table("a", "c", "d")
        table.strangers = {"ad"}
        table.attempt("c")
        table.hand("c:1", "a")
        table.offer(control("c", 2, body), "a")
        assert dict(table["a"].dag.acks())[machine("c")] == 2
        assert names(table["a"].join_machines) == "ac"
        assert machine("c") not in table["a"].last_join


def test_whoever_learns_of_a_set_from_a_join_can_follow_it() -> None:
    table = Table("a", "b", "c")
    for name in "abc":
        table.attempt(name)
    table.hand("c:1", "b")
    table.alpha("b")
    table.hand("b:1 b:2", "a")
    assert machine("c") in table["a"].dag.streams  # b:2 follows c:1, and waits for it
    assert names(table["a"].join_machines) == "ab"
    table.hand("c:1", "a")
    assert names(table["a"].join_machines) == "abc"


def test_a_join_that_waits_when_nobody_seems_to_have_answered_can_be_followed() -> None:
    table = Table("ab", "c")
    table.attempt("c")
    table.hand("c:1", "b")  # and b answers with b:1
    table.alpha("b")
    table.hand("b:1 b:2", "a")  # b:2, the JOIN, waits for c:1
    table.alpha("a")
    assert table.entered("a")[-1] == (IDLE, Cause.NOBODY_ANSWERED)
    assert machine("c") in table["a"].dag.streams
    table.settle("abc")
    assert [table.views(name) for name in "abc"] == [["abc"]] * 3


def test_a_join_that_waits_when_a_member_breaks_can_be_followed() -> None:
    table = Table("abd", "c")
    table.attempt("c")
    table.hand("c:1", "b")
    table.alpha("b")
    table.hand("b:1 b:2", "a")
    table.break_with("a", "d")
    assert table["a"].stage is FAULTS
    assert machine("c") in table["a"].dag.streams
    table.settle("abc")
    assert [table.views(name) for name in "abc"] == [["abc"]] * 3


def test_a_join_of_the_next_view_that_arrives_before_the_view_can_be_followed() -> None:
    table = Table("abd", "c")
    for name in "ab":
        table.break_with(name, "d")
    table.hand("a:1", "b")
    assert table.views("b") == ["ab"]
    table.attempt("c")
    table.hand("c:1", "b")
    table.alpha("b")
    table.hand("b:3 b:2 b:1", "a")
    assert table.views("a") == ["ab"]
    assert machine("c") in table["a"].dag.streams
    table.settle("abc")
    assert [table.views(name)[-1] for name in "abc"] == ["abc"] * 3


# Fig. 7: Stage 2


def test_a_commitment_we_know_is_noted_and_not_answered() -> None:
    table = committed("a", "b", "c")
    table.alpha("b")
    table.hand("b:2", "a")
    assert len(table.sent("a")) == 2
    assert table["a"].awaited() == {machine("c")}


def test_the_view_comes_when_all_have_committed_to_the_same() -> None:
    table = committed("ab", "c")
    table.alpha("b", "c")
    table.hand("a:2 b:2", "c")
    table.hand("b:2 c:2", "a")
    assert table.views("a") == table.views("c") == ["abc"]
    assert table["a"].view.id == table["c"].view.id
    assert names(table["a"].view.transitional) == "ab"
    assert names(table["c"].view.transitional) == "c"


def test_a_commitment_to_more_machines_is_answered_with_another() -> None:
    table = Table("a", "b", "c")
    for name in "abc":
        table.attempt(name)
    table.hand("b:1", "a")
    table.alpha("a")
    table.hand("a:1 c:1", "b")
    table.alpha("b")
    table.hand("b:2 c:1", "a")
    assert bodies(table, "a")[1:] == [join("a", "b"), join("a", "b", "c")]


def test_a_commitment_to_more_faults_is_answered_with_another() -> None:
    table = committed("abc", "d")
    table.break_with("b", "c")
    table.hand("b:2", "a")
    assert bodies(table, "a")[1:] == [join("abc", "d"), join("abc", "d", faults="c")]


def test_a_break_after_committing_is_a_fault_of_the_same_commitment() -> None:
    table = committed("a", "b", "c")
    table.break_with("a", "c")
    assert bodies(table, "a")[-1] == fault("c")
    assert names(table["a"].accept) == "ab"
    table.break_with("a", "b")
    assert bodies(table, "a")[-1] == fault("bc")


def test_a_fault_of_the_same_commitment_is_concurred_with_once() -> None:
    table = committed("a", "b", "c")
    table.alpha("b")
    table.break_with("b", "c")
    table.hand("b:2 b:3", "a")
    assert bodies(table, "a")[-1] == fault("c")
    assert table.views("a") == ["ab"]
    table.hand("a:2 a:3", "b")
    assert table.views("b") == ["ab"]
    assert len(table.sent("a")) == len(table.sent("b")) == 3


def test_a_fault_of_another_commitment_makes_a_new_one() -> None:
    table = committed("ab", "c", "d")
    table.offer(control("b", 2, fault("c"), view_id("ab"), cover={"a": 0}), "a")  # b has not committed to abcd
    assert bodies(table, "a")[-1] == join("ab", "c", "d", faults="c")


def test_a_fault_of_another_commitment_that_says_nothing_new_changes_nothing() -> None:
    table = committed("ab", "c", "d")
    table.offer(control("b", 2, join("ab", "c", "d", faults="c"), view_id("ab"), cover={"a": 0}), "a")
    count = len(table.sent("a"))
    table.offer(control("b", 3, fault("c"), view_id("ab"), cover={"a": 0}), "a")
    assert len(table.sent("a")) == count


def test_who_is_outside_the_commitment_is_not_listened_to() -> None:
    table = committed("a", "b", "c")
    table.break_with("a", "c")
    table.offer(control("c", 2, join("a", "b", "c", "d")), "a")
    table.offer(control("c", 2, fault("b")), "a")
    assert names(table["a"].accept) == "ab"
    assert names(table["a"].join_machines) == "abc"


def test_what_a_machine_says_before_the_commitment_includes_it_counts_when_it_does() -> None:
    table = Table("a", "b", "c")
    for name in "abc":
        table.attempt(name)
    table.hand("a:1", "b")
    table.hand("a:1 b:1", "c")
    table.alpha("b", "c")
    table.hand("b:1 c:1 c:2", "a")
    table.alpha("a")
    assert names(table["b"].join_machines) == "ab"
    table.hand("a:2 c:1 c:2 b:2", "b")  # a:2 follows c:2, which comes when c is a stranger to b
    assert bodies(table, "b")[-1] == join("a", "b", "c")
    assert table.views("b") == ["abc"]


def test_an_accusation_of_a_machine_outside_the_commitment_counts_when_it_comes_in() -> None:
    table = Table("a", "b", "c", "d")
    for name in "abcd":
        table.attempt(name)
    table.hand("a:1", "b")
    table.hand("a:1 b:1", "c")
    table.alpha("b", "c")
    table.hand("b:1 c:1 c:2 d:1", "a")
    table.alpha("a")
    table.break_with("c", "b")
    table.hand("a:2 c:1 c:2 c:3", "b")  # c has agreed to a join with b, and then given it up
    assert suspicions(table, "b") == []
    table.hand("d:1", "b")  # now a:2 enters, and c is in J
    assert suspicions(table, "b") == [("c", Cause.ACCUSED_ME)]
    assert names(table["b"].accept) == "abd"
