"""The journal on disk: JSON lines, rotated, bounded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvstore.node.journal import JournalWriter
from transport.effects import Journal, Reason, TransportEvent


def test_a_line_says_what_happened_to_whom_and_when(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "a")
    journal.write(Journal(TransportEvent.NACKED, "b.1", Reason.RETRY, {"ranges": [[3, 5]]}), monotonic_ms=12.34567)
    journal.close()
    (line,) = (tmp_path / "journal-000001.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert entry.pop("wall_time") > 1.7e9
    assert entry == {
        "node": "a",
        "event": "nacked",
        "id": "b.1",
        "reason": "retry",
        "monotonic_ms": 12.346,
        "ranges": [[3, 5]],
    }


def test_old_files_go_when_there_are_too_many(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "a", file_bytes_max=500, files_max=3)
    for number in range(100):
        journal.write(Journal(TransportEvent.SENT, f"a.1.{number}"), 0.0)
    journal.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) <= 3
    assert sum(file.stat().st_size for file in files) < 3 * 700
    assert json.loads(files[-1].read_text().splitlines()[-1])["id"] == "a.1.99"


def test_files_within_the_bound_stay(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "a", file_bytes_max=1, files_max=8)
    for number in range(8):
        journal.write(Journal(TransportEvent.SENT, f"a.1.{number}"), 0.0)
    journal.close()
    assert len(list(tmp_path.iterdir())) == 8


def test_a_full_disk_loses_entries_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = JournalWriter(tmp_path / "journal", "a")
    (tmp_path / "journal").rmdir()  # what the writer meets is an error of the file system, as on a full disk
    for number in range(5):
        journal.write(Journal(TransportEvent.SENT, f"a.1.{number}"), 0.0)
    journal.close()
    assert journal.lost == 5
    assert caplog.text.count("cannot write the journal") == 1


def test_a_queue_that_is_full_loses_entries(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "a", queue_entries_max=1)
    for number in range(5_000):
        journal.write(Journal(TransportEvent.SENT, f"a.1.{number}"), 0.0)
    journal.close()
    written = sum(len(file.read_text().splitlines()) for file in tmp_path.iterdir())
    assert written + journal.lost == 5_000
    assert journal.lost


def test_a_restart_begins_a_new_file(tmp_path: Path) -> None:
    for name in ("first", "second"):
        journal = JournalWriter(tmp_path, "a")
        journal.write(Journal(TransportEvent.SENT, name), 0.0)
        journal.close()
    ids = [json.loads(file.read_text())["id"] for file in sorted(tmp_path.iterdir())]
    assert ids == ["first", "second"]
