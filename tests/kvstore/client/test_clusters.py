"""The client on real nodes, which are killed, stopped and cut off from each other."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from kvstore.client import (
    NO_RETRIES,
    AsyncClient,
    Client,
    ConditionFailed,
    CorelError,
    Happened,
    NoPrimary,
    NotGreen,
    Rejected,
    RetryPolicy,
    Txn,
)
from tests.api.cluster import Cluster

QUICK = RetryPolicy(total_seconds=20.0, attempts_max=60)
HASTY = (
    NO_RETRIES,
    RetryPolicy(total_seconds=0.3, attempts_max=2),
    RetryPolicy(total_seconds=0.3, attempts_max=4),
)
"""Policies with which calls fail while nodes do."""


@pytest.fixture
def client(three: Cluster) -> Iterator[Client]:
    with Client(three["a"].url, retry=QUICK) as made:
        yield made


def test_every_write_and_what_it_leaves(client: Client, key: str) -> None:
    write = client.put(key, "Ada")
    assert (write.color, write.outcome, write.is_green) == ("green", "applied", True)
    item = client.get(key, read="linearizable")
    assert item is not None
    assert (item.text, item.revision, item.content_type) == ("Ada", write.revision, "text/plain; charset=utf-8")
    assert client.append(key, " L.", if_match=item.etag).revision == (write.revision or 0) + 1
    assert client.increment(f"{key}/n", 5).outcome == "applied"
    with pytest.raises(Rejected) as raised:
        client.increment(key)
    assert (raised.value.code, raised.value.happened) == ("not_a_number", Happened.NO)
    client.delete(key)
    assert client.get(key) is None


def test_transactions(client: Client, key: str) -> None:
    seats = f"{key}/seats"
    client.put(seats, "1")
    take = Txn().if_value(seats, "1").increment(seats, -1).put(f"{key}/1", "Ada").get(seats)
    write = client.txn(take)
    assert write.succeeded
    assert write.results is not None
    assert write.results[2] is not None
    assert write.results[2].text == "0"
    with pytest.raises(ConditionFailed):
        client.txn(take)
    assert client.txn(take.otherwise(Txn().get(seats))).succeeded is False


def test_one_url_is_enough_to_know_all(client: Client, three: Cluster, key: str) -> None:
    client.put(key, "v")
    assert set(client.urls) == {node.url for node in three}
    assert {member.name for member in client.cluster().nodes} == {"a", "b", "c"}
    assert client.status().node == "a"


def test_a_preferred_node_is_asked(three: Cluster, key: str) -> None:
    with Client([node.url for node in three], prefer=three["c"].url) as client:
        assert client.status().node == "c"


def test_when_a_node_is_killed_another_one_is_asked(client: Client, three: Cluster, key: str) -> None:
    first = client.put(key, "1")
    three["a"].kill()
    second = client.put(key, "2", ack="green")
    assert (second.is_green, (second.revision or 0) > (first.revision or 0)) == (True, True)
    item = client.get(key, min_revision=second.revision or 0)
    assert item is not None
    assert item.text == "2"


class Lossy(httpx.HTTPTransport):
    """A network that loses the answers to the first copy of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        key = request.headers.get("idempotency-key", "")
        if key and key not in self.seen:
            self.seen.add(key)
            response.read()
            raise httpx.ReadError("the answer is lost")
        return response


def test_a_write_whose_answer_is_lost_is_repeated_elsewhere_and_applies_once(three: Cluster, key: str) -> None:
    urls = [node.url for node in three]
    with httpx.Client(transport=Lossy()) as http, Client(urls, http=http, retry=QUICK) as client:
        writes = [client.put(key, "1"), client.increment(key), client.append(key, "0")]
        writes.append(client.txn(Txn().increment(key, 5)))
        item = client.get(key, read="linearizable")
        assert item is not None
        assert item.text == "25"
        assert {write.outcome for write in writes} == {"duplicate"}
        assert writes[0].url == urls[1]
        with pytest.raises(ConditionFailed) as raised:
            client.put(key, "x", if_absent=True)
    assert raised.value.happened is Happened.NO


def test_a_red_write_is_waited_for_until_it_is_green(client: Client, three: Cluster, key: str) -> None:
    three.partition("a|bc")
    write = client.put(key, "from a")
    assert (write.color, write.outcome, write.revision) == ("red", "pending", None)
    with pytest.raises(NotGreen) as raised:
        write.wait_green(0.1)
    assert (raised.value.happened, raised.value.write_id) == (Happened.UNKNOWN, write.id)
    three.heal()
    green = write.wait_green(20.0)
    assert (green.color, green.outcome) == ("green", "applied")


