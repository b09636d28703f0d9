"""`corelkv verify FILE` and `corelkv restore`, on files that are made here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from corel.lmdb_log import lock_directory
from corel.verification import verify
from kvstore.cli import restore as restoring
from kvstore.cli.backup_file import BackupWriter, written
from kvstore.cli.main import main
from kvstore.cli.output import Exit
from kvstore.node import SNAPSHOT_TABLES, SnapshotSource, SnapshotTarget, frames, snapshot_id
from kvstore.node.snapshot_format import Kind
from kvstore.store import Put, Write
from tests.kvstore.node.snapshots import WorkingDisk, chunks, content, filled, opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A backup of a disk with items, memories, tombstones and fates."""
    return backed_up(filled(tmp_path / "source"), tmp_path / "a.backup")


def backed_up(disk: WorkingDisk, path: Path) -> Path:
    with closing(disk.source()) as source, written(path) as writer:
        writer.add(Kind.HEADER, source.header_bytes)
        for chunk in chunks(source):
            writer.add(Kind.CHUNK, chunk)
        if source.header.line < source.header.lines.green:
            writer.add(Kind.BATCH, source.batch(source.header.line).to_bytes())
    disk.close()
    return path


@pytest.fixture
def large_file(tmp_path: Path) -> Path:
    """A backup of a disk with four megabytes of values."""
    disk = WorkingDisk(tmp_path / "source")
    disk.green(*[Write((Put(f"key {number}", bytes(100_000)),)) for number in range(40)])
    return backed_up(disk, tmp_path / "large.backup")


def restored(file: Path, data: Path, *more: str, node: str = "b") -> int:
    return main(["restore", str(file), "--data", str(data), "--node", node, *more])


def test_a_whole_backup_is_said_to_be_whole(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(file)]) == Exit.OK
    assert "is whole: the first 33 messages of cluster test, 155 records" in capfd.readouterr().out


@pytest.mark.parametrize("damage", [lambda whole: whole[:-9], lambda whole: whole.replace(b"value 7", b"value 8")])
def test_a_damaged_one_is_not_and_nothing_is_restored_from_it(
    file: Path, tmp_path: Path, damage: object, capfd: pytest.CaptureFixture[str]
) -> None:
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    assert main(["verify", str(file)]) == Exit.FAILED
    assert "Use another backup." in capfd.readouterr().err
    data = tmp_path / "b"
    assert main(["restore", str(file), "--data", str(data), "--node", "b"]) == Exit.FAILED
    assert not list(data.iterdir())


def test_a_disk_is_restored_for_each_node_of_the_new_cluster(file: Path, tmp_path: Path) -> None:
    for node in "bc":
        data = tmp_path / node
        assert main(["restore", str(file), "--data", str(data), "--node", node]) == Exit.OK
        assert verify(data) > 100
    with opened(tmp_path / "b", "b") as (b, _), opened(tmp_path / "c", "c") as (c, tree):
        assert content(b) == content(c)
        assert b.load().lines == c.load().lines
        assert b.uuid != c.uuid
        assert tree.item("key 00007") is not None


def test_a_restored_node_starts_above_its_incarnations_of_before(file: Path, tmp_path: Path) -> None:
    assert main(["restore", str(file), "--data", str(tmp_path / "a"), "--node", "a"]) == Exit.OK
    assert (tmp_path / "a" / "incarnation").read_text() == "1\n"


