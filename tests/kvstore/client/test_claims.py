"""What an error says of a write (it happened, it did not, nobody knows) against what the nodes have in the end,
when nodes are killed with SIGKILL right after a request was sent to them."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from secrets import token_hex

import httpx
import pytest

from kvstore.client import NO_RETRIES, Client, CorelError, Happened, RetryPolicy
from tests.api.cluster import Cluster, Node

ROUNDS = 5
WRITES = 24
"""How many writes are sent at once in a round."""


class Trap(httpx.HTTPTransport):
    """A network that counts the requests that have been sent, and kills the node so many seconds after one of
    them: at once, the node has hardly read them; some milliseconds later, some are on the other nodes' disks."""

    def __init__(self, node: Node, after: int, seconds: float) -> None:
        super().__init__()
        self._node = node
        self._left = after
        self._seconds = seconds
        self._mutex = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions["trace"] = self._trace
        return super().handle_request(request)

    def _trace(self, name: str, info: object) -> None:
        if name != "http11.send_request_body.complete":
            return
        with self._mutex:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            time.sleep(self._seconds)
            self._node.signal(signal.SIGKILL)


def told(client: Client, key: str, word: str, is_green: bool) -> Happened:
    try:
        client.append(key, f"{word} ", ack="green" if is_green else "auto", idempotency_key=f"{key} {word}")
    except CorelError as error:
        return error.happened
    return Happened.YES


def sent_to_a_node_that_dies(node: Node, key: str, words: list[str], rng: Random) -> dict[str, Happened]:
    """Sends the words at once, each once, and kills the node after one of them."""
    trap = Trap(node, rng.randrange(1, len(words) + 1), rng.choice((0.0, 0.002, 0.005, 0.01, 0.02)))
    levels = [rng.random() < 0.5 for _ in words]
    with (
        httpx.Client(transport=trap) as http,
        Client(node.url, discover=False, retry=NO_RETRIES, http=http) as client,
        ThreadPoolExecutor(len(words)) as threads,
    ):
        found = threads.map(lambda word, is_green: told(client, key, word, is_green), words, levels)
        claims = dict(zip(words, found, strict=True))
    node.kill()
    return claims


def tallied(claims: dict[str, Happened], found: Counter[str]) -> Counter[tuple[str, bool]]:
    return Counter((claim.value, word in found) for word, claim in claims.items())


@pytest.mark.parametrize("is_cut_off", [False, True], ids=["primary", "cut off"])
def test_what_is_told_of_writes_to_nodes_that_die_is_true(three: Cluster, key: str, is_cut_off: bool) -> None:
    seed = int(token_hex(4), 16)
    rng = Random(seed)
    claims: dict[str, Happened] = {}
    for number in range(ROUNDS):
        node = three["abc"[number % 3]]
        if is_cut_off:
            three.partition(f"{node.name}|{'abc'.replace(node.name, '')}")
        words = [f"{number}.{one}" for one in range(WRITES)]
        claims |= sent_to_a_node_that_dies(node, key, words, rng)
        three.revive()
        three.heal()
    three.await_agreement()
    found = Counter(three["c"].get(key).body.decode().split())
    tally = tallied(claims, found)
    print(f"seed {seed}: {dict(tally)}")
    assert set(found.values()) == {1}, seed
    assert set(found) <= set(claims), seed
    assert (tally["yes", False], tally["no", True]) == (0, 0), f"seed {seed}: {tally}"
    assert tally["unknown", False] + tally["unknown", True] > ROUNDS, f"seed {seed}: {tally}"


def test_what_is_unknown_can_be_repeated_with_its_key(three: Cluster, key: str) -> None:
    rng = Random(1)
    words = [f"{one}" for one in range(WRITES)]
    claims = sent_to_a_node_that_dies(three["a"], key, words, rng)
    with Client(three["b"].url, retry=RetryPolicy(total_seconds=60.0, attempts_max=600)) as client:
        again = {
            word: told(client, key, word, True) for word, claim in claims.items() if claim is not Happened.YES
        }
    assert set(again.values()) <= {Happened.YES}
    three.revive()
    three.heal()
    three.await_agreement()
    found = Counter(three["a"].get(key).body.decode().split())
    assert found == dict.fromkeys(words, 1)
