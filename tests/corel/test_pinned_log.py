"""A log as it was at one moment, read page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from corel import lmdb_reading
from corel.lmdb_log import LmdbLog
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST, Entry
from corel.pinned_log import GreenMemory, PinnedLog
from corel.storage import Record
from tests.corel.test_read_only_log import write

PAGE = 256
COUNT = 20 * PAGE


class Effort:
    """How much was computed and decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chained = self.records = self.batches = 0
        monkeypatch.setattr(lmdb_reading, "chained", self._chained)
        self._count(monkeypatch, "order_at", self._order)
        self._count(monkeypatch, "_batch", self._messages)

    def _chained(self, digest: bytes, entries: Iterable[Entry]) -> bytes:
        entries = list(entries)
        self.chained += len(entries)
        return chained(digest, entries)

    def _count(self, monkeypatch: pytest.MonkeyPatch, name: str, note: Callable[[], None]) -> None:
        original = getattr(lmdb_reading.LmdbReader, name)

        def counted(reader: object, cursor: object) -> object:
            note()
            return original(reader, cursor)

        monkeypatch.setattr(lmdb_reading.LmdbReader, name, counted)

    def _order(self) -> None:
        self.records += 1

    def _messages(self) -> None:
        self.batches += 1


def opened(directory: Path) -> LmdbLog:
    return LmdbLog(directory, "test", "a")


def pages(logs: Iterator[PinnedLog]) -> list[tuple[list[Record], bytes]]:
    """Reads all messages page by page, each from the next of these logs, with the digest after each page."""
    found: list[tuple[list[Record], bytes]] = []
    first = 0
    while first < COUNT:
        log = next(logs)
        records = log.green_records(first, 10**9)
        first += len(records)
        found.append((records, log.green_digest(first)))
    return found


def check(found: list[tuple[list[Record], bytes]], expected: list[Record]) -> None:
    digest = EMPTY_DIGEST
    for records, said in found:
        digest = chained(digest, [record.entry() for record in records])
        assert said == digest
    assert [record for records, _ in found for record in records] == expected


def check_effort(effort: Effort) -> None:
    assert (effort.chained, effort.records, effort.batches) == (COUNT - PAGE, 1, 4)


def test_a_merge_of_many_messages_is_read_once_however_many_pages_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one record of the order."""
    expected, effort = write(tmp_path, [COUNT], batches=4), Effort(monkeypatch)
    with closing(opened(tmp_path)) as log, closing(PinnedLog(log)) as pinned:
        check(pages(iter(lambda: pinned, None)), expected)
    check_effort(effort)


def test_one_memory_does_for_pages_that_are_each_read_as_the_log_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, effort = write(tmp_path, [COUNT], batches=4), Effort(monkeypatch)
    memory = GreenMemory()

    def each(log: LmdbLog) -> Iterator[PinnedLog]:
        while True:
            with closing(PinnedLog(log, memory)) as pinned:
                yield pinned

    with closing(opened(tmp_path)) as log:
        check(pages(each(log)), expected)
    check_effort(effort)


def test_a_long_computation_rests_now_and_then_and_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [COUNT], batches=4)
    effort, rests = Effort(monkeypatch), list[int]()
    memory = GreenMemory(lambda: rests.append(effort.chained))
    with closing(opened(tmp_path)) as log:
        for line in (COUNT - 9, COUNT - 9, COUNT - 1):
            with closing(PinnedLog(log, memory)) as pinned:
                pinned.green_digest(line)
            assert effort.chained == line
    assert {after - before for before, after in pairwise(rests)} == {64}


@pytest.mark.parametrize("greened", [[COUNT], [100, COUNT - 600, 500], [1, 2, 3, COUNT - 6]])
def test_a_digest_is_the_same_whatever_was_read_before(tmp_path: Path, greened: list[int]) -> None:
    records = write(tmp_path, greened, batches=4)
    lines = [COUNT - 450, 0, 90, 300, COUNT, 299, COUNT - 451, 100, 1, 301]
    with closing(opened(tmp_path)) as log, closing(PinnedLog(log)) as pinned:
        for line in lines:
            assert pinned.green_digest(line) == chained(
                EMPTY_DIGEST, [record.entry() for record in records[:line]]
            ), line
