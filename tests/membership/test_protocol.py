"""The protocol without time and network: one machine's answer to each input in each stage (Figs. 3 and 5 to 8).

`tests/paper/` shows what the answers of all machines together guarantee.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise, product

import pytest

from membership.messages import Attempt, Body, Control, Join, JoiningSet
from membership.protocol import TRANSITIONS, BrokenInvariant, Cause, Entered, Stage, Suspected
from tests.membership.adversary import Adversary
from tests.membership.harness import (
    Table,
    attempt,
    control,
    fault,
    ids,
    join,
    machine,
    machines,
    names,
    view_id,
)
from transport.messages import Machine, ViewId

IDLE, FAULTS, GATHERING, COMMITTED = Stage
ABC = view_id("abc")


def suspicions(table: Table, name: str) -> list[tuple[str, Cause]]:
    outputs = table.outputs[name]
    return [(names(output.machines), output.cause) for output in outputs if isinstance(output, Suspected)]


def bodies(table: Table, name: str) -> list[Body]:
    return [sent.body for sent in table.sent(name)]


# Every stage, every input


def in_stage(stage: Stage) -> Table:
    """Member a of the view abcz is in this stage; d and e are foreign. In Stages 1 and 2, d is about to join.
    Nobody hears from z, so that no view comes about."""
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
    """What this machine might say next arrives at a."""

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


# Fig. 7: Stage 2


def committed(*components: str) -> Table:
    """Everybody has gathered everybody, and a has committed."""
    table = Table(*components)
    everybody = "".join(components)
    for name in everybody:
        table.attempt(name)
    for name in everybody:
        table.hand(f"{name}:1", *everybody.replace(name, ""))
    table.alpha("a")
    return table


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
    """An attempt of the same name's next incarnation."""
    again = Machine(name, 2)
    view = ViewId(clock, *again)
    return Control(again, sequence, clock + sequence, view, (), (), Attempt(JoiningSet(view, ((again, 0),))))


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
    assert isinstance(again.body, Attempt)
    later = control("b", 1, Join((attempt("ab").joining, again.body.joining), ()), view_id("ab"), cover={"a": 0})
    table.offer(later, "a")
    assert suspicions(table, "a") == [("b", Cause.ACCUSED_ME)]
    assert table.views("a") == ["a"]


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
