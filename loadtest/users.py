"""The users: YCSB's workloads, and those that try what corelkv promises (red writes, transactions, feeds,
conditions, counters)."""

from __future__ import annotations

import json
import time
from uuid import uuid4

import gevent
from locust import task
from locust.env import Environment

from loadtest.feed import FeedCheck, Lost, follow
from loadtest.record import Certainty, DelayLine, WriteLine
from loadtest.session import CorelUser, kv_path
from loadtest.workloads import MIXES, SCAN_KEYS_MAX, Action, distribution_of, lateness_ms, value_of

SWAP_KEYS = 4
COUNTER_KEYS = 8
TXN_PUTS = 10
LATENESS_EVERY = 20
"""Of how many events a watcher reports the lateness of one."""


class YcsbUser(CorelUser):
    """One of YCSB's workloads."""

    abstract = True
    mix = MIXES["a"]

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._distribution = distribution_of(self.mix, self.rng)

    @task
    def act(self) -> None:
        action = self.mix.draw(self.rng)
        if action is Action.SCAN:
            self._scan()
        elif action is Action.INSERT:
            self._put("insert", self.bench.keys.insert())
        else:
            key = self.bench.keys.draw(self._distribution)
            if action is not Action.UPDATE:
                self.read(kv_path(key, read=self.bench.read), f"GET key ({self.bench.read})")
            if action is not Action.READ:
                self._put("put", key)

    def _put(self, operation: str, key: str) -> None:
        self.write("PUT", kv_path(key), WriteLine(operation, key, ""), value_of(self.rng, self.bench.value_bytes))

    def _scan(self) -> None:
        start = self.bench.keys.draw(self._distribution)
        limit = self.rng.randint(1, SCAN_KEYS_MAX)
        self.read(f"/v1/kv?prefix=ycsb/&start={start}&limit={limit}", "GET scan")


class YcsbA(YcsbUser):
    """Half reads, half updates."""

    weight = 6
    mix = MIXES["a"]


class YcsbB(YcsbUser):
    """Mostly reads."""

    weight = 3
    mix = MIXES["b"]


class YcsbC(YcsbUser):
    """Reads only."""

    weight = 2
    mix = MIXES["c"]


class YcsbD(YcsbUser):
    """Reads of what was inserted last."""

    weight = 2
    mix = MIXES["d"]


class YcsbE(YcsbUser):
    """Short ranges."""

    weight = 1
    mix = MIXES["e"]


class YcsbF(YcsbUser):
    """Reads and writes of what was read."""

    weight = 2
    mix = MIXES["f"]


class Counter(CorelUser):
    """Adds to counters, each addition exactly once: it is repeated with its Idempotency-Key until it is known."""

    weight = 3

    @task
    def add(self) -> None:
        key = f"counter/{self.bench.run}/{self.rng.randrange(COUNTER_KEYS)}"
        amount = self.rng.randint(1, 9)
        line = WriteLine("increment", key, "", amount=amount)
        self.write_until_known("PATCH", kv_path(key), line, json.dumps({"increment": amount}))


class Swapper(CorelUser):
    """Compares and swaps a few keys that others swap too: of all that replace one revision, one may succeed."""

    weight = 2

    @task
    def swap(self) -> None:
        key = f"swap/{self.bench.run}/{self.rng.randrange(SWAP_KEYS)}"
        found = self.read(kv_path(key), "GET swap")
        revision = 0
        if found.status_code == 200 and found.headers is not None:
            revision = int(str(found.headers["corel-revision"]))
        elif found.status_code != 404:
            return
        condition = {"If-Match": f'"{revision}"'} if revision else {"If-None-Match": "*"}
        line = WriteLine("swap", key, "", idempotency_key=uuid4().hex, expected_revision=revision)
        self.write("PUT", kv_path(key), line, value_of(self.rng, 20), condition, expected=(412,))


class Batcher(CorelUser):
    """Puts several keys in one transaction."""

    weight = 2

    @task
    def batch(self) -> None:
        keys = [f"batch/{self.rng.randrange(1_000):04}" for _ in range(TXN_PUTS)]
        value = value_of(self.rng, self.bench.value_bytes)
        body = {"then": [{"put": {"key": key, "value": value}} for key in sorted(set(keys))]}
        line = WriteLine("txn", min(keys), "", idempotency_key=uuid4().hex)
        self.write("POST", "/v1/txn", line, json.dumps(body), {"Content-Type": "application/json"})


class RedWriter(CorelUser):
    """Writes where there is no majority, if there is such a place, and follows one write at a time until it is
    green: how long that takes is in the record."""

    weight = 2

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._followed: tuple[str, float] | None = None
        """The id of a write that was not green, and when it was sent."""

    @task
    def write_red(self) -> None:
        self._find_minority()
        key = f"red/{self.rng.randrange(200):03}"
        began = time.perf_counter()
        line = WriteLine("red", key, "")
        self.write("PUT", kv_path(key, ack="red"), line, value_of(self.rng, self.bench.value_bytes))
        if line.certainty == Certainty.ACKNOWLEDGED and line.id and self._followed is None:
            self._followed = line.id, began
        self._ask_for_followed()

    def _find_minority(self) -> None:
        """Once in a while looks for a node outside the primary component, and makes it this user's own."""
        if self.rng.random() < 0.1:
            host = self.rng.choice(self.bench.hosts)
            found = self.read(f"{host}/v1/status", "GET status")
            if found.status_code == 200 and not json.loads(found.content)["primary"]:
                self.home = host

    def _ask_for_followed(self) -> None:
        if self._followed is not None:
            write_id, began = self._followed
            answer = self.read(f"/v1/writes/{write_id}", "GET write")
            if answer.status_code == 200 and json.loads(answer.content)["color"] == "green":
                self.bench.recorder.delay(DelayLine("red to green", (time.perf_counter() - began) * 1000.0))
                self._followed = None


class Watcher(CorelUser):
    """Watches everything, on one node after the other, and checks that nothing is missing and nothing comes
    twice. How late changes come is in the record."""

    fixed_count = 1

    def on_start(self) -> None:
        self._watching = gevent.spawn(self._watch)

    def on_stop(self) -> None:
        self._watching.kill()

    @task
    def wait(self) -> None:
        """The feed has a greenlet of its own, which would keep Locust from stopping this user."""
        gevent.sleep(0.5)

    def _watch(self) -> None:
        hosts = self.bench.hosts
        place = hosts.index(self.home)
        recorder = self.bench.recorder
        check = FeedCheck(f"{recorder.worker}/{place}", recorder.feed)
        try:
            for number, event in enumerate(follow([*hosts[place:], *hosts[:place]], None, gevent.sleep)):
                check.take(event)
                lateness = lateness_ms(event.value) if number % LATENESS_EVERY == 0 else None
                if lateness is not None:
                    recorder.delay(DelayLine("watch", max(0.0, lateness)))
        except Lost as lost:
            check.fail(str(lost))
        finally:
            check.end()
