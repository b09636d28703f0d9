"""A good run is acquitted, and each kind of offence convicts one check and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadtest.audit import LOST, Audit, judge
from loadtest.ledger import FateRow, FeedRow, Ledger, LogRow
from loadtest.record import FeedDigest

NODES = "abc"


class Story:
    """A run of six writes in which everything is right, until a test changes something."""

    def __init__(self) -> None:
        self.lines = [
            write("put", "a.1.1.0", revision=1),
            write("increment", "a.1.2.0", revision=2, key="n", amount=5, idempotency_key="i"),
            write("increment", None, certainty="unknown", key="n", amount=3, idempotency_key="j"),
            write("swap", "a.1.3.0", revision=3, key="s", expected_revision=0),
            write("swap", "b.1.1.0", revision=4, key="s", expected_revision=3),
            write("swap", "b.1.2.0", 412, outcome="rejected", revision=4, key="s", expected_revision=3),
            write("red", "c.1.1.0", 202, color="red", outcome="pending"),
            write("red", "c.1.2.0", 202, color="red", outcome="pending"),
        ]
        ids = ["a.1.1.0", "a.1.2.0", "a.1.3.0", "b.1.1.0", "b.1.2.0", "c.1.1.0", "c.1.2.0"]
        self.log = [LogRow(one, position, "green") for position, one in enumerate(ids)]
        keys = ["k", "n", "s", "s", "k"]
        applied = ["a.1.1.0", "a.1.2.0", "a.1.3.0", "b.1.1.0", "c.1.1.0"]
        self.feed = [FeedRow(place + 1, one, keys[place]) for place, one in enumerate(applied)]
        self.fates = [FateRow(node, "c.1.2.0", "green", "yielded", 5) for node in NODES]
        self.fates += [FateRow(node, "a.1.1.0", "green", "applied", 1) for node in NODES]
        self.counters = dict.fromkeys(NODES, 5)
        self.digests = dict.fromkeys(NODES, "same")
        self.watched = FeedDigest()
        for row in self.feed[1:4]:
            self.watched.add(row.revision, row.id)
        self.fault: str | None = None
        self.last = [{"kind": "end"}]

    def line(self, write_id: str) -> dict[str, Any]:
        return next(line for line in self.lines if line.get("id") == write_id)

    def judged(self) -> Audit:
        ledger = Ledger()
        feed = {
            "kind": "feed",
            "watcher": "w",
            "first": 2,
            "last": 4,
            "digest": self.watched.text,
            "fault": self.fault,
        }
        ledger.add_lines("one", [{"kind": "begin"}, *self.lines, feed, *self.last])
        ledger.add_log(self.log)
        ledger.add_feed(self.feed)
        ledger.add_fates(self.fates)
        for node in NODES:
            ledger.add_counter(node, "n", self.counters[node])
            ledger.add_digest(node, "the state", self.digests[node])
        ledger.index()
        return judge(ledger, 5)


def write(operation: str, write_id: str | None, status: int = 200, **fields: Any) -> dict[str, Any]:
    known = {"color": "green", "outcome": "applied", "certainty": "acknowledged"} if write_id else {}
    return {
        "kind": "write",
        "operation": operation,
        "id": write_id,
        "status": status,
        "key": "k",
        **known,
        **fields,
    }


def test_a_good_run_is_acquitted() -> None:
    audit = Story().judged()
    assert audit.is_good, list(audit.lines())
    assert audit.counts["acknowledged"] == 7
    assert audit.counts["unknown"] == 1
    assert audit.counts["red_at_first"] == 2


def lose(story: Story) -> None:
    story.log = [row for row in story.log if row.id != "b.1.2.0"]


def leave_red(story: Story) -> None:
    story.log[0] = story.log[0]._replace(color="red")


def double(story: Story) -> None:
    story.log.append(LogRow("a.1.1.0", 99, "green"))


def apply_what_was_rejected(story: Story) -> None:
    story.line("c.1.2.0").update(color="green", outcome="yielded")
    story.feed[4] = story.feed[4]._replace(id="c.1.2.0")
    story.fates.append(FateRow("a", "c.1.1.0", "green", "rejected", None))


def tell_another_revision(story: Story) -> None:
    story.line("a.1.1.0")["revision"] = 5
    story.fates = [row for row in story.fates if row.id != "a.1.1.0"]


def change_an_outcome_later(story: Story) -> None:
    story.fates = [row._replace(outcome="rejected") if row.id == "a.1.1.0" else row for row in story.fates]


def forget_a_red_write(story: Story) -> None:
    story.fates = [row for row in story.fates if row.id != "c.1.2.0"]


def keep_a_red_write_pending(story: Story) -> None:
    story.fates = [
        row._replace(color="red", outcome="pending") if row.id == "c.1.2.0" else row for row in story.fates
    ]


def disagree(story: Story) -> None:
    story.fates[0] = story.fates[0]._replace(outcome="rejected")


def count_too_little(story: Story) -> None:
    story.counters["b"] = 4


def count_too_much(story: Story) -> None:
    story.counters["c"] = 9


def swap_one_revision_twice(story: Story) -> None:
    story.line("b.1.1.0")["expected_revision"] = 0


def swap_what_was_never_there(story: Story) -> None:
    story.line("a.1.3.0")["expected_revision"] = 2


def miss_an_event(story: Story) -> None:
    story.fault = "revision 7 came where 6 was expected"


def follow_with_a_gap(story: Story) -> None:
    story.feed.append(FeedRow(7, "x", "k"))


def follow_too_little(story: Story) -> None:
    story.feed.pop()
    story.fates += [FateRow(node, "c.1.1.0", "green", "applied", 5) for node in NODES]


def see_other_writes(story: Story) -> None:
    story.watched.add(4, "x")


def differ(story: Story) -> None:
    story.digests["c"] = "other"


def break_off(story: Story) -> None:
    story.last = []


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (lose, LOST),
        (leave_red, LOST),
        (double, "no write has two places"),
        (apply_what_was_rejected, "outcomes are as they were told"),
        (tell_another_revision, "outcomes are as they were told"),
        (change_an_outcome_later, "outcomes are as they were told"),
        (forget_a_red_write, "red writes have become green"),
        (keep_a_red_write_pending, "red writes have become green"),
        (disagree, "all nodes tell the same outcomes"),
        (count_too_little, "counters are exact"),
        (count_too_much, "counters are exact"),
        (swap_one_revision_twice, "swaps replace one another"),
        (swap_what_was_never_there, "swaps replace one another"),
        (miss_an_event, "feeds are gapless, in order and equal"),
        (follow_with_a_gap, "feeds are gapless, in order and equal"),
        (follow_too_little, "feeds are gapless, in order and equal"),
        (see_other_writes, "feeds are gapless, in order and equal"),
        (differ, "all nodes have the same log, feed and state"),
        (break_off, "the record is complete"),
    ],
)
def test_a_planted_offence_is_convicted(plant: Callable[[Story], None], check: str) -> None:
    story = Story()
    plant(story)
    audit = story.judged()
    assert [verdict.check for verdict in audit.verdicts if not verdict.is_good] == [check]


def test_the_verdict_lists_the_first_offences_and_counts_the_rest() -> None:
    story = Story()
    story.lines += [write("put", f"x.1.{number}.0", time_ms=number, node="http://a") for number in range(25)]
    audit = story.judged()
    shown = [line for line in audit.lines() if "x.1." in line]
    assert len(shown) == 10
    assert "x.1.0.0 (put of k, answered 200 by http://a at 0) is nowhere in the log" in shown[0]
    assert audit.offences(LOST) == 25
    assert any("and 15 more" in line for line in audit.lines())


@pytest.mark.parametrize(("value", "is_good"), [(4, False), (5, True), (8, True), (9, False)])
def test_an_unknown_addition_may_count_or_not(value: int, is_good: bool) -> None:
    story = Story()
    story.counters = dict.fromkeys(NODES, value)
    assert story.judged().is_good is is_good


def test_a_swap_of_what_the_feed_does_not_have_any_more_is_no_offence() -> None:
    story = Story()
    story.feed = story.feed[3:]
    assert story.judged().is_good


def test_an_addition_that_was_repeated_until_it_was_known_counts_once() -> None:
    story = Story()
    story.lines.append(
        write("increment", "b.1.9.0", outcome="duplicate", key="n", amount=3, idempotency_key="j", revision=5)
    )
    story.log.append(LogRow("b.1.9.0", 9, "green"))
    story.counters = dict.fromkeys(NODES, 8)
    assert story.judged().is_good
    story.counters = dict.fromkeys(NODES, 5)
    assert not story.judged().is_good
