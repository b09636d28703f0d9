"""Which machines hear each other, as heartbeats say: which views may be joined, which machines must back off."""

from __future__ import annotations

from collections.abc import Iterable

from membership.config import MembershipConfig
from membership.messages import Presence
from membership.neighbours import Neighbours
from tests.membership.builders import machine, machines, view_id
from transport.messages import Machine

A, B, C, D = machines("abcd")
CONFIG = MembershipConfig()


class Ears:
    """The neighbours of a, which is in a view of the given component. Heartbeats arrive when the test says so."""

    def __init__(self, component: str = "a", config: MembershipConfig = CONFIG) -> None:
        self.now = 0.0
        self.members = frozenset(machines(component))
        self.neighbours = Neighbours(A, config)

    def beat(self, component: str, heard: str, only: str = "") -> None:
        """Lets the members of a component, or only some, send heartbeats that say whom they hear."""
        for sender in machines(only or component):
            others = tuple(other for other in machines(heard) if other != sender)
            self.neighbours.heard(sender, self.now)
            self.neighbours.update(sender, Presence(view_id(component), machines(component), others, ()))

    def joinable(self) -> list[str]:
        return [view.name for view in self.neighbours.joinable(self.members, self.now)]

    def wait(self, duration_ms: float, *beats: tuple[str, str]) -> list[str]:
        """Lets time pass with heartbeats; returns the views that may be joined at the end."""
        end = self.now + duration_ms
        joinable: list[str] = []
        while self.now < end:
            self.now = min(self.now + CONFIG.presence_ms / 2.0, end)
            for component, heard in beats:
                self.beat(component, heard)
            joinable = self.joinable()
        return joinable

    def are_mutual(self, theirs: str, ours: Iterable[Machine] | None = None) -> bool:
        return self.neighbours.are_mutual(ours or sorted(self.members), machines(theirs), self.now)


# Hearing each other


def test_who_hears_us_and_is_heard_is_mutual() -> None:
    ears = Ears()
    ears.beat("b", heard="a")
    assert ears.are_mutual("b")


def test_who_does_not_hear_us_is_not() -> None:
    ears = Ears()
    ears.beat("b", heard="c")
    assert not ears.are_mutual("b")


def test_every_member_must_hear_every_foreign_machine_and_be_heard() -> None:
    hearings = {"ab": True, "a": False, "b": False}
    for heard_by_c, is_mutual in hearings.items():
        ears = Ears("ab")
        ears.beat("ab", heard="ac", only="b")
        ears.beat("c", heard=heard_by_c)
        assert ears.are_mutual("c") is is_mutual
    ears.beat("c", heard="ab")
    ears.beat("ab", heard="a", only="b")  # now b does not hear c
    assert not ears.are_mutual("c")


def test_who_has_not_been_heard_lately_is_not_heard() -> None:
    ears = Ears()
    ears.beat("b", heard="a")
    ears.now = 5.0 * CONFIG.presence_ms
    assert ears.neighbours.heard_lately(ears.now) == (B,)
    ears.now += 1.0
    assert ears.neighbours.heard_lately(ears.now) == ()
    assert not ears.are_mutual("b")


def test_who_may_be_silent_for_longer_is_heard_for_longer() -> None:
    ears = Ears(config=MembershipConfig(suspect_after_ms=800.0))
    ears.beat("b", heard="a")
    assert ears.neighbours.heard_lately(800.0) == (B,)
    assert ears.neighbours.heard_lately(801.0) == ()


def test_nobody_is_mutual_with_nobody() -> None:
    assert not Ears().are_mutual("")


def test_without_a_heartbeat_nothing_is_known_of_a_machine() -> None:
    ears = Ears()
    ears.neighbours.heard(B, 0.0)
    assert ears.neighbours.view_of(B) is None
    assert ears.neighbours.presence_of(C) is None
    assert not ears.are_mutual("b")
    assert ears.joinable() == []


# Joining


def test_a_foreign_view_is_joinable_when_it_has_been_mutual_for_long_enough() -> None:
    ears = Ears()
    assert ears.wait(CONFIG.foreign_stable_ms, ("b", "a")) == []
    assert ears.wait(CONFIG.presence_ms, ("b", "a")) == ["b"]


def test_stability_begins_anew_when_the_link_has_failed_in_between() -> None:
    ears = Ears()
    ears.wait(CONFIG.foreign_stable_ms, ("b", "a"))
    assert ears.wait(CONFIG.presence_ms, ("b", "")) == []
    assert ears.wait(CONFIG.foreign_stable_ms, ("b", "a")) == []
    assert ears.wait(CONFIG.presence_ms, ("b", "a")) == ["b"]


