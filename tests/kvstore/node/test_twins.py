"""Which of two processes of one name stops."""

from __future__ import annotations

from kvstore.node.twins import must_stop
from transport import Machine, View, ViewId

ELDER, YOUNGER, PEER = Machine("a", 5), Machine("a", 6), Machine("b", 1)


def view_of(*members: Machine) -> View:
    return View(ViewId(1, *members[0]), members)


def test_the_newer_goes_on_whoever_is_in_their_views() -> None:
    for elders in (view_of(ELDER), view_of(ELDER, PEER)):
        assert must_stop(ELDER, elders, YOUNGER)
    for youngers in (view_of(YOUNGER), view_of(YOUNGER, PEER)):
        assert not must_stop(YOUNGER, youngers, ELDER)


def test_of_two_of_the_same_incarnation_one_that_has_others_in_its_view_goes_on() -> None:
    assert must_stop(ELDER, view_of(ELDER), ELDER)
    assert not must_stop(ELDER, view_of(ELDER, PEER), ELDER)


def test_a_node_of_another_name_stops_nobody() -> None:
    assert not must_stop(ELDER, view_of(ELDER), PEER)
