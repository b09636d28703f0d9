"""`corelkv recover`: what is left after a disaster, what may be lost, and a new cluster from it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from corel.lmdb_log import LmdbLog
from corel.storage import LogWrite, Yellow
from kvstore.cli.main import main
from kvstore.cli.output import Exit
from kvstore.cli.recover import told
from kvstore.node import Survivor, best
from kvstore.node.snapshot_target import own_log
from kvstore.store import Put, Write
from tests.kvstore.node.snapshots import (
    CLUSTER,
    MAP_BYTES,
    WorkingDisk,
    filled,
    opened,
    put_rest,
    target_in,
)
from transport import Machine


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
    values = {"yellow": 0, "red": 0, "streams": {}, "folded": {}, "open": [], "cut": 0, **more}
    values = {"digests": {str(green): "ab"}, "greens_from": green, "greens": [], **values}
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
        assert (queue.green, len(queue.yellow), len(queue.red), tree.line) == (35, 0, 3, 35)
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
    assert chosen.lacks(other.open) == ["c.1.6", "d.4.1"]
    [sentence] = [one for one in told([chosen, other], chosen) if "disk of b" in one]
    assert "2 messages on the disk of b are not green" in sentence
    assert "c.1.6, d.4.1" in sentence


def test_what_is_final_on_another_survivor_alone_is_lost_or_gets_another_place() -> None:
    chosen = left("a", yellow=2, red=1, open=[["c", 1, 1], ["c", 1, 2], ["c", 1, 4]])
    greens = [["c", 1, number] for number in (1, 2, 3, 4)]
    other = left("b", committed=6, green=14, greens_from=10, greens=greens)
    assert chosen.difference(other) == (["c.1.3"], ["c.1.4"], [], 0)
    sentences = " ".join(told([chosen, other], chosen))
    assert "1 messages are FINAL on the disk of b, and not on that of a: they are LOST (c.1.3)." in sentences
    assert "1 messages are FINAL on the disk of b, and get ANOTHER PLACE in the new cluster (c.1.4)." in sentences


def test_final_messages_that_another_survivor_no_longer_keeps_are_counted() -> None:
    chosen, other = left("a"), left("b", committed=6, green=14, cut=12, greens_from=12)
    assert chosen.difference(other).unnamed == 2
    sentences = " ".join(told([chosen, other], chosen))
    assert "The disk of b had 2 more final messages, which are no longer in its log" in sentences
    assert "whether they agree CANNOT be compared" in sentences


def test_disks_are_compared_at_the_last_line_that_both_keep() -> None:
    one, other = left("a", green=10, cut=4), left("b", green=12, digests={"10": "cd"})
    assert (one.common_line(other), one.contradicts(other)) == (10, 10)
    assert one.contradicts(other._replace(digests={"10": "ab"})) is None
    assert one.common_line(other._replace(cut=11)) is None
    assert one.contradicts(other._replace(cut=11)) is None


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


def write(number: int) -> Write:
    return Write((Put(f"key {number}", b"value"),))


def disk_of(directory: Path, node: str, count: int, sender: str = "a") -> WorkingDisk:
    """The disk of a node that has so many green messages of one sender, those of a if nothing else is said."""
    disk = WorkingDisk(directory, node)
    disk.stream = Machine(sender, 1)
    disk.green(*[write(number) for number in range(count)])
    return disk


def test_disks_that_contradict_each_other_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "f"
    disk_of(a, "a", 9).close()
    disk_of(b, "b", 7, sender="b").close()
    assert main(["recover", str(a), str(b), "--out", str(out), "--yes"]) == Exit.FAILED
    printed = capfd.readouterr().err
    assert f"the first 7 messages on the disks in {a} and {b} are final on both, and are not the same" in printed
    assert not out.exists()
    assert main(["recover", str(b), "--out", str(out), "--yes"]) == Exit.OK  # who decides for one can have it


def test_all_that_is_lost_is_listed_in_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    chosen = disk_of(tmp_path / "a", "a", 9)
    chosen.lines = replace(chosen.lines, committed=3)
    chosen.green(write(9))
    chosen.close()
    other = disk_of(tmp_path / "b", "b", 10)
    other.green(write(10), write(11))
    other.logged(*map(write, range(12, 19)))
    other.close()
    directories = [str(tmp_path / name) for name in "ab"]
    arguments = ["recover", *directories, "--out", str(tmp_path / "f"), "--lost", str(tmp_path / "lost")]
    assert main([*arguments, "--yes"]) == Exit.OK
    printed = capfd.readouterr().out
    assert "2 messages are FINAL on the disk of b, and not on that of a: they are LOST (a.1.11, a.1.12)" in printed
    assert "they are LOST (a.1.13, a.1.14, a.1.15, a.1.16, a.1.17 and 2 more)." in printed
    assert f"{tmp_path / 'lost'} has the ids of the 9 messages that are known to be lost." in printed
    assert (tmp_path / "lost").read_text().split() == [f"a.1.{number}" for number in range(11, 20)]


def test_a_copy_that_is_whole_is_the_disk_of_its_node(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    behind = WorkingDisk(tmp_path / "b", "b")
    behind.lines = replace(behind.lines, committed=1, attempted=1, established=1)
    behind.green(*map(write, range(5)))
    behind.close()
    source = filled(tmp_path / "a")
    target = target_in(tmp_path / "b")
    with closing(source.source()) as snapshot:
        target.begin(snapshot.header_bytes)
        put_rest(target, snapshot)
    source.close()
    recover = ["recover", str(tmp_path / "b"), "--out", str(tmp_path / "f"), "--yes"]
    assert main(recover) == Exit.FAILED
    assert "is in use by process" in capfd.readouterr().err
    target.close()
    assert main(recover) == Exit.OK
    assert "begins with its 5 green messages" in capfd.readouterr().out
    target.begin(snapshot.header_bytes)
    target.finish_learning(*own_log(tmp_path / "b"))
    target.close()
    assert main(recover) == Exit.OK
    printed = capfd.readouterr().out
    assert "begins with its 33 green messages" in printed
    assert f"{tmp_path / 'b' / 'incoming'} is the disk of b: a copy of another's, whole" in printed
    with opened(tmp_path / "b") as (log, _):  # which goes on, as if the switch had failed
        log.write(LogWrite((), (), None, replace(behind.lines, attempted=2)))
    assert main(recover) == Exit.OK
    assert "begins with its 5 green messages" in capfd.readouterr().out


def test_the_incarnations_of_messages_that_are_not_green_count_too(tmp_path: Path) -> None:
    disk = disk_of(tmp_path / "a", "a", 3)
    disk.stream, disk.sent = Machine("a", 5), 0
    disk.logged(write(3))
    disk.close()
    assert main(["recover", str(tmp_path / "a"), "--out", str(tmp_path / "f"), "--yes"]) == Exit.OK
    assert main(["restore", str(tmp_path / "f"), "--data", str(tmp_path / "new"), "--node", "a"]) == Exit.OK
    assert (tmp_path / "new" / "incarnation").read_text() == "5\n"
