from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.ledger import Ledger
from loadtest.record import Certainty, FeedLine, Recorder, RecordFiles, WriteLine, certainty_of, read_lines


@pytest.mark.parametrize(
    ("status", "has_id", "certainty"),
    [
        (200, True, Certainty.ACKNOWLEDGED),
        (202, True, Certainty.ACKNOWLEDGED),
        (412, True, Certainty.ACKNOWLEDGED),
        (200, False, Certainty.UNKNOWN),
        (503, False, Certainty.REFUSED),
        (429, False, Certainty.REFUSED),
        (504, True, Certainty.UNKNOWN),
        (500, False, Certainty.UNKNOWN),
        (0, False, Certainty.UNKNOWN),
    ],
)
def test_a_failed_request_is_unknown_unless_nothing_was_accepted(
    status: int, has_id: bool, certainty: Certainty
) -> None:
    assert certainty_of(status, has_id) is certainty


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path)
    recorder = Recorder("one", lambda lines: files.append("one", lines))
    line = WriteLine("put", "k", "http://a", 17)
    line.answer(200, {"id": "a.1.2.0", "color": "green", "outcome": "applied", "revision": 7})
    recorder.write(line)
    recorder.write(WriteLine("put", "k", "http://a", error="TimeoutError"))
    recorder.feed(FeedLine("w", 1, 7, "digest"))
    recorder.close()
    files.close()
    lines = list(read_lines(tmp_path / "one.jsonl"))
    assert [one["kind"] for one in lines] == ["begin", "write", "write", "feed", "end"]
    assert lines[1]["id"] == "a.1.2.0"
    assert lines[1]["certainty"] == "acknowledged"
    assert lines[2]["certainty"] == "unknown"
    assert lines[-1]["lines"] == 4


def test_memory_is_bounded_by_handing_lines_on() -> None:
    bunches: list[list[str]] = []
    recorder = Recorder("one", bunches.append)
    for _ in range(5 * Recorder.LINES_MAX):
        recorder.write(WriteLine("put", "k", "http://a"))
    assert len(bunches) >= 5
    assert max(map(len, bunches)) <= Recorder.LINES_MAX


def test_a_torn_end_is_left_out_and_noticed(tmp_path: Path) -> None:
    write = {"kind": "write", "certainty": "unknown", "operation": "put"}
    (tmp_path / "one.jsonl").write_text(f'{{"kind": "begin"}}\n{json.dumps(write)}\n{{"kind": "wri')
    ledger = Ledger()
    ledger.add_record(tmp_path)
    assert ledger.one("SELECT count(*) FROM writes") == 1
    assert ledger.one("SELECT file FROM unfinished") == "one.jsonl"


def test_no_record_is_an_error_that_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no record in"):
        Ledger().add_record(tmp_path)
