"""Locks and elections on real nodes, which are killed and cut off: tokens rise from each holder to the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from kvstore.client import Client, ConditionFailed, CorelError, Election, Lock, LockLost, RetryPolicy, Txn
from tests.api.cluster import Cluster, eventually

PATIENT = RetryPolicy(total_seconds=60.0, attempts_max=600)
HASTY = RetryPolicy(total_seconds=0.5, attempts_max=4)


class Resource:
    """What a lock protects: it refuses a token lower than one that it has seen."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, str]] = []
        self.refused: list[tuple[int, str]] = []
        self._mutex = threading.Lock()

    def use(self, token: int, who: str) -> None:
        with self._mutex:
            is_stale = bool(self.accepted) and token < self.accepted[-1][0]
            (self.refused if is_stale else self.accepted).append((token, who))


def test_who_waits_for_a_lock_is_told_when_it_is_free(three: Cluster, key: str) -> None:
    asked: list[httpx.Request] = []
    with (
        Client(three["a"].url, retry=PATIENT) as one,
        httpx.Client(event_hooks={"request": [asked.append]}) as http,
        Client(three["b"].url, retry=PATIENT, http=http) as two,
    ):
        first, second = one.lock(key, "one", lease=30.0), two.lock(key, "two", lease=30.0)
        token = first.acquire()
        waiting = threading.Thread(target=second.acquire)
        waiting.start()
        eventually(lambda: any("wait_revision" in request.url.params for request in asked))
        time.sleep(1.0)  # it would have looked several times meanwhile
        waits = len([request for request in asked if "wait_revision" in request.url.params])
        looks = len([request for request in asked if request.url.params.get("read") == "linearizable"])
        first.release()
        waiting.join()
        assert (second.token > token, waits, looks) == (True, 1, 1)
        second.release()


@contextmanager
def candidates(
    cluster: Cluster, key: str, retry: RetryPolicy, resource: Resource
) -> Iterator[dict[str, Election]]:
    """One candidate at each node, which knows no other node. Who leads uses the resource."""
    is_over = threading.Event()

    def live(election: Election, name: str) -> None:
        while not is_over.is_set():
            try:
                election.campaign(timeout=0.5)
                while election.is_leader and not is_over.is_set():
                    token = election.token
                    time.sleep(0.005)
                    resource.use(token, name)
            except CorelError:
                time.sleep(0.05)

    clients = {node.name: Client(node.url, discover=False, retry=retry) for node in cluster}
    elections = {name: client.election(key, name, lease=1.0) for name, client in clients.items()}
    threads = [threading.Thread(target=live, args=(election, name)) for name, election in elections.items()]
    for thread in threads:
        thread.start()
    try:
        yield elections
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        for election in elections.values():
            with suppress(CorelError):
                election.resign()
        for client in clients.values():
            client.close()


def test_leaders_follow_each_other_over_kills_and_partitions(three: Cluster, key: str) -> None:
    resource = Resource()

    def leader() -> str:
        return resource.accepted[-1][1] if resource.accepted else ""

    def another(than: str) -> None:
        eventually(lambda: leader() not in ("", than), lambda: resource.accepted[-3:])

    with candidates(three, key, HASTY, resource):
        another("")
        first = leader()
        three[first].kill()  # nobody but this one asks it, and it cannot renew its lease any more
        another(first)
        three.revive()
        three.await_views("abc")
        second = leader()
        three.partition(f"{second}|{'abc'.replace(second, '')}")
        another(second)
        three.heal()
    tokens = [token for token, _ in resource.accepted]
    terms = dict(resource.accepted)
    assert tokens == sorted(tokens)
    assert len(set(resource.accepted)) == len(terms) >= 3  # each token is one candidate's


def test_a_leader_that_was_paused_is_refused(three: Cluster, key: str) -> None:
    """What happens to a process that stops for longer than its lease between the look and the deed."""
    resource = Resource()
    with Client(three["a"].url, retry=PATIENT) as one, Client(three["b"].url, retry=PATIENT) as two:
        first, second = one.lock(key, "one", lease=0.5), two.lock(key, "two", lease=0.5)
        old = first.acquire(renew=False)
        guarded = first.guard(Txn().put(f"{key}/guarded", "one"))
        resource.use(old, "one")
        resource.use(second.acquire(renew=False), "two")
        resource.use(old, "one")  # it wakes up
        with pytest.raises(ConditionFailed):
            one.txn(guarded)
        with pytest.raises(LockLost):
            _ = first.token
        assert resource.refused == [(old, "one")]
        assert [who for _, who in resource.accepted] == ["one", "two"]
        second.release()


def test_a_red_write_that_the_lock_guards_is_rejected_when_it_merges(three: Cluster, key: str) -> None:
    with (
        Client(three["a"].url, discover=False, retry=HASTY) as cut_off,
        Client(three["b"].url, retry=PATIENT) as other,
    ):
        mine: Lock = cut_off.lock(key, "cut off", lease=0.5)
        theirs = other.lock(key, "other", lease=0.5)
        token = mine.acquire(renew=False)
        three.partition("a|bc")
        write = cut_off.txn(mine.guard(Txn().put(f"{key}/guarded", "cut off")))
        assert (write.color, theirs.acquire(renew=False) > token) == ("red", True)
        with pytest.raises(CorelError):
            mine.renew()
        other.txn(theirs.guard(Txn().put(f"{key}/guarded", "other")))
        three.heal()
        with pytest.raises(ConditionFailed):
            write.wait_green(30.0)
        item = other.get(f"{key}/guarded", read="linearizable")
        assert item is not None
        assert item.text == "other"
