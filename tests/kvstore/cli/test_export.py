"""`corelkv export`: logs of nodes that are stopped or run, once and again, killed and refused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest

from corel.lmdb_log import LmdbLog
from kvstore.cli import export as exporting
from kvstore.cli.main import main
from kvstore.cli.output import Exit
from kvstore.node import LogExport
from tests.api.cluster import eventually
from tests.kvstore.cli.exports import final_of, tail_of
from tests.kvstore.cli.terminal import Terminal, plain
from tests.kvstore.node.busy_logs import truncate_apart
from tests.kvstore.node.made_logs import MadeLog, body_of, made_log
from tests.small_disks import mounted


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log with 5 final messages, 2 that are green, 2 yellow ones and a red one."""
    log = MadeLog(tmp_path / "data")
    log.add([body_of(n) for n in range(7)])
    log.turn_green(5)
    log.turn_green(2, is_checkpointed=False)
    log.add([body_of(n) for n in range(7, 9)])
    log.decide_yellow(2)
    log.add([b"not a batch"])
    log.close()
    return tmp_path / "data"


def manifest_of(out: Path, number: int = 1, node: str = "a") -> dict[str, Any]:
    content = json.loads((out / node / "exports" / f"{number:06}.json").read_text())
    assert isinstance(content, dict)
    return content


def test_a_log_is_exported_with_a_manifest(data: Path, out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(data), "--out", str(out)]) == Exit.OK
    final, tail = final_of(out / "a"), tail_of(out / "a", 1)
    assert [row["position"] for row in final + tail] == list(range(10))
    assert [row["color"] for row in tail] == ["green", "green", "yellow", "yellow", "red"]
    manifest = manifest_of(out)
    lines = {name: manifest[name] for name in ("final", "green", "yellow", "length", "committed", "revision")}
    assert lines == {"final": 5, "green": 7, "yellow": 9, "length": 10, "committed": 1, "revision": 5}
    assert manifest["final_digest"] == final[-1]["digest"].hex()
    assert (manifest["version"], manifest["cluster"], manifest["node"], manifest["bodies"]) == (
        1,
        "test",
        "a",
        True,
    )
    printed = capfd.readouterr().out
    assert printed.startswith("a: final 5 (5 new), green 7, length 10 messages; ")
    assert printed.endswith(f" s, in {out / 'a'}\n")


def test_a_second_export_adds_only_what_is_new(data: Path, out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = MadeLog(data.parent / "growing")
    log.add([body_of(n) for n in range(9)])
    log.turn_green(4)
    log.close()
    arguments = ["export", str(log.directory), "--out", str(out), "--json"]
    assert main(arguments) == Exit.OK
    before = final_of(out / "a")
    log = MadeLog(log.directory)
    log.turn_green(3)
    log.close()
    assert main(arguments) == Exit.OK
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(one["number"], one["final"], one["new_final"], one["length"]) for one in found] == [
        (1, 4, 4, 9),
        (2, 7, 3, 9),
    ]
    rows = final_of(out / "a")
    assert rows[:4] == before
    assert [row["position"] for row in rows] == list(range(7))
    fresh = out.parent / "fresh"
    assert main(["export", str(log.directory), "--out", str(fresh)]) == Exit.OK
    assert (rows, tail_of(out / "a", 2)) == (final_of(fresh / "a"), tail_of(fresh / "a", 1))
    assert [row["position"] for row in tail_of(out / "a", 1)] == list(range(4, 9))


def test_without_bodies_there_are_no_values(data: Path, out: Path) -> None:
    assert main(["export", str(data), "--out", str(out), "--no-bodies"]) == Exit.OK
    rows = final_of(out / "a") + tail_of(out / "a", 1)
    assert {row["body"] for row in rows} == {None}
    assert all(row["body_bytes"] for row in rows)
    assert not manifest_of(out)["bodies"]


