"""The log of a node that may be running, as rows of an exported log.

What is read at one moment is where the lines are, and which messages are not green, in which order. Everything
before that in the order is read afterwards, in short transactions: it cannot change. What became of the writes is
known up to the line of the state on disk, and rows are final up to there.

A node that runs goes on truncating, and deletes what became of writes together with their messages. Records that
were read ahead are still here then, so what is missing is damage only if its position is still kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from corel import Color, Lines, Record, is_bound
from corel.disk_errors import Truncated
from corel.read_only_log import GreenMessage, ReadOnlyLog
from kvstore.log_schema import FIRST_DIGEST
from kvstore.node.exported_rows import Row, exported_row, revision_after
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.store import Fate


class Beginning(NamedTuple):
    """Where a log begins, and what is known of the order before it."""

    line: int
    digest: bytes
    revision: int


class LogExport:
    """The log of one node as it was when this was made. Everything may raise `DiskError`: `Truncated` if the node
    has deleted meanwhile what was to be read."""

    def __init__(self, directory: Path) -> None:
        self._log = ReadOnlyLog(directory)
        try:
            self._tree = LmdbTree(self._log)  # before the lines: they are not behind it then
            self._image = self._log.load()
        except BaseException:
            self.close()
            raise
        self.cluster, self.node, self.disk, _ = self._log.identity
        self.final = self._tree.line
        """How many messages have outcomes that are on disk."""

    def close(self) -> None:
        self._log.close()

    @property
    def lines(self) -> Lines:
        return self._image.lines

    @property
    def yellow(self) -> int:
        """The yellow line."""
        return self._image.queue.yellow_line

    @property
    def length(self) -> int:
        """How many messages the queue has."""
        return len(self._image.queue)

    @property
    def generation(self) -> bytes:
        """The generation of the cluster to which the node is bound; zeros if it is not yet."""
        lines = self.lines
        bound = is_bound(lines.committed, lines.generation, lines.attempted_view)
        return lines.generation if bound else bytes(len(lines.generation))

    def beginning(self) -> Beginning:
        """Returns where the log begins: its cut, or 0. The revision there is known from the first write after it
        that changed something."""
        cut = self.lines.cut
        if not cut:
            return Beginning(0, FIRST_DIGEST, 0)
        for message in self._log.green_messages(cut, self.final):
            for outcome in self._fate(message.position, message.record).outcomes:
                if revision := revision_after(0, [outcome]):
                    return Beginning(cut, self._log.green_digest(cut), revision - 1)
        return Beginning(cut, self._log.green_digest(cut), self._tree.revision)

    def has_order(self, line: int, digest: bytes) -> bool:
        """Returns whether the green order up to this line, which is not beyond the green line, has this digest."""
        return self._log.green_digest(line) == digest

    def rows(self, first: int, revision: int, digest: bytes, with_body: bool = True) -> Iterator[Row]:
        """Yields the messages from this position to the end, where the revision and the digest of the row before
        it are these. The digests of green rows are the node's own."""
        for message in self._log.green_messages(first, self.lines.green):
            row = self._green_row(message, revision, digest, with_body)
            if row["revision"] is not None:
                revision = row["revision"]
            digest = row["digest"]
            if digest != message.digest:
                raise self._log.damaged(f"the order up to {message.position} is not the one that was exported")
            self._check_revision(message.position, revision)
            yield row
        if digest != self.lines.green_digest:
            raise self._log.damaged(f"the order at {self.lines.green} is not the one that became green")
        queue = self._image.queue
        for position, entry in enumerate(queue, self.lines.green):
            color = Color.YELLOW if position < self.yellow else Color.RED
            row = exported_row(position, self._log.record(entry.arrival), color, None, None, digest, with_body)
            digest = row["digest"]
            yield row

    def _green_row(self, message: GreenMessage, revision: int, digest: bytes, with_body: bool) -> Row:
        position, record, _ = message
        if position >= self.final:
            return exported_row(position, record, Color.GREEN, None, None, digest, with_body)
        return self._final_row(position, record, revision, digest, with_body)

    def _final_row(self, position: int, record: Record, revision: int, digest: bytes, with_body: bool) -> Row:
        fate = self._fate(position, record)
        after = revision_after(revision, fate.outcomes)
        try:
            return exported_row(position, record, Color.GREEN, fate.outcomes, after, digest, with_body)
        except ValueError:
            raise self._log.damaged(f"what became of the writes of {record.id} is not of those writes") from None

    def _fate(self, position: int, record: Record) -> Fate:
        """Returns what became of a message whose outcomes are on disk, if they are still kept."""
        fate = self._tree.fate(record.id)
        if fate is None or fate.position != position:
            self._check_kept(position)
            raise self._log.damaged(f"what became of {record.id} at {position} is missing")
        return fate

    def _check_kept(self, position: int) -> None:
        """Raises `Truncated` if the node has deleted this position since it was read."""
        with self._log.read(self._log.table("meta")) as transaction:
            first = self._log.beginning(transaction).line
        if position < first:
            raise Truncated(self._log.directory, first)

    def _check_revision(self, position: int, revision: int) -> None:
        if position == self.final - 1 and revision != self._tree.revision:
            raise self._log.damaged(
                f"the writes up to {self.final} lead to revision {revision}, and the state is at "
                f"{self._tree.revision}"
            )
