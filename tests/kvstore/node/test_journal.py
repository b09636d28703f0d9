"""The journal's thread and files: lines, rotation, retention, and a disk that is full, stuck or gone."""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from corel.effects import CorelEvent
from corel.messages import Color, MessageId
from corel.stages import Cause
from kvstore.node import journal_records
from kvstore.node.journal import JournalWriter
from kvstore.node.journal_files import JournalFiles
from kvstore.store import Outcome, Verdict
from tests.journals import faults_of, journal_in, read_journal
from tests.small_disks import mounted
from transport.effects import Journal, Reason, TransportEvent
from transport.messages import Machine

ME = Machine("a", 7)


def end(journal: JournalWriter) -> None:
    journal.stop()
    assert journal.join(30.0)


def note(journal: JournalWriter, number: int, detail: str = "") -> None:
    journal.put(journal_records.plain, "stopped", {"reason": str(number), "detail": detail})


def noted(directory: Path) -> list[int]:
    return [int(record["reason"]) for record in read_journal(directory).of("stopped")]


def until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(3_000):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it never came to that")


def test_a_record_says_what_happened_to_whom_and_when(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.begin(ME)
    nacked = Journal(TransportEvent.NACKED, "b.1", Reason.RETRY, {"ranges": [[3, 5], [9, 9]]})
    journal.put(journal_records.entry, nacked)
    end(journal)
    (file,) = tmp_path.iterdir()
    assert file.name == "journal-000000000007-000001.jsonl"
    (record,) = read_journal(tmp_path).records
    assert list(faults_of(record)) == []
    assert record.pop("wall_ms") > 1.7e12
    assert record.pop("monotonic_ms") > 0.0
    common = {"version": 1, "node": "a", "incarnation": 7, "event": "nacked"}
    assert record == {**common, "machine": "b.1", "reason": "retry", "firsts": [3, 9], "counts": [3, 1]}


def test_an_event_of_many_messages_is_spread_over_records(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.begin(ME)
    ids = [MessageId(ME, number) for number in range(1_000)]
    journal.put(journal_records.messages, "green", ids, {}, {"position": 50})
    journal.put(
        journal_records.entry, Journal(CorelEvent.DEMOTED, "1.a.7", Cause.STATES, {"ids": ids, "count": 1_000})
    )
    end(journal)
    greens, demoted = read_journal(tmp_path).of("green"), read_journal(tmp_path).of("demoted")
    assert [(one["position"], len(one["ids"])) for one in greens] == [(50, 512), (562, 488)]
    assert greens[1]["ids"][0] == "a.7.512"
    assert [one["count"] for one in demoted] == [1_000, 1_000]
    assert sum(len(one["ids"]) for one in demoted) == 1_000


def test_answers_are_run_length_coded() -> None:
    outcomes = [Outcome(Verdict.APPLIED, revision) for revision in (10, 11, 13, 13)]
    outcomes.insert(2, Outcome(Verdict.REJECTED, 4))
    three, four = MessageId(ME, 3), MessageId(ME, 4)
    told: list[journal_records.Told] = [(three, index, outcome) for index, outcome in enumerate(outcomes)]
    first, second, third = journal_records.acknowledged(
        [*told, (four, 0, Color.RED), (four, 1, Color.RED), (four, 2, None)]
    )
    runs = [first[name] for name in ("firsts", "counts", "outcomes", "revisions")]
    assert runs == [[0, 2, 3, 4], [2, 1, 1, 1], ["applied", "rejected", "applied", "applied"], [10, 4, 13, 13]]
    assert (second["id"], second["color"], second["firsts"], second["counts"]) == ("a.7.4", "red", [0], [2])
    assert (second["outcomes"], second["revisions"]) == (["pending"], [None])
    assert (third["color"], third["firsts"], third["outcomes"]) == (None, [2], ["undecided"])


def test_the_file_that_is_written_is_hidden_until_it_never_changes_again(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.begin(ME)
    note(journal, 1)
    until(lambda: noted(tmp_path) == [1])
    assert [file.name[0] for file in tmp_path.iterdir()] == ["_"]
    journal.begin(Machine("a", 8))
    note(journal, 2)
    until(lambda: noted(tmp_path) == [1, 2])
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "_journal-000000000008-000001.jsonl",
        "journal-000000000007-000001.jsonl",
    ]
    end(journal)


def test_a_file_is_finished_when_it_is_old(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, file_s=0.0)
    journal.begin(ME)
    note(journal, 1)
    until(lambda: [file.name for file in tmp_path.iterdir()] == ["journal-000000000007-000001.jsonl"])
    end(journal)


def test_files_are_rotated_and_the_oldest_deleted(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path, bytes_max=100_000, file_bytes_max=10_000, file_s=60.0)
    files.begin(7)
    total = []
    for number in range(1_000):
        files.append(b'{"event":"stopped","reason":"%d"}\n' % number + b" " * 470 + b"\n", 0.0)
        total.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
    files.finish()
    assert max(total) <= 100_000
    assert min(total[500:]) >= 80_000
    assert all(file.stat().st_size <= 10_000 for file in tmp_path.iterdir())
    assert b'"999"' in max(tmp_path.iterdir()).read_bytes()


def test_a_restart_finishes_the_torn_file_and_begins_another(tmp_path: Path) -> None:
    torn = tmp_path / "_journal-000000000006-000003.jsonl"
    torn.write_text('{"event":"stopped","reason":"1"}\n{"event":"sto')
    journal = journal_in(tmp_path)
    journal.begin(ME)
    note(journal, 2)
    end(journal)
    assert noted(tmp_path) == [1, 2]
    assert read_journal(tmp_path).torn == 1
    assert (tmp_path / "journal-000000000006-000003.jsonl").read_text().endswith('{"event":"sto')


def test_a_full_disk_loses_whole_events_and_the_journal_says_how_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mounted(tmp_path / "small", megabytes=1) as disk:
        journal = journal_in(disk / "journal")
        journal.begin(ME)
        note(journal, 0)
        until(lambda: noted(disk / "journal") == [0])
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * (1_048_576 - 40_960))
        for number in range(1, 101):
            note(journal, number, "x" * 1_000)
        until(lambda: journal.lost == 100)
        ballast.unlink()
        note(journal, 101)
        end(journal)
        found = read_journal(disk / "journal")
    assert (found.torn, noted_in(found.records)) == (0, [0, 101])
    assert [one["count"] for one in found.of("gap")] == [100]
    assert caplog.text.count("the journal cannot be written") == 1


def noted_in(records: list[dict[str, object]]) -> list[int]:
    return [int(str(record["reason"])) for record in records if record["event"] == "stopped"]


def test_a_stuck_disk_costs_events_and_neither_time_nor_memory(tmp_path: Path) -> None:
    fifo = tmp_path / "_journal-000000000007-000001.jsonl"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    files = JournalFiles(tmp_path, 1 << 20, 1 << 19, 60.0)
    files._incarnation, files._number, files._descriptor = 7, 1, os.open(fifo, os.O_WRONLY)
    journal = JournalWriter(files, queue_messages_max=1_000)
    for number in range(5_000):  # the pipe takes 64 KiB, and then blocks its writer
        note(journal, number, "x" * 500)
    assert journal.lost >= 3_000
    journal.stop()
    assert not journal.join(0.2)
    os.set_blocking(reader, True)
    while not journal.join(0.01):  # the disk works again
        if select.select([reader], [], [], 0.01)[0]:
            os.read(reader, 1 << 20)
    os.close(reader)


def test_a_directory_that_cannot_be_made_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    journal = journal_in(tmp_path / "file" / "journal")
    journal.begin(ME)
    note(journal, 1)
    end(journal)
    assert journal.lost == 1
    assert "Not a directory" in caplog.text


def test_a_queue_that_is_full_loses_events(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, queue_messages_max=10)
    journal.begin(ME)
    for number in range(5_000):
        note(journal, number)
    until(lambda: bool(noted(tmp_path)))
    note(journal, 5_000)
    end(journal)
    found = read_journal(tmp_path)
    assert noted_in(found.records)[-1] == 5_000
    assert len(noted_in(found.records)) + sum(one["count"] for one in found.of("gap")) == 5_001
    assert json.dumps(found.records[0])
