"""What became of a write is kept for so many messages after it, and for as long as its message is in the log."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from corel.disk_errors import DamagedLog
from corel.verification import verify
from kvstore.node import fate_ages
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.store import Checkpoint, Fate, Outcome, Verdict
from tests.corel.truncated_logs import TruncatedLog

KEPT = 20
APPLIED = (Outcome(Verdict.APPLIED, None),)


class Node:
    """A log and a tree on disk, which keeps the fates of the last messages."""

    def __init__(self, directory: Path) -> None:
        self.made = TruncatedLog(directory)
        self.tree = LmdbTree(self.made.log, KEPT)

    def write(self, count: int, log_kept: int = 5) -> None:
        """Writes so many messages, then a checkpoint with their fates; the log is cut behind them."""
        first = len(self.made.order)
        line = first + count
        self.made.write(count, range(first, line), line - log_kept, is_checkpoint=False)
        self.checkpoint(first, line)

    def checkpoint(self, first: int, line: int) -> None:
        fates = {self.made.records[position].id: Fate(position, APPLIED) for position in range(first, line)}
        self.made.log.update(partial(self.tree.write, checkpoint=Checkpoint(line, 0, fates=fates)))

    def known(self) -> list[int]:
        """The positions of the messages whose fates are there."""
        fates = [self.tree.fate(record.id) for record in self.made.records]
        return [fate.position for fate in fates if fate is not None]

    def close(self) -> None:
        self.made.log.close()


def test_the_fates_of_the_last_messages_are_kept_and_older_ones_are_not() -> None:
    with TemporaryDirectory() as directory:
        node = Node(Path(directory))
        for _ in range(12):
            node.write(5)
        assert node.known() == list(range(60 - KEPT, 60))
        assert node.made.keys("fate_ages") == node.known()
        node.close()
        assert verify(Path(directory)) > KEPT


def test_what_is_in_the_log_has_its_fate() -> None:
    """Else an export, which reads both, would find the one without the other."""
    with TemporaryDirectory() as directory:
        node = Node(Path(directory))
        for number in range(10):
            node.write(5, log_kept=35)
            assert node.known() == list(range(node.known()[0], 5 * number + 5))
            assert node.known()[0] <= node.made.first
        assert node.known()[0] > 0
        node.close()


def test_a_few_are_deleted_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fate_ages, "FORGOTTEN_AT_ONCE_MIN", 3)
    node = Node(tmp_path)
    for _ in range(8):
        node.write(5, log_kept=100)
    node.write(0)
    assert node.known()[0] == 0, "their messages were in the log until now"
    node.write(0)
    assert node.known()[0] == 3
    node.checkpoint(0, 0)
    assert node.known()[0] == 3, "a line that is further back deletes nothing"
    node.write(2)
    assert node.known()[0] == 7, "twice as many as have been added"
    node.close()


def test_ages_that_are_written_already_are_damage(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(3)
    with pytest.raises(DamagedLog, match="the message at 2, or beyond, is written already"):
        node.checkpoint(2, 3)
    node.close()


def test_a_tree_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(30)
    node.close()
    again = Node(tmp_path)
    again.made.records, again.made.order = node.made.records, node.made.order
    again.made.digests, again.made._green = node.made.digests, node.made._green
    again.made.open_from = 30
    again.tree.open_tables()
    for _ in range(4):
        again.write(5)
    assert again.known() == list(range(50 - KEPT, 50))
    again.close()
