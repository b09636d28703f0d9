"""Every checker of the membership layer accepts a history that keeps its property, and catches the nearest one
that does not."""

from __future__ import annotations

import pytest

from tests.simulator.checkers import Violation
from tests.simulator.checkers.ascending_views import AscendingViews
from tests.simulator.checkers.causal_cut import CausalCut
from tests.simulator.checkers.membership import MembershipChecker, Period
from tests.simulator.checkers.nothing_lost import NothingLost
from tests.simulator.checkers.own_view import OwnView
from tests.simulator.checkers.timestamp_order import TimestampOrder
from tests.simulator.checkers.view_agreement import ViewAgreement
from tests.simulator.checkers.virtual_synchrony import VirtualSynchrony
from transport.messages import ORDERED, Machine, Message, Service, View, ViewId

A, B, C = (Machine(name, 1) for name in "abc")
A_AGAIN = Machine("a", 2)
BASIC, CAUSAL, AGREED, SAFE = Service


def view(clock: int, *members: Machine, transitional: tuple[Machine, ...] | None = None) -> View:
    """By default all members come from the same view."""
    return View(ViewId(clock, "a", 1), members, members if transitional is None else transitional)


FIRST, SECOND, THIRD = (view(clock, A, B, C) for clock in (10, 20, 30))


def message(sender: Machine, clock: int, of: View = FIRST, service: Service = AGREED) -> Message:
    """Returns a message whose clock is also its sequence and the number that its sender gave it."""
    return Message(clock, sender, clock, service, of.id, b"")


class History:
    """Passes events to a checker, as `MembershipRun` does."""

    def __init__(self, checker: MembershipChecker, *machines: Machine) -> None:
        """The machines begin in the first view."""
        self._checker = checker
        self._periods: dict[Machine, Period] = {}
        for machine in machines:
            self._periods[machine] = Period(machine, FIRST, None)

    def installs(self, machine: Machine, new_view: View) -> None:
        old = self._periods.get(machine)
        new = Period(machine, new_view, old.view if old is not None else None)
        self._periods[machine] = new
        self._checker.installed(old, new)

    def sends(self, *numbers: int, by: Machine, service: Service = AGREED) -> None:
        for number in numbers:
            self._checker.multicast(number, self._periods[by], service)

    def delivers(self, machine: Machine, *messages: Message, number: int | None = None) -> None:
        period = self._periods[machine]
        for message in messages:
            self._checker.delivered(message.clock if number is None else number, period, message)
            if message.service in ORDERED:
                period.ordered.append(message)
            elif message.service is CAUSAL:
                period.causal.add((message.sender, message.sequence))

    def ends(self) -> None:
        """Ends the run; the last incarnation of each name lives."""
        self._checker.finished({machine.name: self._periods[machine] for machine in self._periods}, is_whole=True)


# Ascending views


def test_ascending_views_accepts_ids_that_ascend_at_each_machine() -> None:
    history = History(AscendingViews())
    for machine in (A, B):
        history.installs(machine, view(10, A, B))
        history.installs(machine, view(30, A, B))
    history.installs(C, view(20, C))
    history.installs(A_AGAIN, view(31, A_AGAIN))


@pytest.mark.parametrize("machine", [A, A_AGAIN], ids=["in one life", "after a restart"])
@pytest.mark.parametrize(
    "last",
    [ViewId(9, "b", 1), ViewId(10, "a", 1), ViewId(10, "b", 1)],
    ids=["a lower clock", "a lower name", "again"],
)
def test_ascending_views_catches(machine: Machine, last: ViewId) -> None:
    history = History(AscendingViews())
    history.installs(A, View(ViewId(10, "b", 1), (A,)))
    with pytest.raises(Violation, match=rf"{machine} installs {last} after 10.b.1"):
        history.installs(machine, View(last, (machine,)))


# Agreement on views


def merged(*transitional: Machine) -> View:
    """Returns the view of all three, as a machine has it that comes from the same view as these."""
    return view(20, A, B, C, transitional=transitional)


def before_merging() -> History:
    """`a` and `b` are in one view, `c` is in another."""
    history = History(ViewAgreement())
    for machine in (A, B):
        history.installs(machine, view(1 if machine is A else 2, machine))
        history.installs(machine, view(11, A, B, transitional=(machine,)))
    history.installs(C, view(12, C))
    return history


def test_view_agreement_accepts_two_views_that_merge() -> None:
    history = before_merging()
    history.installs(A, merged(A, B))
    history.installs(C, merged(C))
    history.installs(B, merged(A, B))


def test_view_agreement_accepts_views_that_part() -> None:
    history = before_merging()
    history.installs(A, view(20, A))
    history.installs(B, view(21, B))