def test_a_view_is_joined_whole_or_not_at_all() -> None:
    ears = Ears()
    for _ in range(10):
        ears.now += CONFIG.presence_ms
        ears.beat("bc", heard="abc", only="b")
        assert ears.joinable() == []  # c has not been heard
    assert ears.wait(2.0 * CONFIG.foreign_stable_ms, ("bc", "abc")) == ["b"]


def test_a_view_that_a_member_has_left_is_not_joined_but_the_one_it_is_in() -> None:
    ears = Ears()
    assert ears.wait(2.0 * CONFIG.foreign_stable_ms, ("bcd", "abcd"), ("d", "abc")) == ["d"]


def test_a_view_that_names_one_of_us_is_not_foreign() -> None:
    ears = Ears("ab")
    assert ears.wait(2.0 * CONFIG.foreign_stable_ms, ("ab", "abc"), ("bc", "abc")) == []


def test_several_views_are_joinable_at_once() -> None:
    ears = Ears()
    assert ears.wait(2.0 * CONFIG.foreign_stable_ms, ("b", "acd"), ("cd", "abcd")) == ["b", "c"]


# Waiting after failed joins


def first_chance(ears: Ears, name: str) -> float:
    """Waits until this machine may be joined again, and returns how long that took."""
    began = ears.now
    while not ears.are_mutual(name):
        ears.now += 10.0
        ears.beat(name, heard="abcd")
    return ears.now - began


def test_who_joined_and_was_gone_at_once_has_to_wait() -> None:
    ears = Ears()
    for name in "bc":
        ears.beat(name, heard="abc")
    ears.neighbours.back_off([B], ears.now)
    assert not ears.are_mutual("b")
    assert ears.are_mutual("c")
    assert first_chance(ears, "b") == CONFIG.back_off_ms


def test_the_wait_doubles_each_time_up_to_its_bound() -> None:
    ears = Ears()
    waits: list[float] = []
    for _ in range(7):
        ears.neighbours.back_off([B], ears.now)
        waits.append(first_chance(ears, "b"))
    assert waits == [300.0, 600.0, 1_200.0, 2_400.0, 4_800.0, 5_000.0, 5_000.0]


def test_after_a_good_while_it_is_forgotten() -> None:
    ears = Ears()
    for _ in range(2):
        ears.neighbours.back_off([B], ears.now)
        first_chance(ears, "b")
    ears.now += 10.0 * 2.0 * CONFIG.back_off_ms
    ears.neighbours.back_off([B], ears.now)
    assert first_chance(ears, "b") == CONFIG.back_off_ms


# Incarnations


def test_the_newest_incarnation_replaces_its_predecessor_and_is_not_replaced_by_it() -> None:
    ears = Ears()
    assert ears.neighbours.heard(machine("b", 2), 0.0)
    assert not ears.neighbours.heard(machine("b", 1), 1.0)
    assert ears.neighbours.heard(machine("b", 3), 2.0)
    assert ears.neighbours.heard_lately(2.0) == (machine("b", 3),)


def test_an_older_me_is_known_to_be_dead() -> None:
    neighbours = Neighbours(machine("a", 5), CONFIG)
    assert not neighbours.heard(machine("a", 4), 0.0)


def test_nobody_joins_an_incarnation_that_is_over() -> None:
    ears = Ears()
    ears.beat("b", heard="a")
    ears.neighbours.heard(machine("b", 2), 0.0)
    assert not ears.are_mutual("b")


# Bounds


def test_on_a_crowded_network_the_quietest_are_forgotten() -> None:
    ears = Ears(config=MembershipConfig(machines_max=3))
    for at, name in enumerate("bcdbefg"):
        ears.neighbours.heard(machine(name), float(at))
    assert ears.neighbours.heard_lately(10.0) == machines("efg")
    ears.neighbours.heard(machine("b", 0), 11.0)  # also that b was once at 1
    assert machine("b", 0) in ears.neighbours.heard_lately(11.0)


def test_waits_that_are_over_are_forgotten_when_there_are_too_many() -> None:
    ears = Ears(config=MembershipConfig(machines_max=3))
    for at in range(100):
        ears.neighbours.back_off([machine(f"m{at}")], 1_000.0 * at)
    assert len(ears.neighbours._back_off) <= 4
