"""The log on disk is truncated a little with each checkpoint, and everything that is kept is as if it were not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corel import lmdb_truncation
from corel.disk_errors import DamagedLog, DiskFull, Truncated
from corel.lmdb_truncation import TRUNCATED_AT_ONCE_MIN, at_once
from corel.read_only_log import ReadOnlyLog
from corel.verification import verify
from tests.corel.truncated_logs import TruncatedLog, checkpoint, opened
from tests.failing_disk import refuse_meta_writes

EACH_ITS_OWN = 10**6
"""So many streams that every message may become green at any time."""


def test_what_is_before_the_cut_is_deleted_with_a_checkpoint() -> None:
    with TemporaryDirectory() as directory:
        made = TruncatedLog(Path(directory))
        for first in range(0, 40, 4):
            made.write(new=4, green=range(first, first + 4))
        made.write(cut=23, is_checkpoint=False)
        assert made.first == 0, "only with a checkpoint"
        made.log.update(checkpoint)
        assert (made.first, made.keys("order")[0], made.keys("messages")[0]) == (20, 20, 20)
        assert made.keys("truncated") == []
        made.check()
        made.reopen()
        made.check()
        assert made.log.load().lines.cut == 23
        made.log.close()
        assert verify(Path(directory)) > 10


def test_reading_below_the_cut_says_where_the_log_begins(tmp_path: Path) -> None:
    made = TruncatedLog(tmp_path)
    made.write(new=10, green=range(10))
    made.write(new=10, green=range(10, 20))
    made.write(cut=10)
    made.log.close()
    log = ReadOnlyLog(tmp_path)
    for read in (
        lambda: log.green(9, 1),
        lambda: log.green_digest(0),
        lambda: log.record(3),
        lambda: list(log.green_messages(5, 20)),
    ):
        with pytest.raises(Truncated, match=r"kept from position 10 on.*Read it from 10 on") as raised:
            read()
        assert raised.value.first == 10
    assert log.green(3, 0) == []
    assert [one.position for one in log.green_messages(10, 20)] == list(range(10, 20))
    log.close()


def test_a_batch_is_kept_until_its_last_message_is_truncated() -> None:
    """A minority logged messages 3 to 5, and they became green long after those of the majority."""
    with TemporaryDirectory() as directory:
        made = TruncatedLog(Path(directory), streams=EACH_ITS_OWN)
        made.write(new=6, green=[0, 1, 2])
        made.write(new=6, green=range(6, 12))
        made.write(new=3, green=[3, 4, 5, 12, 13, 14])
        made.write(cut=9)
        assert (made.first, made.keys("messages"), made.keys("truncated")) == (9, [0, 6, 12], [0, 6])
        made.check()
        made.reopen()
        made.write(cut=15)
        assert (made.first, made.keys("messages"), made.keys("truncated")) == (15, [], [])
        made.check()
        made.log.close()
        assert verify(Path(directory)) > 2


def test_what_a_start_looks_for_is_not_deleted() -> None:
    """With very many messages that are not green, the log does not look for the oldest of them."""
    with TemporaryDirectory() as directory:
        made = TruncatedLog(Path(directory))
        made.write(new=10)
        made.write(new=10, green=range(15))
        made.open_from = 0
        made._green.clear()
        made.write(cut=15)
        assert (made.first, made.keys("messages"), made.keys("truncated")) == (15, [0, 10], [0, 10])
        made.reopen()
        assert [entry.arrival for entry in made.log.load().queue.red] == [15, 16, 17, 18, 19]
        made._green.update(range(15))
        made.write()
        assert (made.keys("messages"), made.keys("truncated")) == ([10], [10])
        made.log.close()


def test_a_log_of_which_nothing_is_kept_goes_on(tmp_path: Path) -> None:
    made = TruncatedLog(tmp_path)
    made.write(new=3, green=range(3))
    made.write(cut=3)
    made.reopen()
    assert (made.log.load().queue.green, made.keys("messages"), made.keys("order")) == (3, [], [])
    assert made.log.green_digest(3) == made.digests[3]
    made.write(new=2, green=[3, 4])
    made.check()
    made.log.close()
    assert verify(tmp_path) > 2


def test_no_more_is_deleted_at_once_than_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_truncation, "TRUNCATED_AT_ONCE_MIN", 10)
    made = TruncatedLog(tmp_path)
    for first in range(0, 200, 2):
        made.write(new=2, green=range(first, first + 2), is_checkpoint=False)
    made.write()
    made.write(cut=150)
    assert made.first == 10
    made.log.update(checkpoint)
    assert made.first == 20
    made.write(new=15, green=range(200, 215), is_checkpoint=False)
    made.write(new=5, green=range(215, 220))
    assert made.first == 60, "twice as many as have been added"
    made.check()
    made.log.close()


def test_twice_as_many_may_be_truncated_as_have_been_added() -> None:
    assert [at_once(0), at_once(10_000)] == [TRUNCATED_AT_ONCE_MIN, 20_000]


def test_a_crash_between_any_two_writes_loses_nothing(tmp_path: Path) -> None:
    made = TruncatedLog(tmp_path / "node", streams=EACH_ITS_OWN)
    green: list[int] = []
    for number in range(12):
        new = list(range(len(made.records), len(made.records) + 5))
        late = [arrival for arrival in new if arrival % 3 == 0] if number % 2 else []
        taken = [arrival for arrival in [*green, *new] if arrival not in late]
        green = late
        made.write(new=5, green=taken, cut=max(0, len(made.order) - 8))
        crashed = tmp_path / f"crashed {number}"
        crashed.mkdir()
        shutil.copy(made.directory / "data.mdb", crashed)
        running, made.log = made.log, opened(crashed)
        assert sorted(entry.arrival for entry in made.log.load().queue.red) == sorted(green)
        made.check()
        made.log.update(checkpoint)
        made.check()
        made.log.close()
        verify(crashed)
        made.log = running
    made.log.close()


def test_a_write_that_the_disk_refuses_truncates_nothing_and_can_be_tried_again() -> None:
    with TemporaryDirectory() as directory:
        made = TruncatedLog(Path(directory))
        made.write(new=5, green=range(5))
        made.write(new=5, green=range(5, 10))
        refuse_meta_writes(made.directory)
        with pytest.raises(DiskFull):
            made.write(cut=5)
        assert made.log.reopen_if_unusable()
        made.log.try_write()
        first = made.first
        made.check()
        made.write()
        assert (first, made.first) in ((0, 5), (5, 5))
        made.check()
        made.log.close()


def test_the_file_stops_growing(tmp_path: Path) -> None:
    made = TruncatedLog(tmp_path)
    sizes = []
    for first in range(0, 30_000, 100):
        made.write(new=100, green=range(first, first + 100), cut=first - 2_000, size=400)
        sizes.append((tmp_path / "data.mdb").stat().st_size)
    assert max(sizes[60:]) <= sizes[60] * 1.05, "it does not grow after 6,000 messages"
    assert len(made.keys("messages")) < 25
    assert made.log.log_size().size_bytes < sizes[-1]
    made.log.close()


def test_the_size_of_the_log_is_told_without_what_else_is_there(tmp_path: Path) -> None:
    made = TruncatedLog(tmp_path)
    empty = made.log.log_size().size_bytes
    items = made.log.table("items")
    made.log.update(lambda transaction: transaction.put(b"key", bytes(10**6), db=items))
    assert made.log.log_size().size_bytes == empty
    made.write(new=10, green=range(10), size=10_000)
    assert 100_000 < made.log.log_size().size_bytes < 130_000
    made.log.close()


_TRUNCATING = """
import sys
from pathlib import Path
from tests.corel.truncated_logs import TruncatedLog
made = TruncatedLog(Path(sys.argv[1]))
for first in range(0, 12_000, 100):
    made.write(new=100, green=range(first, first + 100))
