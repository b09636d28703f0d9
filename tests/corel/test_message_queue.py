"""MQ: green prefix, yellow zone, red suffix, and the moves between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corel.message_queue import MessageQueue, chained
from corel.messages import DIGEST_BYTES, EMPTY_DIGEST, Entry, MessageId
from tests.corel.builders import VIEW, entry, machine, message_id, message_ids, names, vector
from tests.transport.strategies import thorough
from transport.errors import BrokenInvariant


def queue_of(yellow: str = "", red: str = "") -> MessageQueue:
    """Returns a queue in which timestamps are in the order given."""
    queue = MessageQueue()
    entries = [entry(text, clock) for clock, text in enumerate(f"{yellow} {red}".split(), 1)]
    count = len(yellow.split())
    for item in entries:
        queue.add_red(item)
        if len(queue) == count:
            queue.turn_yellow()
    return queue


def picture(queue: MessageQueue) -> str:
    return f"{queue.green}|{names(queue.yellow)}|{names(queue.red)}"


def test_red_is_in_timestamp_order_however_it_comes() -> None:
    queue = MessageQueue()
    for text, clock in (("a1", 5), ("b1", 3), ("c1", 9), ("b2", 4)):
        queue.add_red(entry(text, clock))
    assert picture(queue) == "0||b1 b2 a1 c1"


def test_yellow_is_in_timestamp_order_after_what_was_committed_to() -> None:
    """A message of the primary component with a low timestamp does not get before what all agreed on."""
    queue = queue_of(red="a1 a2")
    queue.turn_yellow()
    queue.add_yellow(entry("b1", 9))
    queue.add_yellow(entry("c1", 1))
    assert picture(queue) == "0|a1 a2 c1 b1|"
    assert names(queue.tail()) == "c1 b1"


def test_green_takes_the_place_of_the_first() -> None:
    queue = queue_of("a1 b1 a2", "b2")
    assert names(queue.turn_green(2)) == "a1 b1"
    assert picture(queue) == "2|a2|b2"
    assert (queue.yellow_line, len(queue)) == (3, 4)
    assert names(queue.turn_green(2)) == "a2 b2"
    assert picture(queue) == "4||"


def test_a_message_follows_the_one_before_it_of_its_stream() -> None:
    queue = queue_of(red="a1")
    for wrong in ("a1", "a3", "b2"):
        with pytest.raises(BrokenInvariant, match="cannot follow"):
            queue.add_red(entry(wrong, 9))
    queue.turn_green(1)
    assert queue.last_of(machine("a")) == 1
    queue.add_yellow(entry("a2", 9))


def test_what_is_here_is_the_last_of_each_stream_that_is_not_all_green() -> None:
    queue = queue_of("a1 b1 a2 c1")
    assert queue.have() == vector(a=2, b=1, c=1)
    queue.turn_green(2)
    assert queue.have() == vector(a=2, c=1)
    assert queue.get(message_id("a2")) is queue.yellow[0]
    assert queue.get(message_id("a1")) is None


def test_a_retreat_makes_red_what_is_beyond_the_line() -> None:
    queue = queue_of("a1 b1 b2", "c1")
    queue.turn_green(1)
    assert names(queue.retreat(2)) == "b2"
    assert picture(queue) == "1|b1|b2 c1"


def test_a_retreat_of_nothing_changes_nothing() -> None:
    queue = queue_of("a1 b1", "c1")
    assert queue.retreat(2) == []
    assert picture(queue) == "0|a1 b1|c1"


def test_an_adopted_order_replaces_the_yellow_zone() -> None:
    """a1 was yellow and is not among them; c1 was red and is."""
    queue = queue_of("a1 b1", "c1 c2")
    digest = bytes(DIGEST_BYTES - 1) + b"\x01"
    demoted = queue.adopt(message_ids("c1 b1"), yellow_line=2, base=1, base_digest=digest)
    assert names(demoted) == "a1"
    assert picture(queue) == "0|c1 b1|a1 c2"
    assert (queue.base, queue.base_digest) == (1, digest)
    assert names(queue.tail()) == "b1"


def test_an_adopted_order_leads_from_green_to_the_yellow_line() -> None:
    with pytest.raises(BrokenInvariant, match="do not lead"):
        queue_of(red="a1").adopt(message_ids("a1"), yellow_line=2, base=0, base_digest=EMPTY_DIGEST)


def test_a_digest_says_which_order_it_is_whatever_the_colours() -> None:
    one, other = queue_of("a1 b1", "c1"), queue_of(red="a1 b1 c1")
    assert one.digest() == other.digest()
    other.turn_green(2)
    assert one.digest() == other.digest()
    assert queue_of(red="b1 a1 c1").digest() != one.digest()


def test_a_digest_can_be_continued() -> None:
    a, b, c = entry("a1", 1), entry("b1", 2), entry("c1", 3)
    assert chained(EMPTY_DIGEST, [a, b, c]) == chained(chained(EMPTY_DIGEST, [a]), [b, c])
    again = Entry(MessageId(machine("a", 2), 1), 1, VIEW, b"body")
    assert chained(EMPTY_DIGEST, [again]) != chained(EMPTY_DIGEST, [a])


def test_a_digest_covers_bodies_also_when_they_are_no_longer_in_memory() -> None:
    new, old = MessageQueue(), MessageQueue()
    new.add_red(entry("a1", 1, b"new"))
    old.add_red(entry("a1", 1, b"old"))
    digest = new.digest()
    assert digest != old.digest()
    new.red[0].body = None
    assert digest == new.digest()


# In any order of moves

MOVES = ["red", "yellow", "green", "commit", "retreat", "adopt"]
moves = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 99)), max_size=40)


@thorough
@given(moves)
def test_whatever_happens_green_only_grows_and_every_zone_keeps_its_order(
    story: list[tuple[str, int]],
) -> None:
    queue = MessageQueue()
    green: list[Entry] = []
    added: dict[str, int] = {}
    for clock, (move, number) in enumerate(story, 1):
        sender = "abc"[number % 3]
        if move in ("red", "yellow"):
            added[sender] = added.get(sender, 0) + 1
            add = queue.add_red if move == "red" or queue.red else queue.add_yellow
            add(entry(f"{sender}{added[sender]}", clock))
        elif move == "green":
            green += queue.turn_green(min(number, len(queue.yellow)))
        elif move == "commit":
            queue.turn_yellow()
        elif move == "retreat":
            low = max(queue.green, min(queue.base, queue.yellow_line))
            queue.retreat(low + number % (queue.yellow_line - low + 1))
        else:
            zone = [item.id for item in queue][: number % (len(queue) - queue.green + 1)]
            line = queue.green + len(zone)
            queue.adopt(zone, line, min(queue.base, line), EMPTY_DIGEST)
        assert queue.green == len(green)
        assert queue.green_digest == chained(EMPTY_DIGEST, green)
        assert [item.timestamp for item in queue.red] == sorted(item.timestamp for item in queue.red)
        assert len(queue) == sum(added.values())
        lasts = {sender: queue.last_of(machine(sender)) for sender in added}
        assert lasts == added
