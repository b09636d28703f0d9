"""A simulated journal has what a real one would have when its process is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.journals import read_journal
from tests.simulator.recording.journal import NodeClocks, SimulatedJournal
from transport.messages import Machine

ME = Machine("a", 7)


class Story:
    """A journal, and the time of its node."""

    def __init__(self, directory: Path, seed: int = 1) -> None:
        self.now = 0.0
        self.directory = directory
        clocks = NodeClocks(5_000.0, 1_000_000.0)
        self.journal = SimulatedJournal(directory, clocks, Random(seed), lambda: self.now)
        self.journal.begin(ME)

    def note(self, at_ms: float) -> None:
        self.now = at_ms
        self.journal.put(_records, int(at_ms))

    def kill(self, at_ms: float, is_stopped: bool = False) -> list[int]:
        """Returns which events are there afterwards."""
        self.now = at_ms
        self.journal.kill(is_stopped)
        return [record["count"] for record in read_journal(self.directory).records]


def _records(number: int) -> Iterator[dict[str, Any]]:
    yield {"event": "gap", "count": number}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def test_a_process_that_is_killed_loses_what_it_had_not_written(story: Story) -> None:
    for at_ms in (10.0, 90.0, 120.0):
        story.note(at_ms)
    assert story.kill(150.0) == [10, 90]


def test_what_happens_in_the_instant_of_the_end_is_lost_even_if_it_writes_then(story: Story) -> None:
    story.note(10.0)
    story.note(100.0)
    assert story.kill(100.0) == [10]


def test_a_process_that_is_stopped_writes_nothing_meanwhile(story: Story) -> None:
    story.note(10.0)
    story.note(110.0)
    story.now = 120.0
    story.journal.settle()
    assert story.kill(5_000.0, is_stopped=True) == [10]


def test_a_run_that_ends_leaves_everything(story: Story) -> None:
    story.note(10.0)
    story.journal.end(is_finished=True)
    assert [path.name for path in story.directory.iterdir()] == ["journal-000000000007-000001.jsonl"]
    (record,) = read_journal(story.directory).records
    assert (record["node"], record["incarnation"]) == ME
    assert (record["monotonic_ms"], record["wall_ms"]) == (5_010.0, 1_000_010.0)


def test_a_file_that_is_being_written_at_the_end_has_its_name_of_then(story: Story) -> None:
    story.note(10.0)
    story.journal.end(is_finished=False)
    assert [path.name for path in story.directory.iterdir()] == ["_journal-000000000007-000001.jsonl"]


def test_some_that_are_killed_leave_a_torn_line(tmp_path: Path) -> None:
    torn = 0
    for seed in range(40):
        story = Story(tmp_path / str(seed), seed)
        story.note(10.0)
        story.note(120.0)
        assert story.kill(150.0)[:1] == [10]
        torn += read_journal(story.directory).torn
    assert 0 < torn < 40
