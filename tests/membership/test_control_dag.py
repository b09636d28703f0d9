"""The graph of control messages: which may enter it, in which order, and which are kept to be repeated."""

from __future__ import annotations

from collections.abc import Mapping

from membership.control_dag import ControlDag
from membership.messages import Control
from tests.membership.builders import attempt, control, machine, machines, short_id

A, B, C, D = machines("abcd")


def message(sender: str, sequence: int, acks: Mapping[str, int] | None = None) -> Control:
    return control(sender, sequence, attempt(sender), acks=acks)


def graph(followed: str = "bc", log_max: int = 64) -> ControlDag:
    """Returns the graph of a, which follows these machines."""
    dag = ControlDag(A, log_max)
    for name in followed:
        dag.track(machine(name), 0)
    return dag


def enter(dag: ControlDag, suspects: str = "") -> list[str]:
    """Lets every message enter that may, and returns their ids in the order of entry."""
    entered: list[str] = []
    while (taken := dag.take_next(machines(suspects), lambda control: True)) is not None:
        entered.append(short_id(taken))
    return entered


# What may enter


def test_messages_of_one_sender_enter_in_order() -> None:
    dag = graph()
    for sequence in (3, 1):
        dag.store(message("b", sequence))
    assert enter(dag) == ["b:1"]
    dag.store(message("b", 2))
    assert enter(dag) == ["b:2", "b:3"]


def test_a_message_enters_after_those_it_follows() -> None:
    dag = graph()
    dag.store(message("b", 1, acks={"c": 2}))
    dag.store(message("c", 1))
    assert enter(dag) == ["c:1"]
    dag.store(message("c", 2))
    assert enter(dag) == ["c:2", "b:1"]


def test_what_machines_say_whom_we_do_not_follow_is_not_waited_for() -> None:
    dag = graph("b")
    dag.store(message("b", 1, acks={"c": 7}))
    assert enter(dag) == ["b:1"]


def test_nothing_before_the_cut_counter_is_waited_for() -> None:
    dag = graph("b")
    dag.track(C, 5)
    dag.store(message("b", 1, acks={"c": 5}))
    dag.store(message("c", 6))
    assert enter(dag) == ["b:1", "c:6"]
    assert not dag.is_new(message("c", 5))


def test_the_first_cut_counter_counts() -> None:
    dag = graph("")
    dag.track(C, 5)
    dag.track(C, 0)
    assert dag.positions() == ((A, 0), (C, 5))


def test_the_caller_has_the_last_word_and_nobody_else_waits_for_it() -> None:
    dag = graph()
    for sender in "bc":
        dag.store(message(sender, 1))
    taken = dag.take_next((), lambda control: control.sender == C)
    assert taken == message("c", 1)
    assert dag.take_next((), lambda control: False) is None
    assert list(dag.pending()) == [message("b", 1)]


# Suspects


def test_nothing_of_a_suspect_enters_that_nobody_else_has() -> None:
    dag = graph()
    dag.store(message("c", 1))
    dag.store(message("b", 1))
    assert enter(dag, suspects="c") == ["b:1"]
    assert dag.has_pending()


def test_what_somebody_has_of_a_suspect_may_still_enter_and_no_more() -> None:
    dag = graph()
    for sequence in (1, 2):
        dag.store(message("c", sequence))
    dag.store(message("b", 1, acks={"c": 1}))
    assert enter(dag, suspects="c") == ["c:1", "b:1"]


def test_a_message_that_waits_itself_shows_what_its_sender_has() -> None:
    dag = graph("bcd")
    dag.store(message("c", 1))
    dag.store(message("b", 2, acks={"c": 1}))  # b:1 is missing
    assert enter(dag, suspects="c") == ["c:1"]


def test_what_waits_vouches_for_a_suspect_even_if_what_came_after_it_does_not() -> None:
    dag = graph()
    dag.store(message("c", 1))
    dag.store(message("b", 1, acks={"c": 1}))
    dag.store(message("b", 2))  # b does not follow c any more
    assert enter(dag, suspects="c") == ["c:1", "b:1", "b:2"]


def test_one_suspect_does_not_vouch_for_another() -> None:
    dag = graph("bcd")
    dag.store(message("c", 1))
    dag.store(message("b", 1, acks={"c": 1}))
    assert enter(dag, suspects="bc") == []


# What is said of it


def test_acknowledgements_are_for_what_is_in_the_graph() -> None:
    dag = graph()
    dag.store(message("b", 1))
    dag.store(message("b", 3))
    assert dag.acks() == ((B, 0), (C, 0))
    enter(dag)
    assert dag.acks() == ((B, 1), (C, 0))
    dag.add_own(message("a", 1))
    assert dag.own_sequence == 1
    assert dag.positions() == ((A, 1), (B, 1), (C, 0))


def test_a_message_is_new_once() -> None:
    dag = graph()
    assert dag.is_new(message("b", 1))
    dag.store(message("b", 1))
    assert not dag.is_new(message("b", 1))
    enter(dag)
    assert not dag.is_new(message("b", 1))


def test_who_is_not_followed_any_more_is_forgotten() -> None:
    dag = graph()
    dag.store(message("c", 2))
    dag.keep_only({A, B})
    assert list(dag.streams) == [A, B]
    assert not dag.has_pending()


# What is kept to be repeated


def test_everything_heard_can_be_repeated_in_the_graph_or_not() -> None:
    dag = graph()
    for sequence in (3, 1):
        dag.store(message("b", sequence))
    dag.add_own(message("a", 1))
    assert [*map(short_id, dag.since(B, 0))] == ["b:1", "b:3"]
    assert [*map(short_id, dag.since(B, 1))] == ["b:3"]
    assert [*map(short_id, dag.since(A, 0))] == ["a:1"]
    assert dag.since(D, 0) == []


def test_of_each_sender_the_last_are_kept() -> None:
    dag = graph(log_max=3)
    for sequence in range(1, 8):
        dag.store(message("b", sequence))
        dag.add_own(message("a", sequence))
    for sender in (A, B):
        assert [kept.sequence for kept in dag.since(sender, 0)] == [5, 6, 7]


def test_what_those_said_who_took_part_in_a_view_is_kept_until_the_next_but_one() -> None:
    dag = graph()
    dag.store(message("c", 1))
    dag.prune_log()  # c took part, as somebody who was to join, say
    dag.keep_only({A, B})
    dag.prune_log()
    assert dag.since(C, 0) == [message("c", 1)]
    dag.prune_log()
    assert dag.since(C, 0) == []
    assert C not in dag.logged()
