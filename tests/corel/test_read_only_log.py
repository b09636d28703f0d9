"""A log that is read by another process, while the node that it belongs to writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest

from corel.disk_errors import DiskError
from corel.lmdb_log import LmdbLog
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST, MessageId
from corel.read_only_log import ReadOnlyLog
from corel.storage import Lines, LogWrite, Record
from corel.verification import verify
from tests.corel.test_lmdb_log import VIEW, A
from tests.small_disks import mounted


def write(directory: Path, greened: list[int], batches: int = 1, is_honest: bool = True) -> list[Record]:
    """Makes a log of so many batches of messages, and makes green as many at a time as `greened` says. Returns the
    messages in the order of arrival."""
    log = LmdbLog(directory, "test", "a", is_new_cluster=True)
    records = [Record(n, MessageId(A, n + 1), 10 + n, VIEW, 0, b"body %d" % n) for n in range(sum(greened))]
    size = -(-len(records) // batches)
    for first in range(0, len(records), size):
        batch = tuple(records[first : first + size])
        log.write(LogWrite(batch, (), None, Lines(next_arrival=first + len(batch))))
    digest, green = EMPTY_DIGEST, 0
    for count in greened:
        digest = chained(digest, [record.entry() for record in records[green : green + count]])
        green += count
        said = digest if is_honest else EMPTY_DIGEST
        lines = Lines(green=green, green_digest=said, next_arrival=len(records), open_from=green)
        log.write(LogWrite((), tuple(range(green - count, green)), None, lines))
    log.close()
    return records


@pytest.mark.parametrize(("first", "line"), [(0, 9), (0, 0), (2, 9), (3, 4), (4, 8), (8, 9), (9, 9)])
def test_green_messages_are_read_in_order_with_their_digests(tmp_path: Path, first: int, line: int) -> None:
    records = write(tmp_path, [3, 1, 5], batches=4)
    log = ReadOnlyLog(tmp_path)
    found = list(log.green_messages(first, line))
    log.close()
    assert [(one.position, one.record) for one in found] == list(enumerate(records))[first:line]
    assert [one.digest for one in found] == [
        chained(EMPTY_DIGEST, [record.entry() for record in records[: end + 1]]) for end in range(first, line)
    ]
    assert (log.identity.cluster, log.identity.node) == ("test", "a")


def test_an_order_that_is_longer_than_one_transaction_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corel.read_only_log._ORDER_AT_ONCE", 4)
    records = write(tmp_path, [3, 2, 4, 1, 7, 1, 1], batches=3)
    log = ReadOnlyLog(tmp_path)
    assert [one.record for one in log.green_messages(1, 19)] == records[1:]
    log.close()


def test_a_wrong_digest_of_the_order_is_damage(tmp_path: Path) -> None:
    write(tmp_path, [3, 2], is_honest=False)
    log = ReadOnlyLog(tmp_path)
    with pytest.raises(DiskError, match=r"damaged \(the messages up to 3 are not those that became green\)"):
        list(log.green_messages(0, 5))
    log.close()


def test_an_order_that_ends_too_early_is_damage(tmp_path: Path) -> None:
    write(tmp_path, [3, 2])
    log = ReadOnlyLog(tmp_path)
    with pytest.raises(DiskError, match="the order does not reach 6"):
        list(log.green_messages(0, 6))
    log.close()


def test_what_is_not_the_directory_of_a_node_is_said_to_be_that(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as environment:
        environment.begin().abort()
    with pytest.raises(DiskError, match="it is not of a node that has run"):
        ReadOnlyLog(tmp_path)


def test_a_format_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("corel.lmdb_log.FORMAT", 99)
        LmdbLog(tmp_path, "test", "a").close()
    with pytest.raises(DiskError, match=r"format 99; this version of corelkv reads 6"):
        ReadOnlyLog(tmp_path)


def test_a_log_on_a_file_system_that_is_mounted_read_only_can_be_read(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 8) as disk:
        records = write(disk / "data", [3])
        (disk / "data" / "lock.mdb").unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        log = ReadOnlyLog(disk / "data")
        assert [one.record for one in log.green_messages(0, 3)] == records
        log.close()
        assert verify(disk / "data") > 3


def test_the_table_of_readers_belongs_to_the_user_of_the_node(tmp_path: Path) -> None:
    write(tmp_path, [1])
    (tmp_path / "lock.mdb").unlink()
    os.chown(tmp_path / "data.mdb", 1234, 1235)
    ReadOnlyLog(tmp_path).close()
    status = (tmp_path / "lock.mdb").stat()
    assert (status.st_uid, status.st_gid) == (1234, 1235)


# Nodes that run

_WRITING = """
import sys, random
from pathlib import Path
from tests.corel import disk_images
disk_images.MAP_BYTES = 1024**3
for number, _ in enumerate(disk_images.written(Path(sys.argv[1]), 1_000_000, random.Random(1))):
    if number == 20:
        print("ready", flush=True)
