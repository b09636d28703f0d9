"""The last milestones of a node."""

from __future__ import annotations

import time

from corel import CorelEvent
from kvstore.node.milestones import MILESTONES_MAX, Milestones
from membership import MembershipEvent
from transport import Journal, Reason, TransportEvent


def entry(event: MembershipEvent | CorelEvent | TransportEvent, number: int = 0) -> Journal:
    return Journal(event, "1.a.1", Reason.NEW, {"number": number})


def test_views_stages_and_phases_are_milestones_and_messages_are_not() -> None:
    milestones = Milestones()
    milestones.note(entry(MembershipEvent.VIEW, 7))
    milestones.note(entry(TransportEvent.PACKET_SENT))
    milestones.note(entry(MembershipEvent.PROBED))
    milestones.note(entry(CorelEvent.COMMITTED))
    view, committed = milestones.after(0)
    assert (view.number, view.event, view.view, view.reason) == (1, "view", "1.a.1", "new")
    assert view.details == {"number": 7}
    assert abs(view.time_ms - time.time() * 1_000.0) < 5_000.0
    assert (committed.number, committed.event) == (2, "committed")


def test_only_the_last_are_kept_and_those_after_a_number_are_told() -> None:
    milestones = Milestones()
    for number in range(MILESTONES_MAX + 10):
        milestones.note(entry(CorelEvent.STAGE, number))
    assert milestones.count == MILESTONES_MAX + 10
    assert [one.number for one in milestones.after(0)] == list(range(11, MILESTONES_MAX + 11))
    assert [one.number for one in milestones.after(MILESTONES_MAX + 8)] == [
        MILESTONES_MAX + 9,
        MILESTONES_MAX + 10,
    ]
    assert milestones.after(MILESTONES_MAX + 10) == []
