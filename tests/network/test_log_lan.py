"""The log on real networks and disks: five processes that submit all the time, and what can happen to them.

Each test is a scenario that says which nodes can make messages green, and which keep them red. All of them end
with the same check: everything that was ever acknowledged is on all disks, once, in the one order that was
reported. `log_campaign` repeats them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.log_lan import Order, Replicas, check_rules, running
from tests.network.log_member import (
    Greened,
    Logged,
    Record,
    Replaced,
    Staged,
    Started,
    as_line,
    body_of,
    from_line,
)
from tests.simulator.checkers import Violation


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with running(tmp_path) as made:
        yield made


def test_a_majority_goes_on_and_all_survive_being_killed(replicas: Replicas) -> None:
    replicas.cut("abc|de")
    replicas.expect(primary="abc", red="de")
    replicas.heal()
    replicas.expect(primary="abcde")
    replicas.kill("abcde")
    replicas.restart("abcde")
    replicas.expect(primary="abcde")


def test_three_components_without_a_majority(replicas: Replicas) -> None:
    replicas.cut("ab|cd|e")
    replicas.expect(red="ab|cd|e")
    replicas.heal()
    replicas.expect(primary="abcde")


def test_a_node_is_killed_while_it_catches_up(replicas: Replicas) -> None:
    replicas.kill("e")
    replicas.expect(primary="abcd")
    replicas.burst("abcd", 1_000)
    replicas.restart_to_die("e", after_copies=2_000)
    replicas.expect(primary="abcd")
    replicas.restart("e")
    assert replicas.surviving_open("e") > 500, "what had been retransmitted to it was on its disk"
    replicas.expect(primary="abcde")


def test_a_node_with_an_empty_disk_has_no_vote(replicas: Replicas) -> None:
    replicas.kill("e")
    replicas.expect(primary="abcd")
    replicas.replace_disk("e")
    replicas.cut("ab|cde")
    replicas.restart("e")
    assert not replicas.is_voter_from_its_disk("e")
    replicas.expect(red="ab|cde")  # three of five, but the disk of one no longer has what it had agreed to
    replicas.heal()
    replicas.expect_voter("e")
    replicas.expect(primary="abcde")
    replicas.cut("ab|cde")
    replicas.expect(primary="cde", red="ab")
    replicas.heal()
    replicas.expect(primary="abcde")


def test_messages_of_a_node_alone_outlive_it(replicas: Replicas) -> None:
    replicas.cut("abcd|e")
    replicas.expect(primary="abcd", red="e")
    written_alone = replicas.logged_by("e") - replicas.logged_by("abcd")
    assert written_alone
    replicas.heal()
    replicas.expect_retransmitted()
    replicas.kill("e")
    replicas.expect_green(written_alone, at="abcd")
    replicas.expect(primary="abcd")
    replicas.restart("e")
    replicas.expect(primary="abcde")


def test_all_are_killed_while_they_establish_a_primary(replicas: Replicas) -> None:
    replicas.cut("abc|de")
    replicas.expect(primary="abc", red="de")
    replicas.heal()
    replicas.expect_retransmitted()
    replicas.kill("abcde")
    replicas.restart("abcde")
    replicas.expect(primary="abcde")


def test_messages_of_former_incarnations_stay_green(replicas: Replicas) -> None:
    """Their streams are folded when all five, having been a primary component, recover again; then all restart."""
    replicas.kill("abcde")
    replicas.restart("abcde")
    replicas.expect(primary="abcde")
    replicas.cut("abcd|e")
    replicas.expect(primary="abcd", red="e")
    replicas.heal()
    replicas.expect(primary="abcde")
    replicas.kill("abcde")
    replicas.restart("abcde")
    replicas.expect(primary="abcde")


# Whether the final check sees what it must: a story that is right, and ways to make it wrong.

STORY = """
a.1 starts 0
b.1 starts 0
a.1 is primary 9.b.1 1
b.1 is primary 9.b.1 1
a.1 logs a.1.1 b.1.1
b.1 logs a.1.1
a.1 greens 0 a.1.1 b.1.1
b.1 greens 0 a.1.1
b.2 starts 0
b.2 is non_primary 12.b.2 1
b.2 logs b.2.1
b.2 is primary 15.a.1 2
b.2 greens 0 a.1.1 b.1.1
b.2 greens 2 b.2.1
a.1 is primary 15.a.1 2
a.1 greens 2 b.2.1
"""
ORDER = ("a.1.1", "b.1.1", "b.2.1")


def read_story(story: str) -> dict[str, list[Record]]:
    records: dict[str, list[Record]] = {"a": [], "b": []}
    for at_ns, line in enumerate(story.split("\n")[1:-1]):
        machine, event, *rest = line.split()
        record: Record
        if event == "starts":
            record = Started(at_ns, machine, True, int(rest[0]), int(rest[0]))
        elif event == "is":
            record = Staged(at_ns, machine, rest[0], rest[1], "ab", int(rest[2]))
        elif event == "logs":
            record = Logged(at_ns, machine, tuple(rest))
        elif event == "greens":
            record = Greened(at_ns, machine, int(rest[0]), tuple(rest[1:]))
        else:
            record = Replaced(at_ns, machine)
        records[machine[0]].append(from_line(as_line(record)))
    return records


def disks(ids_of_a: tuple[str, ...] = ORDER, ids_of_b: tuple[str, ...] | None = None) -> dict[str, Order]:
    ids = {"a": ids_of_a, "b": ids_of_a if ids_of_b is None else ids_of_b}
    return {name: [(message_id, body_of(message_id)) for message_id in its] for name, its in ids.items()}


def test_a_right_story_is_accepted() -> None:
    check_rules(read_story(STORY), disks())


def test_what_was_only_on_a_replaced_disk_may_be_gone() -> None:
    story = STORY.replace("b.2 starts", "b.1 replaces its disk\nb.2 starts")
    check_rules(read_story(story.replace("b.1 logs a.1.1", "b.1 logs a.1.1 a.1.2")), disks())


@pytest.mark.parametrize(
    ("right", "wrong", "violation"),
    [
        ("b.1 logs a.1.1", "b.1 logs a.1.1 a.1.2", r"b acknowledged 1 messages that are lost: a\.1\.2"),
        ("b.2 logs b.2.1", "b.2 logs b.2.1\nb.2 greens 0 a.1.1", "outside of a primary"),
        ("b.2 greens 2 b.2.1", "b.2 greens 3 b.2.1", "of green from 3 on, after 2"),
        ("b.1 greens 0 a.1.1", "b.1 greens 0 b.1.1", r"b\.1 was told that b\.1\.1 is green at 0"),
        ("b.2 logs b.2.1", "b.2 logs b.2.2", r"b\.2 was told of 2 of its messages, but not of 1"),
        ("a.1 greens 2 b.2.1", "a.1 greens 2 b.2.1 b.2.2", r"b\.2\.2 is green at 3"),
        ("b.2 is primary 15.a.1 2", "b.2 is primary 15.a.1 1", r"primary 1 is view 9\.b\.1, and 15\.a\.1 at b\.2"),
    ],
)
def test_a_spoiled_story_is_refused(right: str, wrong: str, violation: str) -> None:
    assert right in STORY
    with pytest.raises(Violation, match=violation):
        check_rules(read_story(STORY.replace(right, wrong)), disks())


@pytest.mark.parametrize(
    ("orders", "violation"),
    [
        (disks(ORDER, ORDER[:2]), r"at 2 a has b\.2\.1, b has None"),
        (disks(ORDER, ("a.1.1", "b.2.1", "b.1.1")), r"at 1 a has b\.1\.1, b has b\.2\.1"),
        (disks((*ORDER, "a.1.1")), r"at 3 a\.1\.1 follows a\.1\.1"),
        (disks((*ORDER, "a.1.3")), r"at 3 a\.1\.3 follows a\.1\.1"),
        ({"a": [("a.1.1", b"b.1.1")], "b": [("a.1.1", b"b.1.1")]}, r"at 0 a\.1\.1 says b'b\.1\.1'"),
    ],
)
def test_spoiled_disks_are_refused(orders: dict[str, Order], violation: str) -> None:
    with pytest.raises(Violation, match=violation):
        check_rules(read_story(STORY), orders)
