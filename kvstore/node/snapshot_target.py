"""A node's disk, built from a snapshot of another's, beside the one that it has.

    <data>/incoming/    the new disk. It is not used before it is whole, and whole before it is used.

Chunks and batches are put in their order, each in a synced transaction that notes how far this has got: after a
crash it goes on there, if the snapshot is still to be had. `finish` makes a whole disk of it, and `switch` puts
that into the place of the old one. A crash in between is noticed by `settle`, which a node calls when it starts,
before it opens its disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from corel import Lines, Record, TakenOver, begun_anew, take_over
from corel.disk_errors import DamagedLog, DiskError
from corel.log_building import LogBuilder, remove_log, replace_log, replaced_by, state_of
from corel.pinned_log import PinnedLog
from corel.read_only_log import ReadOnlyLog
from kvstore.node.copied_state import CopiedState
from kvstore.node.fate_ages import ALL
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.snapshot_format import DamagedSnapshot, Header, LineageEntry, snapshot_id
from kvstore.node.snapshot_progress import Position, SnapshotProgress
from kvstore.store import StoreConfig

INCOMING = "incoming"
"""The directory of a disk that is being built."""

REVISIONS_SKIPPED = 10**12
"""How much later the revisions of a new cluster begin than those of the backup that it is made from. The old
cluster may have gone on after the backup, and given some of those in between: an ETag, a fencing token or a
watcher's place of that time must not fit another change. It is three years at 10,000 changes a second, and the
numbers that JavaScript knows exactly are enough for 9,000 restores."""


class SnapshotTarget:
    """The disk that is being built in a node's data directory. Everything may raise `DiskError`."""

    def __init__(self, directory: Path, cluster: str, node: str, map_bytes: int) -> None:
        self._directory = directory
        self._identity = (cluster, node)
        self._map_bytes = map_bytes
        self._log: LogBuilder | None = None
        self._state: CopiedState | None = None

    def begin(self, header: bytes, name: str = "") -> Position:
        """Begins with the snapshot that has this header, or goes on with it; `name` is what its source calls it.
        What was built from another is removed. Raises `DamagedSnapshot`."""
        begun = SnapshotProgress.begun(header, name)
        self.close()
        try:
            self._begin(begun)
        except BaseException:
            self.close()  # or it would seem to be there, with the progress of another
            raise
        return self.position

    def _begin(self, begun: SnapshotProgress) -> None:
        log = self._open()
        noted = log.progress()
        if isinstance(noted, list) and noted[0] == begun.header_bytes:
            self._progress = SnapshotProgress.of(noted)
        else:
            log.close()
            remove_log(self._directory / INCOMING)
            self._open().note(begun.to_list())
            self._progress = begun

    def resume(self) -> SnapshotProgress | None:
        """Goes on with what is there, if there is something that is not whole, and returns how much that is. What
        cannot be read is removed."""
        if self._log is not None:
            return self._progress
        if not (self._directory / INCOMING / "data.mdb").exists():
            return None
        try:
            noted = self._open().progress()
            if isinstance(noted, list):
                self._progress = SnapshotProgress.of(noted)
                return self._progress
        except (DamagedLog, DamagedSnapshot):
            pass
        except BaseException:
            self.close()
            raise
        self.close()
        discard(self._directory)
        return None

    def _open(self) -> LogBuilder:
        cluster, node = self._identity
        self._log = LogBuilder(self._directory / INCOMING, cluster, node, map_bytes=self._map_bytes)
        LmdbTree(self._log, ALL)  # so that all tables of a node are there
        return self._log

    def close(self) -> None:
        """Closes the disk; what is on it stays, to go on with."""
        if self._log is not None:
            self._log.close()
            self._log = self._state = None

    @property
    def progress(self) -> SnapshotProgress:
        """How much there is."""
        return self._progress

    @property
    def header(self) -> Header:
        return self._progress.header

    @property
    def position(self) -> Position:
        return self._progress.position

    @property
    def records(self) -> int:
        """How many records of tables have been put."""
        return self._progress.records

    # Putting

    def put_chunk(self, content: bytes) -> Position:
        """Puts the chunk that is due, and returns when it is on disk. Raises `DamagedSnapshot` if it is damaged or
        another one; nothing has been put then."""
        following, chunk = self._progress.with_chunk(content)
        self._building.put_records(chunk.table, chunk.records, following.to_list())
        self._progress = following
        return self.position

    def put_batch(self, content: bytes) -> Position:
        """Puts the batch of green messages that is due: those up to the green line of the snapshot, or those that
        have become green since. Returns when it is on disk. Raises `DamagedSnapshot`, as `put_chunk` does."""
        lines = self._progress.lines
        following, records = self._progress.with_batch(content)
        if records:
            self._building.put_green(lines.green, lines.green_digest, records, following.to_list())
        self._progress = following
        return self.position

    def apply(self, config: StoreConfig) -> None:
        """Applies the green messages that have been put to the state, all tables of which must be there. Returns
        when that is on disk."""
        if self._state is None:
            self._state = CopiedState(self._building, self.header, config)
        self._state.apply(self._progress.lines.green)

    @property
    def _building(self) -> LogBuilder:
        if self._log is None:
            raise DiskError("the disk that is being built is closed")
        return self._log

    # Finishing

    def finish_learning(self, own: Lines, own_messages: Iterable[Record]) -> Lines:
        """Makes a whole disk of what was put, for a node that had these lines and these messages that are not
        green, in the order of their arrival. Returns its lines. Raises `NotAhead`, and `DamagedSnapshot` if
        something is missing."""
        self._progress.check_whole()
        if not self._progress.is_current:
            raise DamagedSnapshot("it is not whole: the lines that go with the last messages are missing")
        source, header = self._progress.lines, self.header
        kept = source.green - header.line
        taken = take_over(self._identity[1], own, own_messages, source, header.line, ())
        records = tuple([record._replace(arrival=record.arrival + kept) for record in taken.records])
        end = kept + len(records)
        lines = replace(taken.lines, next_arrival=end, open_from=kept, tail_from=end)
        return self._finish(TakenOver(lines, taken.yellow, records), header.lineage, own)

    def finish_new_cluster(self, open_messages: Sequence[Record] = ()) -> Lines:
        """Makes a whole disk of what was put, for a node of a new generation of the cluster, which begins with
        these messages that are not green. Returns its lines. Raises `DamagedSnapshot` if something is missing."""
        self._progress.check_whole()
        source, header = self._progress.lines, self.header
        state = CopiedState(self._building, header, StoreConfig(history_revisions=0))
        state.apply(source.green)
        state.skip_revisions(REVISIONS_SKIPPED)
        self._state = state
        reason = header.reason or f"restored from a backup of node {header.node}"
        ended = LineageEntry(source.generation, source.green, source.green_digest, header.created_ms, reason)
        generation = snapshot_id(header.to_bytes())  # the same for all nodes that are made from this snapshot
        taken = begun_anew(source, generation, header.line, source.green - header.line, open_messages)
        return self._finish(taken, (*header.lineage, ended), None)

    def _finish(self, taken: TakenOver, lineage: Sequence[LineageEntry], replaced: Lines | None) -> Lines:
        log, header = self._building, self.header
        if self._state is None:
            CopiedState(log, header, StoreConfig())  # so that its past begins here
        log.complete(taken, header.digest, lineage, replaced)
        return taken.lines