def test_view_agreement_catches_two_memberships_of_one_view() -> None:
    history = before_merging()
    history.installs(A, view(20, A, B))
    with pytest.raises(Violation, match=r"b\.1 has .*, a\.1 has"):
        history.installs(B, view(20, A, B, C, transitional=(A, B)))


def test_view_agreement_catches_a_view_installed_by_a_machine_outside_it() -> None:
    history = before_merging()
    with pytest.raises(Violation, match=r"c\.1 installs .* of which it is no member"):
        history.installs(C, view(20, A, B))


def test_view_agreement_catches_a_view_installed_twice() -> None:
    history = before_merging()
    history.installs(A, view(20, A, B))
    with pytest.raises(Violation, match=r"a\.1 installs 20\.a\.1 twice"):
        history.installs(A, view(20, A, B))


@pytest.mark.parametrize(
    ("machine", "transitional", "complaint"),
    [
        (B, (B,), r"b\.1 and a\.1 come from 11\.a\.1, but"),
        (B, (A, B, C), "has transitional"),
        (C, (B, C), "has transitional"),
        (C, (), "has transitional"),
    ],
    ids=["less than came together", "one of another view", "another of another view", "not even itself"],
)
def test_view_agreement_catches_a_wrong_transitional_set(
    machine: Machine, transitional: tuple[Machine, ...], complaint: str
) -> None:
    history = before_merging()
    history.installs(A, merged(A, B))
    with pytest.raises(Violation, match=complaint):
        history.installs(machine, merged(*transitional))


def test_view_agreement_catches_one_who_had_left_for_another_view_meanwhile() -> None:
    history = before_merging()
    history.installs(B, view(15, B))
    history.installs(A, merged(A, B))
    with pytest.raises(Violation, match=r"a\.1 \(from 11\.a\.1\) has transitional .* b\.1 came from 15\.a\.1"):
        history.installs(B, merged(B))


def test_view_agreement_catches_two_opinions_of_one_who_never_comes() -> None:
    history = before_merging()
    for machine in (A, B):
        history.installs(machine, merged(A, B))
    history.installs(C, merged(C))
    history.installs(A, view(30, A, B, C))
    with pytest.raises(Violation, match=r"b\.1 and a\.1 come from 20\.a\.1, but"):
        history.installs(B, view(30, A, B, C, transitional=(A, B)))


def test_view_agreement_catches_a_transitional_set_with_one_who_is_no_member_any_more() -> None:
    history = before_merging()
    with pytest.raises(Violation, match="has transitional"):
        history.installs(A, view(20, A, transitional=(A, B)))


# Virtual synchrony


def test_virtual_synchrony_accepts_the_same_between_the_same_views() -> None:
    history = History(VirtualSynchrony(), A, B)
    first, second = message(A, 1), message(B, 2, service=SAFE)
    one, another = message(A, 3, service=CAUSAL), message(B, 4, service=CAUSAL)
    history.delivers(A, first, one, second, another, message(C, 5, service=BASIC))
    history.delivers(B, another, first, second, one)
    for machine in (A, B):
        history.installs(machine, SECOND)


def test_virtual_synchrony_asks_nothing_of_those_who_part() -> None:
    history = History(VirtualSynchrony(), A, B, C)
    history.delivers(A, message(A, 1))
    history.installs(A, view(20, A, B))
    history.installs(C, view(21, C))
    history.installs(B, view(22, B))


@pytest.mark.parametrize(
    "theirs",
    [
        (message(A, 1), message(A, 3, service=CAUSAL)),
        (message(B, 2), message(A, 1), message(A, 3, service=CAUSAL)),
        (message(A, 1), message(B, 2)),
        (message(A, 1), message(B, 2), message(B, 3, service=CAUSAL)),
        (message(A, 1), message(B, 2)._replace(payload=b"other"), message(A, 3, service=CAUSAL)),
    ],
    ids=["an ordered one less", "another order", "a causal one less", "another causal one", "another content"],
)
def test_virtual_synchrony_catches(theirs: tuple[Message, ...]) -> None:
    history = History(VirtualSynchrony(), A, B)
    history.delivers(A, message(A, 1), message(B, 2), message(A, 3, service=CAUSAL))
    history.delivers(B, *theirs)
    history.installs(A, SECOND)
    with pytest.raises(Violation, match=r"b\.1 and a\.1 went from 10\.a\.1 to 20\.a\.1, but delivered"):
        history.installs(B, SECOND)


