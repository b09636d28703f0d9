"""The log on disk: what is written is there after a restart, and nothing wrong is ever read."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corel.disk_errors import DiskError, DiskFull, UnusableLog
from corel.lmdb_log import LmdbLog
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST, MessageId
from corel.storage import Image, Lines, LogWrite, Record, Yellow
from tests.failing_disk import refuse_meta_writes
from tests.simulator.corel.memory_log import MemoryLog
from transport.messages import Machine, ViewId

A, B = Machine("a", 1), Machine("b", 7)
VIEW = ViewId(3, "a", 1)


def record(arrival: int, stream: Machine, sequence: int, primary: int = 0, body: bytes = b"body") -> Record:
    return Record(arrival, MessageId(stream, sequence), 10 + arrival, VIEW, primary, body)


def lines(next_arrival: int, green: int = 0, **more: object) -> Lines:
    return Lines(is_voter=True, next_arrival=next_arrival, green=green, **more)  # type: ignore[arg-type]


def described(image: Image) -> tuple[object, ...]:
    queue = image.queue
    return (
        image.lines,
        queue.green,
        queue.green_last,
        [(entry.id, entry.arrival, entry.timestamp, entry.size, entry.body_digest) for entry in queue.yellow],
        [(entry.id, entry.arrival, entry.timestamp, entry.size, entry.body_digest) for entry in queue.red],
    )


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    store = LmdbLog(tmp_path, "test", "a", is_new_cluster=True)
    assert store.load().lines == Lines(is_voter=True)
    store.write(LogWrite((record(0, A, 1), record(1, B, 1), record(2, A, 2)), (), None, lines(3)))
    store.write(LogWrite((record(3, B, 2),), (1, 0), None, lines(4, green=2, streams=((A, 1), (B, 1)))))
    store.close()
    again = LmdbLog(tmp_path, "test", "a")
    image = again.load()
    assert image.queue.green == 2
    assert [entry.id for entry in image.queue.red] == [MessageId(A, 2), MessageId(B, 2)]
    assert [entry.id for entry in again.green(0, 10)] == [MessageId(B, 1), MessageId(A, 1)]
    assert again.body(2) == b"body"
    again.close()


def test_an_empty_store_votes_only_in_a_new_cluster(tmp_path: Path) -> None:
    for name, is_new in (("old", False), ("new", True)):
        store = LmdbLog(tmp_path / name, "test", "a", is_new_cluster=is_new)
        assert store.load().lines.is_voter is is_new
        store.close()
    again = LmdbLog(tmp_path / "old", "test", "a", is_new_cluster=True)
    assert not again.load().lines.is_voter  # it is not new any more
    again.close()


def test_a_store_knows_its_cluster_its_node_and_itself(tmp_path: Path) -> None:
    store = LmdbLog(tmp_path, "test", "a")
    uuid = store.uuid
    store.close()
    for cluster, node in (("test", "b"), ("other", "a")):
        with pytest.raises(DiskError, match=r"belongs to node a of cluster test.*its own --data"):
            LmdbLog(tmp_path, cluster, node)
    again = LmdbLog(tmp_path, "test", "a")
    assert again.uuid == uuid
    again.close()


def test_two_nodes_cannot_share_a_directory(tmp_path: Path) -> None:
    imports = "from pathlib import Path; from corel.lmdb_log import LmdbLog"
    code = f"{imports}; LmdbLog(Path({str(tmp_path)!r}), 'test', 'a')"
    store = LmdbLog(tmp_path, "test", "a")
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"is in use by process {os.getpid()}" in second.stderr
    store.close()


def test_a_damaged_record_is_an_error_that_names_the_file_and_the_way_out(tmp_path: Path) -> None:
    store = LmdbLog(tmp_path, "test", "a")
    store.write(LogWrite((record(0, A, 1, body=b"precious" * 10),), (), None, lines(1)))
    store.close()
    path = tmp_path / "data.mdb"
    content = path.read_bytes()
    assert content.count(b"precious" * 10) == 1
    path.write_bytes(content.replace(b"precious", b"prEcious", 1))
    damaged = LmdbLog(tmp_path, "test", "a")
    with pytest.raises(
        DiskError, match=r"data.mdb is damaged .*messages 0 has a wrong checksum.*Move the directory away"
    ):
        damaged.load()
    damaged.close()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"something else" * 1_000)
    with pytest.raises(DiskError, match=r"data.mdb is damaged|Move the directory away"):
        LmdbLog(tmp_path, "test", "a")


def test_a_full_disk_refuses_the_write_whole_and_keeps_what_was_there(tmp_path: Path) -> None:
    store = LmdbLog(tmp_path, "test", "a", map_bytes=300_000)
    store.write(LogWrite((record(0, A, 1),), (), None, lines(1)))
    with pytest.raises(DiskFull, match=r"no room in .*Raise log.map_bytes on every node, and restart"):
        store.write(LogWrite((record(1, A, 2, body=bytes(400_000)),), (), None, lines(2)))
    assert [entry.id for entry in store.load().queue.red] == [MessageId(A, 1)]
    store.write(LogWrite((record(1, A, 2),), (), None, lines(2)))
    assert store.body(1) == b"body"
    store.close()


def test_a_format_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corel.lmdb_log.FORMAT", 99)
    LmdbLog(tmp_path, "test", "a").close()
    monkeypatch.undo()
    with pytest.raises(DiskError, match=r"format 99; this version of corelkv reads 6"):
        LmdbLog(tmp_path, "test", "a")


def test_lmdb_errors_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LmdbLog(tmp_path, "test", "a")

    class Failing:
        def begin(self, **options: object) -> None:
            raise lmdb.ReadonlyError("mdb_txn_begin: Read-only file system")

    monkeypatch.setattr(store, "_environment", Failing())
    with pytest.raises(DiskError, match=r"cannot be written.*Remount it writable"):
        store.write(LogWrite((), (), None, lines(0)))
    monkeypatch.undo()
    store.close()


def test_a_log_whose_meta_page_could_not_be_written_is_opened_again_and_has_everything() -> None:
    with TemporaryDirectory() as directory:
        store = LmdbLog(Path(directory), "test", "a")
        table = store.table("more")
        store.write(LogWrite((record(0, A, 1), record(1, B, 1)), (1,), None, lines(2, green=1, streams=((B, 1),))))
        assert not store.reopen_if_unusable(), "it is usable"
        refuse_meta_writes(Path(directory))
        with pytest.raises(DiskFull):
            store.write(LogWrite((record(2, A, 2),), (), None, lines(3)))
        for use in (store.load, store.try_write, lambda: store.body(1), lambda: store.green(0, 1)):
            with pytest.raises(UnusableLog, match=r"MDB_PANIC.*opens it again by itself"):
                use()
        assert store.reopen_if_unusable()
        with pytest.raises(UnusableLog, match="another environment"):
            store.read(table)
        image = store.load()
        assert (image.queue.green, [entry.id for entry in image.queue.red]) == (1, [MessageId(A, 1)])
        assert [entry.id for entry in store.green(0, 10)] == [MessageId(B, 1)]
        store.write(LogWrite((record(2, A, 2),), (), None, lines(3, green=1)))
        assert store.body(2) == b"body"
        store.close()


def test_a_disk_that_cannot_be_opened_for_writing_is_read_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LmdbLog(tmp_path, "test", "a")
    store.write(LogWrite((record(0, A, 1),), (), None, lines(1)))
    refuse_meta_writes(tmp_path)
    with pytest.raises(DiskFull):
        store.try_write()
    open_environment = lmdb.open

    def read_only(path: str, **options: object) -> lmdb.Environment:
        if not options["readonly"]:
            raise lmdb.Error(f"{path}: Read-only file system")
        return open_environment(path, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("lmdb.open", read_only)
        assert store.reopen_if_unusable()
        assert store.body(0) == b"body"
        with pytest.raises(DiskError, match="Remount it writable"):
            store.try_write()
        assert store.reopen_if_unusable(), "it tries again, in vain"
        assert store.body(0) == b"body"
    assert store.reopen_if_unusable()
    store.try_write()
    assert not store.reopen_if_unusable()
    store.close()


def test_a_log_that_cannot_be_opened_again_is_tried_again(tmp_path: Path) -> None:
    store = LmdbLog(tmp_path, "test", "a")
    store.write(LogWrite((record(0, A, 1),), (), None, lines(1)))
    refuse_meta_writes(tmp_path)
    with pytest.raises(DiskFull):
        store.try_write()
    (tmp_path / "data.mdb").rename(tmp_path / "elsewhere")
    with pytest.raises(UnusableLog, match=r"is gone\. Bring it back"):
        store.reopen_if_unusable()
    with pytest.raises(UnusableLog, match="closed"):
        store.body(0)
    assert not (tmp_path / "data.mdb").exists(), "it does not begin anew"
    (tmp_path / "data.mdb").touch()
    with pytest.raises(UnusableLog, match="NOTFOUND"):
        store.reopen_if_unusable()
    (tmp_path / "elsewhere").rename(tmp_path / "data.mdb")
    with pytest.raises(ZeroDivisionError):
        store.reopen_if_unusable(lambda: print(1 // 0))
    assert store.reopen_if_unusable()
    assert store.body(0) == b"body"
    store.close()


def test_another_log_is_not_taken_for_the_one_that_was_open(tmp_path: Path) -> None:
    LmdbLog(tmp_path / "other", "test", "a").close()
    store = LmdbLog(tmp_path / "own", "test", "a")
    refuse_meta_writes(tmp_path / "own")
    with pytest.raises(DiskFull):
        store.try_write()
    (tmp_path / "other" / "data.mdb").rename(tmp_path / "own" / "data.mdb")
    for _ in range(2):
        with pytest.raises(DiskError, match=r"holds another log.*or restart the node"):
            store.reopen_if_unusable()
    store.close()


def test_bodies_of_what_is_not_green_are_read_when_they_are_needed_not_at_the_start() -> None:
    count, at_once, body_bytes = 2_000, 50, 10_000
    with TemporaryDirectory() as directory:
        store = LmdbLog(Path(directory), "test", "a")
        for first in range(0, count, at_once):
            records = [
                record(arrival, A, arrival + 1, body=bytes(body_bytes))
                for arrival in range(first, first + at_once)
            ]
            store.write(LogWrite(tuple(records), (), None, lines(first + at_once)))
        store.body(0)
        tracemalloc.start()
        image = store.load()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < count * body_bytes / 4
        red = list(image.queue.red)
        assert len(red) == count
        assert {(entry.body, entry.size) for entry in red} == {(None, body_bytes)}
        assert store.body(red[-1].arrival) == bytes(body_bytes)
        store.close()


@st.composite
def histories(draw: st.DrawFn) -> list[LogWrite]:
    """Writes as the machine makes them: messages of two streams, some of them yellow, greened in some order."""
    writes: list[LogWrite] = []
    sent = {A: 0, B: 0}
    green_last: dict[Machine, int] = {}
    arrivals: dict[MessageId, int] = {}
    open_ids: list[MessageId] = []
    made_of: dict[MessageId, Record] = {}
    digest = EMPTY_DIGEST
    next_arrival = green = 0
    tail_from = 0
    for _ in range(draw(st.integers(1, 8))):
        records = []
        for stream in draw(st.lists(st.sampled_from((A, B)), max_size=4)):
            sent[stream] += 1
            made = record(next_arrival, stream, sent[stream], draw(st.sampled_from((0, 3))))
            records.append(made)
            arrivals[made.id] = next_arrival
            made_of[made.id] = made
            open_ids.append(made.id)
            next_arrival += 1
        count = draw(st.integers(0, len(open_ids)))
        greened, open_ids = open_ids[:count], open_ids[count:]
        green += count
        digest = chained(digest, [made_of[one].entry() for one in greened])
        green_last.update({one.stream: one.sequence for one in greened})
        yellow = None
        if draw(st.booleans()):
            yellow = Yellow(green, tuple(arrivals[one] for one in open_ids[: draw(st.integers(0, 3))]))
            tail_from = next_arrival
        writes.append(
            LogWrite(
                tuple(records),
                tuple(arrivals[one] for one in greened),
                yellow,
                lines(
                    next_arrival,
                    green,
                    committed=3,
                    green_digest=digest,
                    streams=tuple(sorted(green_last.items())),
                    open_from=min([arrivals[one] for one in open_ids], default=next_arrival),
                    tail_from=tail_from,
                ),
            )
        )
    return writes


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories())
def test_the_disk_gives_back_what_the_simulators_log_does(
    tmp_path_factory: pytest.TempPathFactory, writes: list[LogWrite]
) -> None:
    directory = tmp_path_factory.mktemp("store")
    memory = MemoryLog(Lines(is_voter=True))
    store = LmdbLog(directory, "test", "a", is_new_cluster=True)
    for write in writes:
        store.write(write)
        memory.apply(write)
        assert described(store.load()) == described(memory.load())
    store.close()
    again = LmdbLog(directory, "test", "a")
    assert described(again.load()) == described(memory.load())
    assert [entry.id for entry in again.green(0, 100)] == [entry.id for entry in memory.green(0, 100)]
    assert [entry.id for entry in again.green(1, 2)] == [entry.id for entry in memory.green(1, 2)]
    for line in range(writes[-1].lines.green + 1):
        assert again.green_digest(line) == memory.green_digest(line)
    for arrival in range(writes[-1].lines.next_arrival):
        assert again.body(arrival) == memory.body(arrival)
    again.close()
