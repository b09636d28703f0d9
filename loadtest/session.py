"""What all users share: a node that they ask, a record of their writes, and names for Locust's statistics."""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any
from uuid import uuid4

from locust import FastHttpUser
from locust.contrib.fasthttp import ResponseContextManager
from locust.env import Environment

from kvstore.client import key_path
from loadtest.record import Certainty, Recorder, WriteLine, wall_ms
from loadtest.workloads import Keys

AWAY_SECONDS = 5.0
"""How long a user asks other nodes after its own has not answered."""


class Bench:
    """What the users of one process share. `locustfile` makes it when a run begins."""

    def __init__(self, hosts: list[str], recorder: Recorder, keys: Keys, options: Any) -> None:
        self.hosts = hosts
        self.recorder = recorder
        self.keys = keys
        self.value_bytes = int(options.value_bytes)
        self.think_seconds = float(options.think_ms) / 1000.0
        self.read = str(options.read)
        self.run = str(options.run)
        self._seed = options.seed
        self._turn = 0

    def next_host(self) -> str:
        """Users are spread over the nodes in turn."""
        self._turn += 1
        return self.hosts[self._turn % len(self.hosts)]

    def next_rng(self) -> Random:
        """A generator for one user. The seed decides what it asks for, not when it is answered."""
        return Random(f"{self._seed}/{self.recorder.worker}/{self._turn}")


class CorelUser(FastHttpUser):
    """A user of one node: it goes on with another one while its own does not answer, and comes back to it.

    It uses Locust's fast client, not `kvstore.client`: see docs/loadtest.md for how many requests/s each makes."""

    abstract = True
    network_timeout = 20.0
    connection_timeout = 3.0
    concurrency = 1

    def __init__(self, environment: Environment) -> None:
        self.bench: Bench = environment.bench  # type: ignore[attr-defined]
        self.home = self.bench.next_host()
        self.rng = self.bench.next_rng()
        self.host = self.home
        self._away_until = 0.0
        super().__init__(environment)

    def wait_time(self) -> float:
        """Users pause at random, for `--think-ms` on average, so that they do not act in step."""
        return self.rng.expovariate(1.0 / self.bench.think_seconds) if self.bench.think_seconds else 0.0

    # Requests

    def read(self, path: str, name: str) -> ResponseContextManager:
        """Sends a request that changes nothing. That a key does not exist is an answer, not a failure."""
        self._choose_node()
        answer = self.client.get(path, name=name, catch_response=True)
        with answer:
            if answer.status_code == 404:
                answer.success()  # type: ignore[no-untyped-call]
        self._notice(answer.status_code)
        return answer

    def write(
        self,
        method: str,
        path: str,
        line: WriteLine,
        body: str,
        headers: dict[str, str] | None = None,
        expected: tuple[int, ...] = (),
    ) -> WriteLine:
        """Sends a write, and puts what came of it in the record, also if this user is stopped meanwhile.
        `expected` are statuses that are no failures besides 200 and 202."""
        self._choose_node()
        line.node, line.time_ms = self.client.base_url or "", wall_ms()
        began = time.perf_counter()
        sent = dict(headers or {})
        if line.idempotency_key:
            sent["Idempotency-Key"] = line.idempotency_key
        try:
            with self.client.request(
                method, path, name=f"{method} {line.operation}", data=body, headers=sent, catch_response=True
            ) as answer:
                self._read_answer(line, answer)
                if answer.status_code in expected:
                    answer.success()
                elif line.error:
                    answer.failure(f"{answer.status_code} {line.error}")
        finally:
            line.duration_ms = round((time.perf_counter() - began) * 1000.0, 3)
            self.bench.recorder.write(line)
        self._notice(line.status)
        return line

    def _read_answer(self, line: WriteLine, answer: ResponseContextManager) -> None:
        if not answer.status_code:
            line.error = type(getattr(answer, "error", None)).__name__
            return
        try:
            line.answer(answer.status_code, json.loads(answer.content or b""))
        except ValueError:
            line.status, line.error = answer.status_code, "not JSON"

    def write_until_known(self, method: str, path: str, line: WriteLine, body: str) -> WriteLine:
        """Repeats a write with its Idempotency-Key until a node says what became of it, or refuses it."""
        key = line.idempotency_key = uuid4().hex
        line = self.write(method, path, line, body)
        while line.certainty == Certainty.UNKNOWN:
            time.sleep(0.2)
            again = WriteLine(line.operation, line.key, "", idempotency_key=key, amount=line.amount)
            line = self.write(method, path, again, body)
        return line

    # Which node

    def _choose_node(self) -> None:
        if self.client.base_url != self.home and time.monotonic() > self._away_until:
            self.client.base_url = self.home

    def _notice(self, status: int) -> None:
        """Turns to the next node if this one did not answer."""
        if status == 0:
            hosts = self.bench.hosts
            now = self.client.base_url
            place = hosts.index(now) if now in hosts else 0
            self.client.base_url = hosts[(place + 1) % len(hosts)]
            self._away_until = time.monotonic() + AWAY_SECONDS


def kv_path(key: str, **query: str | int) -> str:
    tail = "&".join(f"{name}={value}" for name, value in query.items())
    return f"{key_path(key)}?{tail}" if tail else key_path(key)
