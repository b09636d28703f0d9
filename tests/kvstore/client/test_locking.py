"""The lock and the election, on a store in memory and a clock that tests move."""

from __future__ import annotations

import json
import threading
from random import Random
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.client import Client, ConditionFailed, CorelError, LockLost, LockTimeout, Txn, Unreachable
from kvstore.client.locking import LockSteps
from kvstore.client.replies import Failure, Reply
from kvstore.client.steps import Answer, Exchange, Pause, Steps
from tests.api.cluster import eventually
from tests.kvstore.client.fake_cluster import Fake
from tests.kvstore.client.scripted import World


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def contender(fake: Fake, clock: Clock) -> Client:
    return Client(fake.urls, http=fake.http(), clock=clock, sleep=clock.sleep, rng=Random(1))


def test_a_lock_is_held_until_it_is_released_and_tokens_rise(fake: Fake, clock: Clock) -> None:
    first, second = (contender(fake, clock).lock("l", owner) for owner in ("one", "two"))
    token = first.acquire(renew=False)
    assert (first.is_held, first.token, json.loads(fake.state()["l"][0])["owner"]) == (True, token, "one")
    with pytest.raises(LockTimeout):
        second.acquire(timeout=5.0, renew=False)
    first.release()
    assert (first.is_held, second.acquire(timeout=1.0, renew=False) > token) == (False, True)


def test_who_does_not_renew_is_replaced_after_a_lease_on_the_others_clock(fake: Fake, clock: Clock) -> None:
    first, second = (contender(fake, clock).lock("l", lease=10.0) for _ in range(2))
    first.acquire(renew=False)
    clock.now = 9.0  # the other one begins to look only now, and counts a whole lease from here
    second.acquire(renew=False)
    assert 19.0 <= clock.now < 20.0
    assert (first.is_held, second.is_held) == (False, True)
    with pytest.raises(LockLost):
        first.renew()


def test_who_tries_again_and_again_for_less_than_a_lease_gets_it_too(fake: Fake, clock: Clock) -> None:
    first, second = (contender(fake, clock).lock("l", lease=10.0) for _ in range(2))
    first.acquire(renew=False)
    for _ in range(4):
        with pytest.raises(LockTimeout):
            second.acquire(timeout=2.0, renew=False)
    second.acquire(timeout=3.0, renew=False)
    assert 10.0 <= clock.now < 11.5


def test_who_holds_it_again_after_a_loss_renews_it_once(fake: Fake) -> None:
    lock = Client(fake.urls, http=fake.http()).lock("l", lease=10.0)
    for _ in range(3):
        lock.acquire()
        fake.put("l", None)
    eventually(lambda: [thread.name for thread in threading.enumerate()].count("lock l") == 1)
    lock.release()
    assert "lock l" not in [thread.name for thread in threading.enumerate()]


class Telling(Fake):
    """Nodes that answer as soon as a key changes, on a clock that tests move; or refuse to, if they are old."""

    clock: Clock
    is_old = False
    releases_at = 0.0
    asked_to_wait: int = 0

    def _read(self, key: str, request: httpx.Request) -> httpx.Response:
        if "wait_revision" in request.url.params:
            self.asked_to_wait += 1
            if self.is_old:
                said = {"error": "unknown_parameter", "message": "There is no parameter wait_revision."}
                return httpx.Response(400, json=said)
            waits = int(request.url.params["timeout_ms"]) / 1_000.0
            self.clock.now = min(self.clock.now + waits, max(self.releases_at, self.clock.now))
        if self.clock.now >= self.releases_at and key in self.state():
            self.put(key, None)
        return super()._read(key, request)


@pytest.mark.parametrize(("is_old", "looks"), [(False, 2), (True, 11)])
def test_who_waits_is_told_or_looks_often(is_old: bool, looks: int, clock: Clock) -> None:
    fake = Telling()
    fake.clock, fake.is_old, fake.releases_at = clock, is_old, 4.0
    fake.put("l", json.dumps({"owner": "one", "nonce": "x", "renewal": 0, "lease_ms": 10_000}))
    contender(fake, clock).lock("l").acquire(renew=False)
    assert 4.0 <= clock.now < 4.6
    assert fake.asked_to_wait == 1
    found = [request for request in fake.asked if request.url.params.get("read") == "linearizable"]
    assert len(found) >= looks
    assert is_old or len(found) == looks


def test_who_renews_keeps_it_with_the_same_token(fake: Fake, clock: Clock) -> None:
    first, second = (contender(fake, clock).lock("l", lease=10.0) for _ in range(2))
    token = first.acquire(renew=False)
    for _ in range(5):
        clock.now += 4.0
        first.renew()
        with pytest.raises(LockTimeout):
            second.acquire(timeout=3.0, renew=False)
    assert (first.is_held, first.token) == (True, token)