"""


@contextmanager
def writer(directory: Path) -> Iterator[None]:
    """A process that writes messages and checkpoints all the time."""
    process = subprocess.Popen([sys.executable, "-c", _WRITING, str(directory)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
        assert process.poll() is None, "it goes on writing"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_log_that_is_being_written_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    with writer(tmp_path):
        for _ in range(20):
            assert verify(tmp_path) > 20


def test_a_reader_sees_what_is_written_after_it_was_opened(tmp_path: Path) -> None:
    with writer(tmp_path):
        log = ReadOnlyLog(tmp_path)
        arrival = log.load().lines.next_arrival
        before = (tmp_path / "data.mdb").stat().st_size
        while (tmp_path / "data.mdb").stat().st_size < before + 8 * 1024**2:
            time.sleep(0.01)
        later = log.load().lines.next_arrival
        assert later > arrival
        assert len(log.body(later - 1)) >= 10
        log.close()


_DYING = """
import os, signal, sys
from pathlib import Path
from corel.read_only_log import ReadOnlyLog
log = ReadOnlyLog(Path(sys.argv[1]))
with log.read(log._order):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_reader_that_was_killed_is_forgotten(tmp_path: Path) -> None:
    write(tmp_path, [3])
    log = LmdbLog(tmp_path, "test", "a")
    dying = subprocess.run([sys.executable, "-c", _DYING, str(tmp_path)], check=False)
    assert dying.returncode == -signal.SIGKILL

    def oldest_page() -> str:
        return str(log._environment.readers())

    assert len(oldest_page().splitlines()) == 2, "a header and the dead reader"
    log.forget_dead_readers()
    assert "no active readers" in oldest_page()
    log.close()
    log.forget_dead_readers()


_MORE = """
import sys
from pathlib import Path
from corel.lmdb_log import LmdbLog
from corel.storage import LogWrite
from tests.corel.test_lmdb_log import A, lines, record
log = LmdbLog(Path(sys.argv[1]), "test", "a", map_bytes=int(sys.argv[2]))
arrival = log.load().lines.next_arrival
body = bytes(int(sys.argv[2]) // 2)
log.write(LogWrite((record(arrival, A, arrival + 1, body=body),), (), None, lines(arrival + 1)))
"""


def test_a_reader_goes_on_when_the_node_has_come_back_with_a_larger_map(tmp_path: Path) -> None:
    def write_half(map_bytes: int) -> None:
        subprocess.run([sys.executable, "-c", _MORE, str(tmp_path), str(map_bytes)], check=True)

    write_half(1024**2)
    log = ReadOnlyLog(tmp_path)
    assert len(log.body(0)) == 1024**2 // 2
    write_half(16 * 1024**2)
    assert len(log.body(1)) == 16 * 1024**2 // 2
    log.close()