def test_several_nodes_are_exported_and_one_that_cannot_be_is_named(
    data: Path, out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    MadeLog(tmp_path / "b", "b").close()
    path = tmp_path / "c" / "data.mdb"
    made_log(tmp_path / "c", 3)
    path.write_bytes(path.read_bytes().replace(b"key 1", b"kez 1"))
    directories = [str(tmp_path / name) for name in ("nowhere", "c", "b")]
    assert main(["export", str(data), *directories, "--out", str(out)]) == Exit.FAILED
    printed = capfd.readouterr()
    assert [line.split(":")[0] for line in printed.out.splitlines()] == ["a", "b"]
    assert "nowhere does not exist: give the --data directory of a node" in printed.err
    assert f"{path} is damaged (messages 0 has a wrong checksum). Move the directory away" in printed.err
    assert manifest_of(out, node="b")["length"] == 0


def test_a_log_of_another_format_is_refused(
    out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corel.lmdb_log.FORMAT", 99)
    LmdbLog(tmp_path / "data", "test", "a").close()
    assert main(["export", str(tmp_path / "data"), "--out", str(out)]) == Exit.FAILED
    assert "format 99; this version of corelkv reads 6" in capfd.readouterr().err
    assert not out.exists()


def test_it_says_what_to_install(
    data: Path, out: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvstore.cli.export.find_spec", lambda name: None)
    assert main(["export", str(data), "--out", str(out)]) == Exit.FAILED
    assert "pip install 'corelkv[spark]'" in capfd.readouterr().err


def test_a_place_that_cannot_be_written_is_named(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["export", str(data), "--out", str(tmp_path / "file")]) == Exit.FAILED
    assert "file cannot be written: File exists. Mend that" in capfd.readouterr().err


# While the node truncates


def truncating(monkeypatch: pytest.MonkeyPatch, *cuts: int) -> None:
    """Lets the node truncate its log up to these lines, each time just after an attempt has read where the log
    begins."""
    following = iter(cuts)

    def log_of(directory: Path) -> LogExport:
        log = LogExport(directory)
        if (cut := next(following, None)) is not None:
            truncate_apart(directory, cut)
        return log

    monkeypatch.setattr(exporting, "LogExport", log_of)


def test_a_first_export_that_the_node_overtakes_begins_again_where_the_log_begins_then(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_log(tmp_path / "data", 40, batch=5)
    assert main(["export", str(tmp_path / "data"), "--out", str(tmp_path / "whole")]) == Exit.OK
    truncating(monkeypatch, 10, 20)
    assert main(["export", str(tmp_path / "data"), "--out", str(out)]) == Exit.OK
    rows = final_of(out / "a")
    assert rows[:20] == final_of(tmp_path / "whole" / "a")[20:]
    assert [row["position"] for row in rows] == list(range(20, 42))
    assert manifest_of(out)["first"] == 20


def test_an_export_that_the_node_overtakes_every_time_says_what_to_do(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made_log(tmp_path / "data", 40, batch=5)
    truncating(monkeypatch, *range(5, 5 * exporting.ATTEMPTS_MAX + 5, 5))
    assert main(["export", str(tmp_path / "data"), "--out", str(out)]) == Exit.FAILED
    printed = capfd.readouterr().err
    assert "up to 25 by now, sooner than it is read here: 5 attempts were overtaken" in printed
    assert "damaged" not in printed


@pytest.mark.parametrize("exported", [0, 10])
def test_what_is_truncated_after_the_last_export_is_said_to_be_missing(
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    exported: int,
) -> None:
    made_log(tmp_path / "data", exported, batch=5)
    arguments = ["export", str(tmp_path / "data"), "--out", str(out)]
    assert main(arguments) == Exit.OK
    log = MadeLog(tmp_path / "data")
    for _ in range(6):
        log.add([body_of(n) for n in range(5)])
        log.turn_green(5)
    log.close()
    truncating(monkeypatch, 20)
    assert main(arguments) == Exit.FAILED
    assert f"begins at message 20 by now, and {out / 'a'} ends at {exported}: what is" in capfd.readouterr().err


# Green is final


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_log_that_contradicts_what_was_exported_is_refused(
    out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], is_finished: bool
) -> None:
    made_log(tmp_path / "one", 4)
    copytree(tmp_path / "one", tmp_path / "other")
    for name, values in (("one", 2), ("other", 5)):
        log = MadeLog(tmp_path / name)
        log.add([body_of(number, value=name.encode()) for number in range(values)])
        log.turn_green(values)
        log.close()
    assert main(["export", str(tmp_path / "one"), "--out", str(out)]) == Exit.OK
    if not is_finished:
        (out / "a/exports/000001.json").unlink()
    before = sorted(out.rglob("*"))
    assert main(["export", str(tmp_path / "other"), "--out", str(out)]) == Exit.FAILED
    printed = capfd.readouterr().err
    assert "the first 6 green messages of " in printed
    assert "green messages never change. Keep both" in printed
    assert sorted(out.rglob("*")) == before


def test_an_older_copy_of_the_directory_is_refused(
    out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made_log(tmp_path / "one", 4)
    copytree(tmp_path / "one", tmp_path / "old")
    log = MadeLog(tmp_path / "one")
    log.add([body_of(1)])
    log.turn_green(1, is_checkpointed=False)
    log.close()
    assert main(["export", str(tmp_path / "one"), "--out", str(out)]) == Exit.OK
    assert main(["export", str(tmp_path / "old"), "--out", str(out)]) == Exit.FAILED
    assert "has 4 green messages, and 5 of this disk are in" in capfd.readouterr().err


def test_another_disk_of_the_same_node_is_refused(
    data: Path, out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made_log(tmp_path / "replaced", 9)
    assert main(["export", str(data), "--out", str(out)]) == Exit.OK
    assert main(["export", str(tmp_path / "replaced"), "--out", str(out)]) == Exit.FAILED
    assert "Export it to another directory; both can be analysed together." in capfd.readouterr().err


# Killed, and without room

_SMALL_SEGMENTS = """
import sys
from kvstore.cli import export_writer, main
export_writer.SEGMENT_POSITIONS = 200
sys.exit(main())
"""


def command(data: Path, out: Path) -> list[str]:
    return [sys.executable, "-c", _SMALL_SEGMENTS, "export", str(data), "--out", str(out)]


def killed_after(parts: int, is_whole_group: bool, data: Path, out: Path) -> bool:
    """Exports, and kills that when so many more parts are whole, with or without the process that reads. Returns
    whether it was killed in time."""
    wanted = parts + len(list(out.glob("a/log/*/part-*")))
    process = subprocess.Popen(
        command(data, out), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    eventually(lambda: process.poll() is not None or len(list(out.glob("a/log/*/part-*"))) >= wanted)
    if process.returncode is None:
        (os.killpg if is_whole_group else os.kill)(process.pid, signal.SIGKILL)
    _, printed = process.communicate()
    assert not printed or b"another export to" in printed
    return process.returncode == -signal.SIGKILL


def test_an_export_that_is_killed_again_and_again_goes_on(tmp_path: Path, out: Path) -> None:
    made_log(tmp_path / "data", 5_000)
    random = Random(5)
    subprocess.run(command(tmp_path / "data", tmp_path / "once"), check=True, stdout=subprocess.DEVNULL)
    places = [(random.randint(1, 4), random.random() < 0.7) for _ in range(6)]
    assert sum(killed_after(*place, tmp_path / "data", out) for place in places) > 1
    eventually(
        lambda: subprocess.run(command(tmp_path / "data", out), capture_output=True, check=False).returncode == 0
    )
    assert final_of(out / "a") == final_of(tmp_path / "once" / "a")
    assert max(json.loads(path.read_text())["final"] for path in out.glob("a/exports/*")) == 5_000
    assert [path.name for path in out.rglob("_*")] == ["_lock"]


def test_on_a_terminal_a_bar_counts_the_messages(tmp_path: Path, out: Path) -> None:
    made_log(tmp_path / "data", 3_000)
    with Terminal(["export", str(tmp_path / "data"), "--out", str(out)], columns=120) as terminal:
        assert terminal.end(None) == Exit.OK
        shown = plain(terminal.output)
    assert re.search(r"messages .*/3000", shown)
    assert "a: final 3,000 (3,000 new)" in shown


def test_ctrl_c_ends_it_quietly(tmp_path: Path, out: Path) -> None:
    made_log(tmp_path / "data", 5_000)
    process = subprocess.Popen(command(tmp_path / "data", out), start_new_session=True, stderr=subprocess.PIPE)
    eventually(lambda: any(out.glob("a/log/*/part-*")))
    os.killpg(process.pid, signal.SIGINT)
    _, printed = process.communicate()
    assert (process.returncode, printed) == (Exit.INTERRUPTED, b"")


def test_without_room_it_says_so_and_goes_on_when_there_is_some(tmp_path: Path) -> None:
    made_log(tmp_path / "data", 1)
    log = MadeLog(tmp_path / "data")
    random = Random(1)
    for number in range(40):
        log.add([body_of(n, value=random.randbytes(4_000)) for n in range(number, number + 20)])
        log.turn_green(20)
    log.close()
    with mounted(tmp_path / "small", 2) as out:
        full = subprocess.run(command(tmp_path / "data", out), capture_output=True, text=True, check=False)
        assert full.returncode == Exit.FAILED
        assert f"no room in {out}: No space left on device. Make room and export again" in full.stderr
        kept = sorted(path.name for path in out.rglob("*.parquet"))
        assert 1 <= len(kept) < 4
        assert not list(out.rglob("_part*"))
        subprocess.run(["mount", "-o", "remount,size=32m", str(out)], check=True)
        subprocess.run(command(tmp_path / "data", out), check=True, stdout=subprocess.DEVNULL)
        assert sorted(path.name for path in out.rglob("*.parquet"))[: len(kept)] == kept
        assert [row["position"] for row in final_of(out / "a")] == list(range(801))


def test_the_memory_that_it_takes_does_not_grow_with_the_log(tmp_path: Path) -> None:
    measuring = """
import sys
from pathlib import Path
from kvstore.cli.export import _export

def tell(**content):
    status = Path("/proc/self/status").read_text()
    print(content.get("done", -1), status.partition("RssAnon:")[2].split()[0], flush=True)

_export(Path(sys.argv[1]), Path(sys.argv[2]), True, tell)
"""
    log = MadeLog(tmp_path / "data")
    for first in range(0, 15_000, 500):
        log.add([body_of(n, value=bytes(4_000)) for n in range(first, first + 500)])
        log.turn_green(500)
    log.close()
    words = subprocess.run(
        [sys.executable, "-c", measuring, str(tmp_path / "data"), str(tmp_path / "out")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    kilobytes = dict(zip(map(int, words[::2]), map(int, words[1::2]), strict=True))
    early = max(size for done, size in kilobytes.items() if 0 <= done <= 6_000)
    assert max(kilobytes.values()) < early + 16_000, kilobytes
    assert early < 200_000, kilobytes