# The old disk, and the switch


def own_log(directory: Path) -> tuple[Lines, list[Record]]:
    """Returns the lines on a node's disk, and its messages that are not green in the order of their arrival. The
    node must not write to this disk afterwards."""
    with _pinned(directory) as log:
        return log.lines, log.open_records()


@contextlib.contextmanager
def _pinned(directory: Path) -> Iterator[PinnedLog]:
    log = ReadOnlyLog(directory)
    try:
        pinned = PinnedLog(log)
        try:
            yield pinned
        finally:
            pinned.close()
    finally:
        log.close()


def settle(directory: Path, cluster: str, node: str, map_bytes: int) -> bool:
    """Puts a disk that is whole into its place; to be called before a node opens its disk, so that a crash just
    before or during this is made good. What is not whole stays, to go on with. Returns whether the node has a new
    disk.

    The disk that is there must be as it was when the new one was made. If the node has gone on with it since, what
    it has written and promised would be forgotten, and the new one is removed."""
    incoming = directory / INCOMING
    if not incoming.exists():
        return False
    if not (incoming / "data.mdb").exists():  # it is in its place already
        remove_log(incoming)
        return False
    log = LogBuilder(incoming, cluster, node, map_bytes=map_bytes)
    replaces = replaced_by(log)
    log.close()
    if replaces is None:
        return False
    if (directory / "data.mdb").exists() and replaces != state_of(_lines_in(directory)):
        remove_log(incoming)
        return False
    replace_log(directory, incoming)
    return True


def _lines_in(directory: Path) -> Lines:
    with _pinned(directory) as log:
        return log.lines


def discard(directory: Path) -> None:
    """Removes what was built, if it is not in use."""
    remove_log(directory / INCOMING)