def test_a_red_write_whose_condition_fails_at_the_merge_says_so(client: Client, three: Cluster, key: str) -> None:
    three.partition("a|bc")
    write = client.put(key, "mine", if_absent=True)
    three["b"].put(key, "theirs")
    three.heal()
    with pytest.raises(ConditionFailed) as raised:
        write.wait_green(20.0)
    assert (raised.value.happened, raised.value.key) == (Happened.NO, key)
    assert client.write(write.id).outcome == "rejected"


def test_a_write_that_must_be_green_finds_the_primary_component(client: Client, three: Cluster, key: str) -> None:
    client.cluster()
    three.partition("a|bc")
    write = client.put(key, "v", ack="green")
    assert (write.is_green, write.url != three["a"].url) == (True, True)
    with Client(three["a"].url, discover=False, retry=RetryPolicy(attempts_max=2)) as alone:
        with pytest.raises(NoPrimary) as raised:
            alone.put(key, "w", ack="green")
        assert raised.value.happened is Happened.NO


class Writer(threading.Thread):
    """Appends words of its own to a key until it is told to stop, and notes what it was told of each."""

    def __init__(self, cluster: Cluster, name: str, key: str, retry: RetryPolicy) -> None:
        super().__init__()
        self.told: dict[str, Happened] = {}
        self.is_over = threading.Event()
        self._key = key
        self._client = Client([node.url for node in cluster], prefer=cluster[name].url, retry=retry)

    def run(self) -> None:
        with self._client as client:
            while not self.is_over.is_set():
                word = f"{self._client.urls[0][-5:]}.{len(self.told)}"
                try:
                    client.append(self._key, f"{word} ", ack=("auto", "green")[len(self.told) % 2])
                    self.told[word] = Happened.YES
                except CorelError as error:
                    self.told[word] = error.happened


def test_what_writers_are_told_is_true_through_kills_and_partitions(three: Cluster, key: str) -> None:
    writers = [Writer(three, name, key, retry) for name, retry in zip("abc", HASTY, strict=True)]
    for writer in writers:
        writer.start()
    three["a"].kill()
    three["a"].start()
    three["a"].await_ready("")
    three.await_views("abc")
    three.partition("a|bc")
    three["b"].kill()
    three["b"].start()
    three["b"].await_ready("")
    three.heal()
    for writer in writers:
        writer.is_over.set()
    for writer in writers:
        writer.join()
    three.await_agreement()
    found = Counter(three["c"].get(key).body.decode().split())
    told = {word: happened for writer in writers for word, happened in writer.told.items()}
    assert set(found.values()) == {1}
    assert [word for word, happened in told.items() if happened is Happened.YES and word not in found] == []
    assert [word for word, happened in told.items() if happened is Happened.NO and word in found] == []
    assert set(found) <= set(told)


def test_the_asynchronous_client_does_many_things_at_once(three: Cluster, key: str) -> None:
    async def story() -> int:
        async with AsyncClient([node.url for node in three]) as client:
            await asyncio.gather(*(client.increment(key) for _ in range(50)))
            item = await client.get(key, read="linearizable")
            assert item is not None
            return int(item.text)

    assert asyncio.run(story()) == 50


# Recipes


def test_a_lock_goes_from_one_to_the_next(three: Cluster, key: str) -> None:
    with Client(three["a"].url) as one, Client(three["b"].url) as two:
        first, second = one.lock(key, "one", lease=5.0), two.lock(key, "two", lease=5.0)
        token = first.acquire()
        waiting = threading.Thread(target=second.acquire)
        waiting.start()
        first.renew()
        assert (first.token, second.is_held) == (token, False)
        first.release()
        waiting.join()
        assert second.token > token
        second.release()


def test_a_leader_that_is_gone_is_replaced(three: Cluster, key: str) -> None:
    async def story() -> tuple[int, int]:
        async with AsyncClient(three["a"].url) as one, AsyncClient(three["b"].url) as two:
            first, second = one.election(key, "one", lease=0.5), two.election(key, "two", lease=0.5)
            lost = await first.campaign()
            assert first._lock._task is not None
            first._lock._task.cancel()  # as if its process had been killed
            async with second:
                leader = await one.election(key, "x").leader()
                assert leader is not None
                assert leader.owner == "two"
                return lost, second.token

    lost, token = asyncio.run(story())
    assert lost < token
