"""The membership on a real network: five processes, a host each, and what can happen to hosts and links.

Each test is a scenario that says which views must follow; `membership_campaign` repeats them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.membership_lan import Members, check_rules, running
from tests.network.membership_member import Delivered, Installed, Record, Sent
from tests.simulator.checkers import Violation
from transport.messages import Machine, Message, Service, View, ViewId


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with running(tmp_path) as made:
        yield made


def test_two_sides_of_a_cut(members: Members) -> None:
    members.cut("ab|cde")
    members.expect("ab|cde")
    members.heal()
    members.expect("abcde")


def test_one_member_alone(members: Members) -> None:
    members.cut("abde|c")
    members.expect("abde|c")
    members.heal()
    members.expect("abcde")


def test_three_components_merge_at_once(members: Members) -> None:
    members.cut("ab|c|de")
    members.expect("ab|c|de")
    members.heal()
    members.expect("abcde")


def test_a_one_way_link(members: Members) -> None:
    members.cut_one_way("a", "b")
    members.expect_cliques("ab")
    members.heal()
    members.expect("abcde")


def test_a_link_that_is_missing(members: Members) -> None:
    """Hearing is not transitive: a and c hear b, d and e, but not each other."""
    members.cut_link("a", "c")
    members.expect_cliques("ac")
    members.heal()
    members.expect("abcde")


def test_a_killed_member_comes_back_as_another(members: Members) -> None:
    members.kill("c")
    members.expect("abde")
    members.restart("c")
    members.expect("abcde")


def test_a_member_is_restarted_before_it_is_missed(members: Members) -> None:
    """The new incarnation then shows the others that its former one is dead."""
    members.kill("c")
    members.restart("c")
    members.expect("abcde")


def test_a_stopped_member_comes_back_as_itself(members: Members) -> None:
    members.freeze("b")
    members.expect("acde")
    members.thaw("b", after_ms=5_000)
    members.expect("abcde")


# Whether the replay shows the checkers what they must see: a story that is right, and ways to make it wrong.

STORY = """
a.1 has 1.a.1: a.1 from a.1
b.1 has 1.b.1: b.1 from b.1
a.1 has 5.b.1: a.1 b.1 from a.1
b.1 has 5.b.1: a.1 b.1 from b.1
a.1 sends 0 AGREED
b.1 sends 0 CAUSAL
a.1 gets a.1:0 AGREED 6 5.b.1
b.1 gets a.1:0 AGREED 6 5.b.1
b.1 gets b.1:0 CAUSAL 7 5.b.1
a.1 gets b.1:0 CAUSAL 7 5.b.1
b.1 sends 1 SAFE
b.1 gets b.1:1 SAFE 8 5.b.1
a.1 gets b.1:1 SAFE 8 5.b.1
a.1 has 9.a.1: a.1 b.1 from a.1 b.1
b.1 has 9.a.1: a.1 b.1 from a.1 b.1
b.1 sends 2 AGREED
b.2 has 11.b.2: b.2 from b.2
a.1 has 12.a.1: a.1 from a.1
"""


def read_story(story: str) -> dict[str, list[Record]]:
    logs: dict[str, list[Record]] = {"a": [], "b": []}
    views: dict[Machine, ViewId] = {}
    for at_ns, line in enumerate(story.split("\n")[1:-1]):
        who, event, what, *rest = line.split()
        machine = read_machine(who)
        record: Record
        if event == "has":
            members, transitional = (map(read_machine, side.split()) for side in " ".join(rest).split("from"))
            view = View(read_view_id(what.removesuffix(":")), tuple(members), tuple(transitional))
            record = Installed(at_ns, machine, view, views.get(machine))
            views[machine] = view.id
        elif event == "sends":
            record = Sent(at_ns, machine, int(what), Service[rest[0]])
        else:
            service, clock, view_id = rest
            sender, number = what.split(":")
            place = (int(clock), read_machine(sender), int(number) + 1, Service[service])
            record = Delivered(at_ns, machine, Message(*place, read_view_id(view_id), what.encode()))
        logs[machine.name].append(record)
    return logs


def read_machine(text: str) -> Machine:
    name, incarnation = text.split(".")
    return Machine(name, int(incarnation))


def read_view_id(text: str) -> ViewId:
    clock, machine = text.split(".", 1)
    return ViewId(int(clock), *read_machine(machine))


def test_a_right_story_is_accepted() -> None:
    check_rules(read_story(STORY))


@pytest.mark.parametrize(
    ("right", "wrong", "violation"),
    [
        ("b.1 has 9.a.1: a.1 b.1 from a.1 b.1", "b.1 has 9.a.1: b.1 from b.1", "b.1 has View.*, a.1 has View"),
        ("b.1 has 9.a.1: a.1 b.1 from a.1 b.1", "b.1 has 9.a.1: a.1 b.1 from b.1", "transitional"),
        ("a.1 has 12.a.1", "a.1 has 8.a.1", "a.1 installs 8.a.1 after 9.a.1"),
        ("b.2 has 11.b.2", "b.2 has 8.b.2", "b.2 installs 8.b.2 after 9.a.1"),
        ("a.1 gets b.1:1 SAFE 8 5.b.1\n", "", "b.1 and a.1 went from 5.b.1 to 9.a.1, but delivered 2 and 1"),
        ("a.1 gets b.1:0 CAUSAL 7 5.b.1\n", "", "they differ in"),
        ("a.1 gets b.1:1 SAFE 8 5.b.1", "a.1 gets b.1:1 SAFE 5 5.b.1", "has timestamps"),
        ("SAFE 8", "SAFE 5", "b.1 delivers b.1.2 at .* after"),
        ("a.1 gets b.1:1 SAFE 8 5.b.1", "a.1 gets b.1:1 SAFE 8 1.a.1", "a.1 delivers b.1.2 of 1.a.1"),
        ("b.2 has 11.b.2: b.2 from b.2\n", "", "b.1 never delivered its own messages .2"),
    ],
)
def test_a_spoiled_story_is_refused(right: str, wrong: str, violation: str) -> None:
    assert right in STORY
    with pytest.raises(Violation, match=violation):
        check_rules(read_story(STORY.replace(right, wrong)))


def test_a_payload_of_another_is_refused() -> None:
    a = Machine("a", 1)
    message = Message(6, a, 1, Service.AGREED, ViewId(5, "b", 1), b"b.1:0")
    with pytest.raises(ValueError, match=r"a\.1 was given as of a\.1"):
        _ = Delivered(9, a, message).number
