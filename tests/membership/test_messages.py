"""The messages of the membership: each value is checked when it is built, by the codec or by the protocol."""

from __future__ import annotations

from random import Random

import pytest

from membership.messages import Control, in_order
from tests.membership.builders import attempt, control, fault, join, joining, machine, machines
from transport.messages import Machine, ViewId

A, B, C = machines("abc")
VIEW = ViewId(1, "a", 1)


def test_a_control_message_is_named_by_its_sender_and_number() -> None:
    assert control("a", 7, attempt("a")).id == "a.1:7"


def test_sets_of_machines_travel_in_order_of_name_and_incarnation() -> None:
    ordered = (Machine("a", 1), Machine("a", 2), Machine("b", 1), Machine("b", 10))
    assert in_order(frozenset(Random(1).sample(ordered, 4))) == ordered


def test_a_joining_set_is_its_cut_vectors_machines() -> None:
    assert joining("ab", b=4).machines == {A, B}


def test_a_join_is_for_the_machines_of_all_its_sets_faulty_or_not() -> None:
    assert join("ab", "c", faults="b").machines == {A, B, C}


def test_sequences_and_clocks_count_from_one() -> None:
    for sequence, clock in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="count from 1"):
            Control(A, sequence, clock, VIEW, (), (), attempt("a"))


def test_what_ends_a_view_covers_its_senders_own_messages() -> None:
    for body in (join("a", "b"), fault("b")):
        with pytest.raises(ValueError, match="covers its sender's own"):
            Control(A, 1, 1, VIEW, (), ((B, 3),), body)
        assert Control(A, 1, 1, VIEW, (), ((A, 3),), body).cover == ((A, 3),)
    assert Control(A, 1, 1, VIEW, (), (), attempt("a")).cover == ()  # it ends nothing


def test_faults_and_joins_accuse_whom_they_declare_faulty_and_attempts_nobody() -> None:
    assert control("a", 1, fault("b")).accuses(B)
    assert control("a", 1, join("ab", "c", faults="b")).accuses(B)
    assert not control("a", 1, join("ab", "c", faults="b")).accuses(C)
    assert not control("a", 1, fault("c")).accuses(B)
    assert not control("a", 1, attempt("ab")).accuses(B)


def test_only_this_incarnation_is_accused() -> None:
    assert not control("a", 1, fault("b")).accuses(machine("b", 2))
