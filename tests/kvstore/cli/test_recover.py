"""`corelkv recover`: what is left after a disaster, what may be lost, and a new cluster from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from corel.lmdb_log import LmdbLog
from corel.storage import LogWrite, Yellow
from kvstore.cli.main import main
from kvstore.cli.output import Exit
from kvstore.cli.recover import told
from kvstore.node import Survivor, best
from kvstore.store import Put, Write
from tests.kvstore.node.snapshots import CLUSTER, MAP_BYTES, WorkingDisk, filled, opened


@pytest.fixture
def survivor(tmp_path: Path) -> Path:
    """The disk of a: 33 green messages, two that are yellow and three that are red."""
    disk = filled(tmp_path / "a")
    yellow = disk.logged(*[Write((Put("yellow", b"%d" % number),)) for number in range(2)])
    zone = Yellow(disk.lines.green, tuple(record.arrival for record in yellow))
    disk.log.write(LogWrite((), (), zone, disk.lines))
    disk.logged(*[Write((Put("red", b"%d" % number),)) for number in range(3)])
    disk.close()
    return tmp_path / "a"


def left(
    node: str = "a", committed: int = 7, is_learned: bool = False, green: int = 10, **more: object
) -> Survivor:
    values = {"yellow": 0, "red": 0, "streams": {}, "folded": {}, "open": [], **more}
    return Survivor(f"/{node}", CLUSTER, node, "ab", committed, is_learned, green, **values)  # type: ignore[arg-type]


def test_it_says_what_is_left_and_what_may_be_lost_and_asks(
    survivor: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["recover", str(survivor), "--out", str(tmp_path / "f")]) == Exit.USAGE
    shown = capfd.readouterr()
    assert "say --yes" in shown.err
    assert ["a", "*", str(survivor), "2", "33", "2", "3"] == shown.out.splitlines()[1].split()
    assert "Its 2 yellow messages may be final on disks that are lost" in shown.out
    assert "Its 3 red messages are taken over" in shown.out
    assert "in a later primary component, are LOST" in shown.out
    assert not (tmp_path / "f").exists()


def test_a_new_cluster_has_the_yellow_messages_as_green_ones_and_the_red_ones_too(
    survivor: Path, tmp_path: Path
) -> None:
    before = (survivor / "data.mdb").read_bytes()
    assert main(["recover", str(survivor), "--out", str(tmp_path / "f"), "--yes"]) == Exit.OK
    assert (survivor / "data.mdb").read_bytes() == before
    assert main(["verify", str(tmp_path / "f")]) == Exit.OK
    for node in "ab":
        assert main(["restore", str(tmp_path / "f"), "--data", str(tmp_path / f"new{node}"), "--node", node]) == 0
    with opened(tmp_path / "newb") as (log, tree):
        queue = log.load().queue
        assert (queue.green, len(queue.yellow), len(queue.red), tree.line) == (35, 0, 3, 31)
        assert [entry.id.sequence for entry in log.green(33, 9)] == [34, 35]
        assert log.green_digest(35) == queue.green_digest


def test_the_disk_that_knows_most_is_chosen() -> None:
    assert best([left("a", green=10), left("b", green=12)]).node == "b"
    assert best([left("a", committed=7, green=10), left("b", committed=6, green=99)]).node == "a"
    assert best([left("a", is_learned=True, green=12), left("b", green=10)]).node == "b"
    assert best([left("a", red=1), left("b", red=2)]).node == "b"


def test_what_another_survivor_alone_has_is_named() -> None:
    chosen = left("a", streams={"c.1": 5}, folded={"d": 3}, open=[["a", 1, 1]])
    other = left("b", committed=6, open=[["a", 1, 1], ["c", 1, 5], ["c", 1, 6], ["d", 3, 9], ["d", 4, 1]])
    assert chosen.lacks(other) == ["c.1.6", "d.4.1"]
    [sentence] = [one for one in told([chosen, other], chosen) if "disk of b" in one]
    assert "2 messages on the disk of b are not green" in sentence
    assert "c.1.6, d.4.1" in sentence


def test_a_disk_that_was_not_in_the_last_primary_component_says_so() -> None:
    chosen = left("a", is_learned=True)
    assert any("was not in the last primary component" in one for one in told([chosen], chosen))


def test_a_directory_that_is_in_use_is_refused(
    survivor: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = LmdbLog(survivor, CLUSTER, "a", map_bytes=MAP_BYTES)
    assert main(["recover", str(survivor), "--out", str(tmp_path / "f"), "--yes"]) == Exit.FAILED
    assert "is in use by process" in capfd.readouterr().err
    log.close()


def test_disks_of_different_generations_are_refused(
    survivor: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = WorkingDisk(tmp_path / "b", "b")
    other.lines = replace(other.lines, generation=b"another one ....")
    other.green(Write((Put("k", b"v"),)))
    other.close()
    arguments = ["recover", str(survivor), str(tmp_path / "b"), "--out", str(tmp_path / "f"), "--yes"]
    assert main(arguments) == Exit.USAGE
    assert "different generations" in capfd.readouterr().err


def test_a_damaged_disk_is_refused_before_anything_is_asked(
    survivor: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = survivor / "data.mdb"
    path.write_bytes(path.read_bytes().replace(b"value 7", b"value 8"))
    assert main(["recover", str(survivor), "--out", str(tmp_path / "f"), "--yes"]) == Exit.FAILED
    assert "is damaged" in capfd.readouterr().err