def test_a_lease_that_ran_out_is_not_held(fake: Fake, clock: Clock) -> None:
    lock = contender(fake, clock).lock("l", lease=10.0)
    lock.acquire(renew=False)
    clock.now = 10.0
    assert not lock.is_held
    with pytest.raises(LockLost):
        _ = lock.token
    lock.renew()  # nobody else came
    assert lock.is_held


@pytest.mark.parametrize("lost", [1, 2, 40])
def test_a_lock_whose_answers_are_lost_is_found_again(lost: int, fake: Fake, clock: Clock) -> None:
    client = contender(fake, clock)
    client.cluster()
    fake.deaf = dict.fromkeys("abc", 0)
    lock = client.lock("l")
    answer = fake._write
    left = [lost]

    def deaf(method: str, key: str, request: httpx.Request) -> httpx.Response:
        found = answer(method, key, request)
        if left[0] > 0:
            left[0] -= 1
            raise httpx.ReadError("lost")
        return found

    fake._write = deaf  # type: ignore[method-assign]
    assert lock.acquire(renew=False) == 1
    assert lock.is_held
    left[0] = lost
    if lost > 32:
        with pytest.raises(Unreachable):
            lock.renew()
    lock.renew()
    lock.release()
    assert "l" not in fake.state()


def test_a_transaction_can_be_guarded_by_the_lock(fake: Fake, clock: Clock) -> None:
    lock = contender(fake, clock).lock("l")
    lock.acquire(renew=False)
    assert lock.guard(Txn().put("k", "v")).content()["if"] == [{"key": "l", "revision": 1}]
    lock.renew()
    assert lock.guard(Txn().put("k", "v")).content()["if"] == [{"key": "l", "revision": 2}]


def test_a_key_that_is_not_a_lock_is_not_touched(fake: Fake, clock: Clock) -> None:
    fake.put("l", "something")
    with pytest.raises(LockLost, match="something else than a lock"):
        contender(fake, clock).lock("l").acquire()
    assert fake.revision == 1


def test_an_election_has_one_leader_whom_all_can_name(fake: Fake, clock: Clock) -> None:
    first, second = (contender(fake, clock).election("e", name) for name in ("one", "two"))
    assert first.leader() is None
    with first:
        found = second.leader()
        assert found is not None
        assert (found.owner, found.revision, first.is_leader, second.is_leader) == (
            "one",
            first.token,
            True,
            False,
        )
    assert second.leader() is None
    assert second.campaign() > found.revision
    second.resign()


class Race:
    """Several that want one lock, performed step by step in any order, with answers that are lost."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.fake = Fake("a")
        self.http = self.fake.http()
        self.world = World()
        self.tokens: list[int] = []
        draws = iter(range(10_000))
        self.locks = [
            LockSteps(self.world.calls("http://a:80", rng=self.rng), "l", f"{n}", 5.0, lambda: f"n{next(draws)}")
            for n in range(3)
        ]
        keys = iter(range(10_000))
        for lock in self.locks:
            lock._calls._draw_key = lambda: f"key{next(keys)}"
        self.running: list[tuple[Steps[Any], Answer, float]] = [
            (self._life(lock), None, 0.0) for lock in self.locks
        ]

    def _life(self, lock: LockSteps) -> Steps[None]:
        while True:
            try:
                self.tokens.append((yield from lock.acquire(None)))
                for _ in range(self.rng.randrange(4)):
                    yield Pause(self.rng.uniform(0.0, 8.0))
                    yield from lock.renew()
                if self.rng.random() < 0.5:
                    yield from lock.release()
                else:
                    lock.token = None  # it forgets that it has it
            except (LockLost, ConditionFailed, Unreachable, CorelError):
                continue

    def step(self) -> None:
        at = min(range(3), key=lambda n: self.running[n][2] + self.rng.random() * 0.2)
        steps, answer, due = self.running[at]
        self.world.now = max(self.world.now, due)
        step = steps.send(answer)
        if isinstance(step, Pause):
            self.running[at] = steps, None, self.world.now + step.seconds
        else:
            assert isinstance(step, Exchange)
            self.running[at] = steps, self._perform(step), self.world.now + self.rng.random() * 0.3

    def _perform(self, step: Exchange) -> Reply | Failure:
        if self.rng.random() < 0.1:
            return Failure(step.url, "refused", False)
        request = step.request
        found = self.http.request(
            request.method, step.url + request.target, headers=dict(request.headers), content=request.body
        )
        if self.rng.random() < 0.15:
            return Failure(step.url, "lost", True)
        return Reply(step.url, found.status_code, dict(found.headers), found.content)


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_whoever_races_one_holds_it_and_tokens_rise(seed: int) -> None:
    race = Race(seed)
    for _ in range(250):
        race.step()
        assert sum(lock.is_held for lock in race.locks) <= 1
    assert race.tokens == sorted(set(race.tokens))
    assert race.tokens