print("written", flush=True)
sys.stdin.readline()
while made.first < 6_000:
    made.write(cut=6_000)
print("truncated", flush=True)
sys.stdin.readline()
"""


def test_a_reader_reads_on_while_the_log_is_truncated(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TRUNCATING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        log = ReadOnlyLog(tmp_path)
        ahead, behind = log.green_messages(6_000, 12_000), log.green_messages(0, 12_000)
        assert [next(ahead).position, next(behind).position] == [6_000, 0]
        print(file=writer.stdin, flush=True)
        assert writer.stdout.readline() == "truncated\n"
        assert [one.position for one in ahead] == list(range(6_001, 12_000))
        with pytest.raises(Truncated, match="kept from position 6000 on"):
            list(behind)
        log.close()
        assert verify(tmp_path) > 100
        print(file=writer.stdin, flush=True)


def test_an_order_that_does_not_begin_at_its_cut_is_damage() -> None:
    def remove_first(transaction: Any) -> None:
        with transaction.cursor(db=made.log._order) as cursor:
            cursor.first()
            cursor.delete()

    with TemporaryDirectory() as directory:
        made = TruncatedLog(Path(directory))
        for first in range(0, 20, 5):
            made.write(new=5, green=range(first, first + 5))
        made.write(cut=5)
        made.log.update(remove_first)
        with pytest.raises(DamagedLog, match="the order begins at 10, and is to begin at 5"):
            made.log.load()
        with pytest.raises(DamagedLog, match="the order begins at 10"):
            made.write(cut=20)
        made.log.close()
        with pytest.raises(DamagedLog, match="the order goes from 5 to 10"):
            verify(made.directory)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[int, float, float, bool]]:
    """What each write does: how many messages it brings, which part of the open ones become green, in which order,
    how far is cut, and whether there is a checkpoint."""
    part = st.floats(0, 1)
    return draw(st.lists(st.tuples(st.integers(0, 6), part, part, st.booleans()), min_size=1, max_size=12))


@settings(max_examples=80, deadline=None)
@given(steps(), st.randoms(use_true_random=False), st.integers(1, 12))
def test_what_is_kept_is_what_a_model_keeps(
    planned: list[tuple[int, float, float, bool]], random: Any, at_least: int
) -> None:
    """The model is a dict of positions, from which everything before the beginning is taken away."""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lmdb_truncation, "TRUNCATED_AT_ONCE_MIN", at_least)
        made = TruncatedLog(Path(directory), streams=EACH_ITS_OWN)
        model: dict[int, bytes] = {}
        still_open: list[int] = []
        for new, green_part, cut_part, is_checkpoint in planned:
            still_open += range(len(made.records), len(made.records) + new)
            random.shuffle(still_open)
            count = int(green_part * len(still_open))
            turned, still_open = still_open[:count], still_open[count:]
            cut = int(cut_part * (len(made.order) + count))
            made.write(new, turned, cut, is_checkpoint)
            model |= {position: made.records[arrival].body for position, arrival in enumerate(made.order)}
            model = {position: body for position, body in model.items() if position >= made.first}
            kept = made.log.green(made.first, len(made.order))
            assert dict(enumerate((entry.body for entry in kept), made.first)) == model
            made.check()
            _check_batches(made, set(made.order[made.first :]) | set(still_open))
            assert sorted(entry.arrival for entry in made.log.load().queue.red) == sorted(still_open)
        for _ in range(len(made.order) + 1):
            made.write(cut=len(made.order))
        assert (made.keys("order"), made.first) == ([], len(made.order))
        assert made.keys("messages") == [batch.start for batch in made.batches if batch.stop > made.open_from]
        made.log.close()
        verify(made.directory)


def _check_batches(made: TruncatedLog, needed: set[int]) -> None:
    """Raises unless the batches that are there are those from the first that is needed on, or a few more."""
    found = made.keys("messages")
    starts = [batch.start for batch in made.batches]
    assert found == starts[len(starts) - len(found) :]
    first = min((batch.start for batch in made.batches if needed.intersection(batch)), default=len(made.records))
    assert not found or found[0] <= first
    for batch in made.batches:
        if batch.start in made.keys("truncated"):
            assert len(needed.intersection(batch)) < len(batch)
