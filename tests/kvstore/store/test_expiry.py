"""A write with an idempotency key expires: no copy of it is applied after another one was forgotten, whichever
component accepted them, and however late they get their place. The proof is in `kvstore.store.state`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from corel.messages import Color, MessageId
from kvstore.store import state
from kvstore.store.operations import Increment, Put, Write
from kvstore.store.replies import Accepted, Done
from kvstore.store.state import Outcome, Verdict
from tests.kvstore.store.store_cluster import StoreCluster, Waiter
from transport.messages import Machine

ONCE = Write((Increment("n", 1),), idempotency_key="once")


@contextmanager
def keys_remembered_for(positions: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "IDEMPOTENCY_POSITIONS", positions)
        yield


def split() -> StoreCluster:
    """Returns a cluster in which a and b are a majority, and c is alone."""
    cluster = StoreCluster("abc")
    cluster.settle("abc")
    cluster.settle("ab", "c")
    return cluster


def outcome(waiter: Waiter) -> Outcome:
    assert isinstance(waiter.answer, Done)
    return waiter.answer.applied.outcome


def asked(cluster: StoreCluster, name: str, write: Write) -> Waiter:
    waiter = cluster.ask(name, write)
    cluster.run()
    return waiter


def write_messages(cluster: StoreCluster, name: str, messages: int) -> None:
    for number in range(messages):
        cluster.ask(name, Put("other", b"%d" % number))
        cluster.run()


@keys_remembered_for(10)
def test_a_red_copy_does_nothing_if_it_merges_after_the_key_of_its_retry_was_forgotten() -> None:
    cluster = split()
    assert asked(cluster, "c", ONCE).answer == Accepted("c.1.1.0", Color.RED)
    assert outcome(asked(cluster, "a", ONCE)).verdict is Verdict.APPLIED
    write_messages(cluster, "a", 10)
    cluster.settle("abc")
    fates = [cluster.stores[name].outcome(MessageId(Machine("c", 1), 1), 0) for name in "abc"]
    assert fates == [(Color.GREEN, Outcome(Verdict.EXPIRED, None))] * 3
    assert [cluster.value(name, "n") for name in "abc"] == [b"1"] * 3


@keys_remembered_for(10)
def test_a_copy_that_waited_behind_many_red_messages_is_not_applied_again() -> None:
    """If red messages counted, this copy would not have expired, and would be applied again."""
    cluster = split()
    write_messages(cluster, "c", 10)
    cluster.ask("c", ONCE)
    cluster.run()
    assert cluster.stores["c"].find_red("n")[0] is None, "it cannot get a place in time"
    assert outcome(asked(cluster, "a", ONCE)).verdict is Verdict.APPLIED
    cluster.settle("abc")
    assert cluster.value("b", "n") == b"1"
    assert cluster.stores["b"].outcome(MessageId(Machine("c", 1), 11), 0) == (
        Color.GREEN,
        Outcome(Verdict.EXPIRED, None),
    )


@keys_remembered_for(10)
def test_a_copy_expires_by_what_its_node_knew_when_it_came_not_when_it_was_sent() -> None:
    cluster = split()
    cluster.disk("c").hold()
    cluster.ask("c", Put("k", b"v"))
    cluster.ask("c", ONCE)  # held, because the message before it is not on the disk
    assert outcome(asked(cluster, "a", ONCE)).verdict is Verdict.APPLIED
    write_messages(cluster, "a", 10)
    cluster.disk("c").release()
    cluster.settle("abc")
    cluster.run()
    assert [cluster.value(name, "n") for name in "abc"] == [b"1"] * 3


@keys_remembered_for(10)
def test_a_write_that_is_first_and_in_time_is_applied_though_it_was_red() -> None:
    cluster = split()
    cluster.ask("c", ONCE)
    cluster.run()
    write_messages(cluster, "a", 5)
    cluster.settle("abc")
    assert [cluster.value(name, "n") for name in "abc"] == [b"1"] * 3
