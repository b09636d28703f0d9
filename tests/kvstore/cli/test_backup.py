"""`corelkv verify FILE` and `corelkv restore`, on files that are made here."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from corel.verification import verify
from kvstore.cli.backup_file import written
from kvstore.cli.main import main
from kvstore.cli.output import Exit
from kvstore.node.snapshot_format import Kind
from tests.kvstore.node.snapshots import chunks, content, filled, opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A backup of a disk with items, memories, tombstones and fates."""
    disk = filled(tmp_path / "source")
    with closing(disk.source()) as source, written(tmp_path / "a.backup") as writer:
        writer.add(Kind.HEADER, source.header_bytes)
        for chunk in chunks(source):
            writer.add(Kind.CHUNK, chunk)
        writer.add(Kind.BATCH, source.batch(source.header.line).to_bytes())
    disk.close()
    return tmp_path / "a.backup"


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