def test_virtual_synchrony_catches_the_third_that_differs() -> None:
    history = History(VirtualSynchrony(), A, B, C)
    for machine in (A, B):
        history.delivers(machine, message(A, 1))
        history.installs(machine, SECOND)
    with pytest.raises(Violation, match=r"c\.1 and a\.1 went from"):
        history.installs(C, SECOND)


# Timestamp order


def test_timestamp_order_accepts_timestamps_that_ascend_across_views() -> None:
    history = History(TimestampOrder(), A, B)
    history.delivers(A, message(A, 1), message(B, 1), message(C, 4, service=CAUSAL), message(C, 3, service=SAFE))
    history.delivers(B, message(B, 1), message(C, 3, service=SAFE))
    history.installs(A, SECOND)
    history.delivers(A, message(A, 21, SECOND))


def test_timestamp_order_accepts_that_a_restarted_machine_begins_anew() -> None:
    history = History(TimestampOrder(), A)
    history.delivers(A, message(B, 5))
    history.installs(A_AGAIN, SECOND)
    history.delivers(A_AGAIN, message(B, 4))


@pytest.mark.parametrize("second", [message(C, 4), message(A, 5)], ids=["a lower clock", "a lower name"])
@pytest.mark.parametrize("is_in_next_view", [False, True], ids=["in a view", "across views"])
def test_timestamp_order_catches_a_step_back(second: Message, is_in_next_view: bool) -> None:
    history = History(TimestampOrder(), A)
    history.delivers(A, message(B, 5))
    if is_in_next_view:
        history.installs(A, SECOND)
    with pytest.raises(Violation, match=r"a\.1 delivers .* after"):
        history.delivers(A, second)


@pytest.mark.parametrize("service", [AGREED, SAFE, CAUSAL], ids=lambda service: service.name)
def test_timestamp_order_catches_two_messages_with_one_timestamp(service: Service) -> None:
    history = History(TimestampOrder(), A, B)
    history.delivers(A, message(C, 5, service=service), number=0)
    with pytest.raises(Violation, match="both have timestamp"):
        history.delivers(B, message(C, 5, service=service), number=1)


def test_timestamp_order_catches_a_message_with_two_timestamps() -> None:
    history = History(TimestampOrder(), A, B)
    history.delivers(A, message(C, 5), number=0)
    with pytest.raises(Violation, match="has timestamps"):
        history.delivers(B, message(C, 6), number=0)


# Messages in their own view


def test_own_view_accepts_one_delivery_at_each_member_of_the_view() -> None:
    history = History(OwnView(), A, B)
    history.sends(1, 2, by=A)
    for machine in (A, B):
        history.delivers(machine, message(A, 1), message(A, 2))


def test_own_view_accepts_a_message_that_waited_for_the_next_view() -> None:
    history = History(OwnView(), A, B)
    history.sends(1, by=A)
    for machine in (A, B):
        history.installs(machine, SECOND)
        history.delivers(machine, message(A, 1, SECOND))


@pytest.mark.parametrize(
    ("here", "sent"),
    [
        (SECOND, message(A, 1, FIRST)),
        (view(20, B, C), message(A, 1, SECOND)),
        (view(20, A, C), message(A, 1, SECOND)),
    ],
    ids=["of the last view", "of no member", "by no member"],
)
def test_own_view_catches_a_message_where_it_does_not_belong(here: View, sent: Message) -> None:
    history = History(OwnView(), A, B)
    history.sends(1, by=A)
    history.installs(B, here)
    with pytest.raises(Violation, match=r"b\.1 delivers a\.1\.1 of .* in View"):
        history.delivers(B, sent)


def test_own_view_catches_a_message_of_two_views() -> None:
    history = History(OwnView(), A, B)
    history.sends(1, by=A)
    history.delivers(A, message(A, 1))
    history.installs(B, SECOND)
    with pytest.raises(Violation, match=r"is delivered in 10\.a\.1 and in 20\.a\.1"):
        history.delivers(B, message(A, 1, SECOND))


def test_own_view_catches_a_message_of_a_view_its_sender_had_left() -> None:
    history = History(OwnView(), A, B)
    history.installs(A, SECOND)
    history.sends(1, by=A)
    with pytest.raises(Violation, match=r"of 10\.a\.1 was multicast in 20\.a\.1"):
        history.delivers(B, message(A, 1))


def test_own_view_catches_a_message_that_nobody_sent() -> None:
    with pytest.raises(Violation, match="which no machine has sent"):
        History(OwnView(), A, B).delivers(B, message(A, 1))


def test_own_view_catches_the_second_delivery() -> None:
    history = History(OwnView(), A, B)
    history.sends(1, by=A)
    history.delivers(B, message(A, 1))
    with pytest.raises(Violation, match=r"b\.1 delivers message 1 of a\.1 twice"):
        history.delivers(B, message(A, 1))


