"""The store over a log: what each request waits for, and how and when it is answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corel.messages import Color, MessageId
from kvstore.store import green_state
from kvstore.store.config import StoreConfig
from kvstore.store.green_state import FateForgotten
from kvstore.store.operations import Append, Increment, Put, RevisionIs, Write
from kvstore.store.replies import Accepted, Ack, Done, Failed, Overloaded, Trouble
from kvstore.store.state import Outcome, Verdict
from tests.corel.harness import Act, Do
from tests.kvstore.store.store_cluster import StoreCluster, Waiter
from transport.messages import Machine


def primary(config: StoreConfig | None = None) -> StoreCluster:
    cluster = StoreCluster("abc", config)
    cluster.settle("abc")
    return cluster


NO_WAITS = StoreConfig(gather_ms=0.0, round_ms=0.0)
"""No write waits for other writes."""


def split() -> StoreCluster:
    """Returns a cluster in which a and b are a majority, and c is alone."""
    cluster = primary()
    cluster.settle("ab", "c")
    return cluster


def outcome(waiter: Waiter) -> Outcome:
    assert isinstance(waiter.answer, Done)
    return waiter.answer.applied.outcome


# How writes are answered


def test_in_a_primary_component_a_write_is_answered_when_it_is_green() -> None:
    cluster = primary()
    put = cluster.ask("a", Put("k", b"v"))
    cluster.run_until(lambda: put.answers)
    assert outcome(put) == Outcome(Verdict.APPLIED, 1)
    cluster.run()
    assert [cluster.value(name, "k") for name in "abc"] == [b"v"] * 3


def test_with_ack_red_it_is_answered_when_it_is_on_this_disk() -> None:
    cluster = primary()
    cluster.disk("b").hold()
    put = cluster.ask("a", Put("k", b"v"), Ack.RED)
    cluster.disk("a").hold()
    cluster.run()
    assert not put.answers
    cluster.disk("a").release()
    cluster.run()
    assert put.answer == Accepted("a.1.1.0", Color.YELLOW)


def test_in_a_minority_it_is_accepted_as_red_and_merges() -> None:
    cluster = split()
    put = cluster.ask("c", Put("k", b"v"))
    cluster.run()
    assert put.answer == Accepted("c.1.1.0", Color.RED)
    assert cluster.value("c", "k") is None
    item, color = cluster.stores["c"].find_red("k")
    assert item is not None
    assert (item.value, item.revision, item.write_id, color) == (b"v", None, "c.1.1.0", Color.RED)
    cluster.settle("abc")
    assert [cluster.value(name, "k") for name in "abc"] == [b"v"] * 3
    assert cluster.stores["a"].outcome(MessageId(Machine("c", 1), 1), 0) == (
        Color.GREEN,
        Outcome(Verdict.APPLIED, 1),
    )


def test_a_minority_refuses_what_must_be_green_and_nothing_is_left_of_it() -> None:
    cluster = split()
    put = cluster.ask("c", Put("k", b"v"), Ack.GREEN)
    assert put.answer == Failed(Trouble.NO_PRIMARY)
    cluster.settle("abc")
    assert cluster.value("a", "k") is None


def test_who_waits_for_green_when_the_others_are_lost_is_told_that_it_stands() -> None:
    cluster = primary(NO_WAITS)
    cluster.hold.add(Act("b", Do.SYNC))
    auto, green = cluster.ask("a", Put("k", b"v")), cluster.ask("a", Put("g", b"v"), Ack.GREEN, deadline=50.0)
    cluster.run()
    assert not auto.answers
    cluster.settle("a", "bc")
    assert auto.answer == Accepted("a.1.1.0", Color.YELLOW)
    cluster.stores["a"].tick(50.0)
    assert green.answer == Accepted("a.1.2.0", Color.YELLOW)


def test_what_is_promised_is_judged_when_the_write_leaves() -> None:
    cluster = primary()
    cluster.views("ab", "c")
    put = cluster.ask("c", Put("k", b"v"), Ack.GREEN)
    assert not put.answers, "a recovery is under way"
    cluster.run()
    assert put.answer == Failed(Trouble.NO_PRIMARY)


def test_a_write_that_has_not_left_in_time_is_withdrawn() -> None:
    cluster = primary()
    cluster.views("abc")
    put = cluster.ask("a", Put("k", b"v"), deadline=10.0)
    cluster.stores["a"].tick(10.0)
    assert put.answer == Failed(Trouble.TIMEOUT)
    cluster.run()
    assert cluster.value("a", "k") is None


def test_one_that_has_left_and_is_not_logged_is_undecided() -> None:
    cluster = primary()
    cluster.disk("a").hold()
    put = cluster.ask("a", Put("k", b"v"), deadline=10.0)
    cluster.run()
    cluster.stores["a"].tick(10.0)
    assert put.answer == Failed(Trouble.UNDECIDED, "a.1.1.0")
    cluster.disk("a").release()
    cluster.run()
    assert cluster.value("b", "k") == b"v"


def test_one_that_is_logged_stands_whoever_gives_up() -> None:
    cluster = primary()
    cluster.disk("b").hold()
    put = cluster.ask("a", Put("k", b"v"), Ack.GREEN, deadline=10.0)
    cluster.run()
    cluster.stores["a"].tick(10.0)
    assert put.answer == Accepted("a.1.1.0", Color.YELLOW)


# Many at a time


def test_what_comes_while_a_message_is_on_its_way_to_disk_leaves_in_the_next() -> None:
    cluster = primary(NO_WAITS)
    cluster.disk("a").hold()
    first = cluster.ask("a", Increment("n", 1))
    rest = [cluster.ask("a", Increment("n", 1)) for _ in range(5)]
    assert cluster.stores["a"].held == 5
    cluster.disk("a").release()
    cluster.run()
    assert [outcome(waiter).revision for waiter in (first, *rest)] == [1, 2, 3, 4, 5, 6]
    assert cluster["a"].queue.green == 2
    assert cluster.value("c", "n") == b"6"


def test_a_batch_is_bounded_and_a_large_write_travels_alone() -> None:
    cluster = primary(replace(NO_WAITS, batch_bytes_max=320))
    cluster.disk("a").hold()
    waiters = [cluster.ask("a", Put(f"k{n}", bytes(size))) for n, size in enumerate((1, 100, 100, 1_000, 1))]
    cluster.disk("a").release()
    cluster.run()
    ids = [waiter.answer.write_id for waiter in waiters if isinstance(waiter.answer, Done)]
    assert ids == ["a.1.1.0", "a.1.2.0", "a.1.2.1", "a.1.3.0", "a.1.4.0"]


def test_in_a_primary_component_the_next_message_leaves_when_the_last_is_green() -> None:
    cluster = primary(StoreConfig(gather_ms=0.0))
    cluster.disk("b").hold()
    first = cluster.ask("a", Increment("n", 1))
    cluster.run()
    rest = [cluster.ask("a", Increment("n", 1)) for _ in range(3)]
    cluster.run()
    assert cluster.stores["a"].held == 3
    cluster.disk("b").release()
    cluster.run()
    assert [outcome(waiter).revision for waiter in (first, *rest)] == [1, 2, 3, 4]
    assert cluster["a"].queue.green == 2


def test_it_waits_so_for_round_ms_at_the_most() -> None:
    cluster = primary(StoreConfig(round_ms=10.0))
    store = cluster.stores["a"]
    cluster.disk("b").hold()
    cluster.ask("a", Put("k", b"1"))
    cluster.run()
    cluster.ask("a", Put("k", b"2"))
    assert store.next_deadline() < 100.0
    store.tick(100.0)
    assert (store.held, store.next_deadline()) == (1, 110.0)
    store.tick(110.0)
    assert store.held == 0


def test_what_fills_a_message_leaves_without_waiting() -> None:
    cluster = primary(StoreConfig(batch_bytes_max=300))
    cluster.disk("b").hold()
    cluster.ask("a", Put("k", b"v"))
    cluster.run()
    cluster.ask("a", Put("k", bytes(100)))
    assert cluster.stores["a"].held == 1
    cluster.ask("a", Put("k", bytes(200)))
    assert cluster.stores["a"].held == 1, "the first has left, the second does not fit with it"


def test_in_a_minority_nothing_waits_for_green() -> None:
    cluster = split()
    first = cluster.ask("c", Put("k", b"1"))
    cluster.run()
    second = cluster.ask("c", Put("k", b"2"))
    cluster.run()
    assert [first.answer, second.answer] == [Accepted("c.1.1.0", Color.RED), Accepted("c.1.2.0", Color.RED)]


def test_the_next_message_waits_for_clients_that_were_just_answered() -> None:
    cluster = primary()
    store = cluster.stores["a"]
    cluster.ask("a", Put("k", b"v"))
    for _ in range(4):
        cluster.ask("a", Put("k", b"v"))
    cluster.run()  # the first is green, and its client may write again
    assert store.held == 4
    cluster.ask("a", Put("k", b"v"))
    assert store.held == 0


def test_too_much_is_refused() -> None:
    cluster = primary(StoreConfig(held_max=2))
    cluster.views("abc")
    kept = [cluster.ask("a", Put("k", b"v")) for _ in range(2)]
    with pytest.raises(Overloaded):
        cluster.ask("a", Put("k", b"v"))
    cluster.run()
    assert [outcome(waiter).revision for waiter in kept] == [1, 2]


def test_many_green_messages_are_applied_in_turns() -> None:
    cluster = primary(StoreConfig(apply_writes_max=2))
    cluster.settle("ab", "c")
    for _ in range(5):
        cluster.ask("c", Append("log", b"x"), Ack.RED)
        cluster.run()
    cluster.settle("abc")
    store = cluster.stores["c"]
    assert cluster.value("c", "log") == b"xx"
    tentative, color = store.find_red("log")
    assert tentative is not None
    assert (tentative.value, color) == (b"xxxxx", Color.YELLOW), "as good as green"
    assert store.next_deadline() == float("-inf")
    store.tick(0.0)
    store.tick(0.0)
    assert cluster.value("c", "log") == b"xxxxx"


def test_a_large_merge_waits_for_the_disk_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(green_state, "CHECKPOINT_ITEMS_MAX", 2)  # one write to one key: an item and an outcome
    cluster = primary(StoreConfig(checkpoints_max=2, checkpoint_ms=1_000.0))
    cluster.settle("ab", "c")
    for number in range(5):
        cluster.ask("c", Put(f"k{number}", b"x"), Ack.RED)
        cluster.run()
    cluster.settle("abc")
    store = cluster.stores["c"]

    def applied() -> int:
        return [cluster.value("c", f"k{number}") for number in range(5)].count(b"x")

    assert (applied(), store.green.unwritten) == (2, 2)
    store.tick(0.0)
    assert store.next_deadline() == 1_000.0, "it waits for the disk, not for itself"
    for written in range(1, 4):
        checkpoint = store.take_checkpoint(green_on_disk=100, now=0.0)
        assert checkpoint is not None
        store.checkpoint_written(checkpoint)
        cluster.trees["c"].apply(checkpoint)
        assert store.next_deadline() == float("-inf")
        store.tick(0.0)
        assert applied() == 2 + written
    assert store.find_red("k4")[1] is Color.GREEN


# Nothing is kept of answered requests


def test_answered_writes_leave_nothing_behind() -> None:
    cluster = split()
    store = cluster.stores["c"]
    for number in range(300):
        cluster.ask("c", Put(f"k{number}", bytes(100)))
        cluster.run()
    assert store._writes._sent == {}
    assert len(store._deadlines._heap) < 200
    assert store._writes.unanswered == 0


def test_withdrawn_writes_do_not_count_and_do_not_pile_up() -> None:
    cluster = primary(StoreConfig(held_max=3))
    cluster.views("abc")
    store = cluster.stores["a"]
    for now in range(200):
        put = cluster.ask("a", Put("k", b"v"), deadline=float(now))
        store.tick(float(now))
        assert put.answer == Failed(Trouble.TIMEOUT)
    assert store.held == 0
    assert len(store._writes._held) < 100


def test_who_waits_is_bounded_and_forgotten_in_time() -> None:
    cluster = primary(StoreConfig(waiters_max=3))
    store = cluster.stores["a"]
    for now in range(200):
        waiters = [Waiter() for _ in range(3)]
        for waiter in waiters:
            store.when_revision(10**9, float(now), waiter)
        with pytest.raises(Overloaded):
            store.when_linearizable(1e6, Waiter())
        store.tick(float(now))
        assert {waiter.answer for waiter in waiters} == {Trouble.TIMEOUT}
    assert len(store._waiters._revisions) < 100


def test_a_message_that_cannot_be_applied_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = primary()
    store = cluster.stores["a"]
    real = store.green.apply
    monkeypatch.setattr(store.green, "apply", lambda message_id, body, view: 1 / 0)
    cluster.ask("b", Put("k", b"v"))
    with pytest.raises(ZeroDivisionError):
        cluster.run()
    monkeypatch.setattr(store.green, "apply", real)
    store.tick(0.0)
    assert cluster.value("a", "k") == b"v"


def test_a_look_at_the_red_state_is_bounded_and_goes_on() -> None:
    cluster = primary(StoreConfig(red_writes_max=2))
    cluster.settle("ab", "c")
    for number in range(5):
        cluster.ask("c", Put(f"k{number}", b"v"))
        cluster.run()
    store = cluster.stores["c"]
    for _ in range(2):
        with pytest.raises(Overloaded):
            store.find_red("k4")
    item, color = store.find_red("k4")
    assert item is not None
    assert (item.value, color) == (b"v", Color.RED)


# Linearizable reads


def test_a_linearizable_read_waits_for_everybody_and_for_what_is_open() -> None:
    cluster = primary()
    cluster.disk("b").hold()
    cluster.ask("a", Put("k", b"v"))
    cluster.run()
    read = cluster.read("c")
    cluster.run()
    assert not read.answers, "k is in c's queue, and not green"
    cluster.disk("b").release()
    cluster.run_until(lambda: read.answers)
    assert (read.answer, cluster.value("c", "k")) == (None, b"v")


def test_a_node_that_was_cut_off_does_not_answer_it() -> None:
    cluster = primary()
    read = cluster.read("c")
    cluster.views("ab")
    cluster.run()
    assert not read.answers, "c has not noticed, and no member answers"
    cluster.settle("c")
    assert read.answer is Trouble.NO_PRIMARY


def test_readers_who_come_while_one_asks_wait_for_the_next_question() -> None:
    cluster = primary()
    first = cluster.read("a")
    others = [cluster.read("a") for _ in range(3)]
    cluster.run_until(lambda: first.answers)
    assert not any(waiter.answers for waiter in others)
    cluster.run()
    assert [waiter.answer for waiter in others] == [None] * 3
    assert cluster.confirmed("a") == [1, 2]


def test_a_read_goes_on_in_the_next_primary_component() -> None:
    cluster = primary()
    read = cluster.read("a")
    cluster.settle("ab", "c")
    assert read.answer is None


def test_a_reader_gives_up_in_time() -> None:
    cluster = primary()
    cluster.views("abc")
    read = cluster.read("a", deadline=5.0)
    cluster.stores["a"].tick(5.0)
    assert read.answer is Trouble.TIMEOUT
    cluster.run()


# Revisions and fates


def test_a_revision_can_be_waited_for() -> None:
    cluster = primary()
    there, later, never = Waiter(), Waiter(), Waiter()
    store = cluster.stores["b"]
    store.when_revision(0, 1.0, there)
    store.when_revision(1, 1.0, later)
    store.when_revision(9, 1.0, never)
    cluster.ask("a", Put("k", b"v"))
    cluster.run()
    store.tick(1.0)
    assert [waiter.answer for waiter in (there, later, never)] == [None, None, Trouble.TIMEOUT]


def test_a_write_whose_fate_is_no_longer_kept_is_told_from_one_that_never_was() -> None:
    cluster = primary()
    cluster.ask("a", Put("k", b"v"))
    cluster.run()
    store, (stream, sequence) = cluster.stores["b"], MessageId(Machine("a", 1), 1)
    assert store.outcome(MessageId(stream, sequence), 0) is not None
    store.green._checkpoints.clear()  # as if it were in the tree, and deleted there
    for forgotten in (MessageId(stream, sequence), MessageId(Machine("a", 0), 7)):
        cluster["b"].queue.folded = {"a": 0}
        with pytest.raises(FateForgotten):
            store.outcome(forgotten, 0)
    for unknown in (MessageId(stream, 2), MessageId(stream, 0), MessageId(Machine("x", 1), 1)):
        assert store.outcome(unknown, 0) is None


def test_what_became_of_a_write_can_be_asked_and_waited_for_anywhere() -> None:
    cluster = split()
    cluster.ask("c", Put("k", b"v"))
    cluster.run()
    message_id = MessageId(Machine("c", 1), 1)
    assert cluster.stores["c"].outcome(message_id, 0) == (Color.RED, None)
    assert cluster.stores["c"].outcome(message_id, 7) is None
    assert cluster.stores["a"].outcome(message_id, 0) is None
    follower = Waiter()
    cluster.stores["c"].when_green(message_id, 9.0, follower)
    cluster.settle("abc")
    assert follower.answer is None
    assert cluster.stores["b"].outcome(message_id, 0) == (Color.GREEN, Outcome(Verdict.APPLIED, 1))


def test_a_conditional_write_is_judged_at_its_final_place() -> None:
    cluster = primary()
    cluster.ask("a", Put("k", b"1"))
    cluster.run()
    cluster.settle("ab", "c")
    cluster.ask("c", Write((Put("k", b"red"),), (RevisionIs("k", 1),)))
    cluster.ask("a", Put("k", b"green"))
    cluster.run()
    cluster.settle("abc")
    fates = [cluster.stores[name].outcome(MessageId(Machine("c", 1), 1), 0) for name in "abc"]
    assert fates[0] is not None
    assert fates[0][1] is not None
    assert (fates[0][1].verdict, fates[0][1].revision) == (Verdict.REJECTED, 2)
    assert fates[1:] == fates[:1] * 2
    assert cluster.value("c", "k") == b"green"


def test_a_retry_on_another_node_applies_once_though_both_copies_merge() -> None:
    cluster = split()
    write = Write((Increment("n", 1),), idempotency_key="once")
    cluster.ask("c", write)
    second = cluster.ask("a", write)
    cluster.run()
    cluster.settle("abc")
    assert outcome(second).verdict is Verdict.APPLIED
    assert [cluster.value(name, "n") for name in "abc"] == [b"1"] * 3
    fate = cluster.stores["b"].outcome(MessageId(Machine("c", 1), 1), 0)
    assert fate is not None
    assert fate[1] is not None
    assert (fate[1].verdict, fate[1].first_id) == (Verdict.DUPLICATE, "a.1.1.0")


# Stops and starts


def test_whoever_waits_when_the_node_leaves_is_told() -> None:
    cluster = primary()
    cluster.disk("a").hold()
    sent = cluster.ask("a", Put("k", b"v"))
    held = cluster.ask("a", Put("k", b"w"))
    cluster.run()
    read, revision = cluster.read("a"), Waiter()
    cluster.stores["a"].when_revision(99, 1e6, revision)
    cluster.stores["a"].leave()
    assert (sent.answer, held.answer) == (Failed(Trouble.UNDECIDED, "a.1.1.0"), Failed(Trouble.AWAY))
    assert (read.answer, revision.answer) == (Trouble.AWAY, Trouble.AWAY)


def test_a_start_goes_on_from_the_last_checkpoint_with_the_log() -> None:
    cluster = primary()
    for number in range(4):
        cluster.ask("a", Put(f"k{number}", b"v"))
        cluster.run()
        if number == 1:
            _checkpoint(cluster, "a")
    assert cluster.trees["a"].line == 2
    cluster.restart("a")
    cluster.settle("abc")
    assert cluster.stores["a"].green.revision == 4
    assert [cluster.value("a", f"k{number}") for number in range(4)] == [b"v"] * 4


def _checkpoint(cluster: StoreCluster, name: str) -> None:
    """Writes what is green to the tree."""
    cluster._execute(cluster.nodes[name], cluster[name].flush())
    cluster.run()
    store = cluster.stores[name]
    store.tick(0.0)
    checkpoint = store.take_checkpoint(cluster[name].green_on_disk, store.config.checkpoint_ms)
    assert checkpoint is not None
    cluster.trees[name].apply(checkpoint)
    store.checkpoint_written(checkpoint)
