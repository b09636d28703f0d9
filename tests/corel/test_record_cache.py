"""The read cache: it finds what was read last, and is bounded in batches and in bytes."""

from __future__ import annotations

from corel.messages import MessageId
from corel.record_cache import BATCHES_MAX, BYTES_MAX, RecordCache
from corel.storage import Record
from transport import Machine, ViewId

A, VIEW = Machine("a", 1), ViewId(3, "a", 1)


def batch(first: int, count: int = 10) -> list[Record]:
    return [Record(number, MessageId(A, number + 1), 1, VIEW, 0, b"") for number in range(first, first + count)]


def test_it_finds_every_message_of_its_batches_and_no_other() -> None:
    cache = RecordCache()
    for first in (0, 20):
        cache.add(batch(first), 100)
    found = [arrival for arrival in range(40) if cache.find(arrival) is not None]
    assert found == [*range(10), *range(20, 30)]
    assert cache.find(25) == batch(20)[5]
    cache.clear()
    assert (cache.find(25), cache.size) == (None, 0)


def test_of_many_small_batches_it_keeps_the_last() -> None:
    cache = RecordCache()
    for first in range(0, 10 * (BATCHES_MAX + 1), 10):
        cache.add(batch(first), 100)
    assert cache.find(9) is None
    assert cache.find(10) is not None
    assert cache.size == 100 * BATCHES_MAX


def test_of_large_batches_it_keeps_fewer_and_the_last_whatever_its_size() -> None:
    cache = RecordCache()
    for first in (0, 10, 20):
        cache.add(batch(first), BYTES_MAX // 2)
    assert [cache.find(first) is not None for first in (0, 10, 20)] == [False, True, True]
    cache.add(batch(30), 2 * BYTES_MAX)
    assert [cache.find(first) is not None for first in (10, 20, 30)] == [False, False, True]
    assert cache.size == 2 * BYTES_MAX