def test_a_directory_that_is_not_empty_is_left_alone(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "b"
    data.mkdir()
    (data / "clock").write_text("7\n")
    assert main(["restore", str(file), "--data", str(data), "--node", "b"]) == Exit.USAGE
    assert "is not empty, and nothing in it has been changed" in capfd.readouterr().err
    assert [path.name for path in data.iterdir()] == ["clock"]


def test_a_restore_that_was_interrupted_is_begun_anew(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "b"
    (data / "incoming").mkdir(parents=True)
    (data / "incoming" / "data.mdb").write_bytes(b"half")
    assert main(["restore", str(file), "--data", str(data), "--node", "b", "--cluster", "other"]) == Exit.OK
    assert verify(data) > 100


def test_a_name_that_no_node_can_have_is_a_mistake(file: Path, tmp_path: Path) -> None:
    assert main(["restore", str(file), "--data", str(tmp_path / "b"), "--node", "b c"]) == Exit.USAGE


def test_a_block_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with written(tmp_path / "x.backup") as writer:
            writer.add(Kind.CHUNK, b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not list(tmp_path.iterdir())


# The file


def copy(file: Path, writer: BackupWriter) -> None:
    with open(file, "rb") as content:
        for kind, frame in frames(content):
            writer.add(kind, frame)


def test_of_two_backups_to_one_name_at_once_both_are_whole_and_the_last_one_stays(
    file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "twice.backup"
    with written(path) as late:
        with written(path) as early:
            copy(file, early)
        assert path.read_bytes() == file.read_bytes()
        copy(file, late)
    assert path.read_bytes() == file.read_bytes()
    assert not list(tmp_path.glob("*.partial"))


def test_nobody_else_can_read_a_backup_not_even_while_it_is_made(file: Path, tmp_path: Path) -> None:
    (tmp_path / "b.backup").touch(0o644)
    with written(tmp_path / "b.backup") as writer:
        [partial] = tmp_path.glob(".b.backup.*.partial")
        assert partial.stat().st_mode & 0o777 == 0o600
        copy(file, writer)
    assert (tmp_path / "b.backup").stat().st_mode & 0o777 == 0o600


_WAITING = """
import signal, sys
from pathlib import Path
from kvstore.cli.backup_file import written
from kvstore.node import Kind
with written(Path(sys.argv[1])) as writer:
    writer.add(Kind.CHUNK, b"half")
    print("begun", flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_backup_that_is_told_to_end_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", _WAITING, str(tmp_path / "x.backup")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    assert list(tmp_path.iterdir())
    process.send_signal(number)
    process.communicate()
    assert process.returncode in (128 + number, -number)
    assert not list(tmp_path.iterdir())


def test_an_error_of_what_is_read_meanwhile_is_not_one_of_the_file(tmp_path: Path) -> None:
    def fail() -> None:
        with written(tmp_path / "x.backup"):
            raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        fail()


# The disk that is made


def test_a_place_that_cannot_be_written_is_named_and_not_the_backup(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = file / "b"  # below a file
    assert restored(file, data) == Exit.FAILED
    assert f"{data} cannot be written: Not a directory. It has to be" in capfd.readouterr().err


def test_an_incarnation_that_cannot_be_written_is_an_error_that_says_so(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "a"
    (data / "incarnation.new").mkdir(parents=True)
    assert restored(file, data, node="a") == Exit.FAILED
    assert f"{data} cannot be written: Is a directory. It has to be" in capfd.readouterr().err
    assert not (data / "incoming").exists()


def test_the_incarnation_is_written_before_the_disk_is_whole(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SnapshotTarget, "finish_new_cluster", die)
    assert restored(file, tmp_path / "a", node="a") == Exit.INTERRUPTED
    assert (tmp_path / "a" / "incarnation").read_text() == "1\n"


def with_another_revision(source: SnapshotSource, path: Path) -> Path:
    """A backup whose header contradicts its state, and which is whole in itself."""
    header = source.header._replace(revision=99).to_bytes()
    with written(path) as writer:
        writer.add(Kind.HEADER, header)
        for table in SNAPSHOT_TABLES:
            writer.add(Kind.CHUNK, source.chunk(table, b"", 10**9).to_bytes(snapshot_id(header)))
        writer.add(Kind.BATCH, source.batch(source.header.line).to_bytes())
    return path


def test_a_backup_that_contradicts_itself_is_said_to_be_damaged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    disk = filled(tmp_path / "source")
    with closing(disk.source()) as source:
        path = with_another_revision(source, tmp_path / "odd.backup")
    disk.close()
    assert restored(path, tmp_path / "b") == Exit.FAILED
    printed = capfd.readouterr().err
    assert f"{path} cannot be used: its state is at line 31 and revision 31" in printed
    assert "Use another backup." in printed


def test_a_new_file_system_is_as_good_as_empty(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "b"
    (data / "lost+found").mkdir(parents=True)
    assert restored(file, data) == Exit.OK
    assert verify(data) > 100
    assert (data / "lost+found").is_dir()


def test_a_restore_that_was_killed_just_before_its_end_is_begun_anew(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "b"
    (data / "incoming").mkdir(parents=True)
    for name in ("lock", "incarnation", "incarnation.new", "incoming/lock", "incoming/data.mdb"):
        (data / name).write_text("1\n")
    assert restored(file, data) == Exit.OK
    assert verify(data) > 100


def test_a_directory_to_which_a_restore_is_under_way_is_left_alone(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    incoming = tmp_path / "b" / "incoming"
    incoming.mkdir(parents=True)
    lock = lock_directory(incoming)
    assert restored(file, tmp_path / "b") == Exit.FAILED
    assert f"is in use by process {os.getpid()}" in capfd.readouterr().err
    assert incoming.exists()
    os.close(lock)


# The map


def test_a_map_that_is_too_small_is_said_to_be_and_a_larger_one_can_be_given(
    large_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert restored(large_file, tmp_path / "b", "--map-bytes", "2_500_000") == Exit.FAILED
    printed = capfd.readouterr().err
    assert "b has no room: the map is full with 2,500,000 bytes. Restore with more --map-bytes" in printed
    assert not list((tmp_path / "b").iterdir())
    assert restored(large_file, tmp_path / "b", "--map-bytes", "30_000_000") == Exit.OK
    assert verify(tmp_path / "b") > 40


def test_without_one_the_map_has_room_for_the_backup(
    large_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(restoring, "CorelConfig", lambda: SimpleNamespace(map_bytes=2_500_000))
    assert restored(large_file, tmp_path / "b") == Exit.OK
    assert "set log.map_bytes of every node to at least that" in capfd.readouterr().out


@pytest.mark.parametrize("text", ["64GiB", "1_000"])
def test_a_map_that_no_node_can_have_is_a_mistake(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    assert restored(file, tmp_path / "b", "--map-bytes", text) == Exit.USAGE
    assert f"--map-bytes is '{text}': " in capfd.readouterr().err