# The causal cut: `a` is the property's p, `b` its q; m and m' are `c`'s messages 1 and 2, m'' is `b`'s message 3.

M, M_PRIME, M_SECOND = message(C, 1), message(C, 2), message(B, 3)


def cut(*delivered_by_b: Message, service: Service = AGREED) -> History:
    """Makes `b` deliver these, and then send m''."""
    history = History(CausalCut(), A, B, C)
    history.sends(1, 2, by=C)
    history.delivers(B, *delivered_by_b)
    history.sends(3, by=B, service=service)
    return history


def test_causal_cut_accepts_a_sender_that_had_all_that_is_before_its_message() -> None:
    history = cut(M, M_PRIME)
    history.delivers(A, M, M_PRIME, M_SECOND)
    history.delivers(B, M_SECOND)
    history.ends()


def test_causal_cut_accepts_that_the_sender_had_less_of_the_end() -> None:
    history = cut(M)
    history.delivers(A, M, M_PRIME, M_SECOND)
    history.ends()


def test_causal_cut_catches_a_hole_in_what_the_sender_had() -> None:
    history = cut(M_PRIME)
    history.delivers(A, M, M_PRIME)
    with pytest.raises(Violation, match=r"a\.1 delivers b\.1\.3, whose sender had c\.1\.2 but not \['c\.1\.1'\]"):
        history.delivers(A, M_SECOND)


def test_causal_cut_catches_a_hole_that_shows_after_the_message() -> None:
    history = cut(M_PRIME, service=BASIC)
    history.delivers(A, message(B, 3, service=BASIC), M, M_PRIME)
    with pytest.raises(Violation, match=r"whose sender had c\.1\.2 but not"):
        history.ends()


def test_causal_cut_accepts_causes_that_come_after_the_message() -> None:
    history = cut(M, M_PRIME, service=BASIC)
    history.delivers(A, message(B, 3, service=BASIC), M, M_PRIME)
    history.ends()


def test_causal_cut_asks_nothing_of_a_message_that_waited_for_the_next_view() -> None:
    history = cut(M_PRIME)
    history.delivers(A, M, M_PRIME)
    for machine in (A, B):
        history.installs(machine, SECOND)
    history.delivers(A, message(B, 3, SECOND))
    history.ends()


# Nothing lost


def test_nothing_lost_accepts_what_reaches_all_of_the_last_view() -> None:
    history = History(NothingLost(), A, B, C)
    history.sends(1, 2, by=A)
    for machine in (A, B, C):
        history.delivers(machine, message(A, 1), message(A, 2))
    history.ends()


def test_nothing_lost_accepts_what_an_earlier_view_lost_at_others() -> None:
    history = History(NothingLost(), A, B, C)
    history.sends(1, by=A)
    history.delivers(A, message(A, 1))
    for machine in (A, B, C):
        history.installs(machine, SECOND)
    history.ends()


def test_nothing_lost_accepts_what_is_lost_with_its_sender() -> None:
    history = History(NothingLost(), A)
    history.sends(1, by=A)
    history.installs(A_AGAIN, view(20, A_AGAIN))
    history.ends()


def test_nothing_lost_catches_a_message_its_own_sender_never_delivered() -> None:
    history = History(NothingLost(), A, B, C)
    history.sends(1, 2, by=A)
    history.delivers(A, message(A, 1))
    for machine in (A, B, C):
        history.installs(machine, SECOND)
    with pytest.raises(Violation, match=r"a\.1 never delivered its own messages \[2\]"):
        history.ends()


@pytest.mark.parametrize("service", Service, ids=lambda service: service.name)
def test_nothing_lost_catches_what_a_member_of_the_last_view_lacks(service: Service) -> None:
    history = History(NothingLost(), A, B, C)
    history.sends(1, by=A, service=service)
    for machine in (A, B):
        history.delivers(machine, message(A, 1, service=service))
    with pytest.raises(Violation, match=r"message 1 of a\.1, sent in the last view, did not reach .*name='c'"):
        history.ends()


def test_nothing_lost_looks_at_the_last_view_of_each_component() -> None:
    history = History(NothingLost(), A, B)
    lonely = view(20, A)
    history.installs(A, lonely)
    history.installs(B, view(21, B, C))
    history.installs(C, view(21, B, C))
    history.sends(1, by=A)
    history.delivers(A, message(A, 1, lonely))
    history.sends(2, by=B)
    history.delivers(B, message(B, 2, view(21, B, C)))
    with pytest.raises(Violation, match=r"message 2 of b\.1"):
        history.ends()
