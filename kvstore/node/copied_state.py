"""The green state of a disk that is being built: the messages after the snapshot are applied to it as they
arrive, so that the node which starts with it has little left to apply."""

from __future__ import annotations

from functools import partial

from corel.lmdb_log import LmdbLog
from kvstore.node.fate_ages import ALL
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.snapshot_format import DamagedSnapshot, Header
from kvstore.store import GreenState, StoreConfig

_MESSAGES_AT_ONCE = 256


class CopiedState:
    """The state in this log, which has the tables of the snapshot with this header. Raises `DamagedSnapshot` if
    they are not what the header says."""

    def __init__(self, log: LmdbLog, header: Header, config: StoreConfig) -> None:
        self._log = log
        self._tree = tree = LmdbTree(log, ALL)
        if tree.line < header.line or (tree.line == header.line and tree.revision != header.revision):
            raise DamagedSnapshot(
                f"its state is at line {tree.line:,} and revision {tree.revision:,}, and its header says "
                f"{header.line:,} and {header.revision:,}"
            )
        if tree.line == header.line:
            log.update(partial(tree.past.begin_at, revision=header.revision))
        self._green = GreenState(tree, config.history_revisions, config.history_bytes)

    @property
    def line(self) -> int:
        """How many messages are applied."""
        return self._green.line

    def apply(self, line: int) -> None:
        """Applies the messages of the log up to this line; returns when that is on disk."""
        while self._green.line < line:
            for entry in self._log.green(self._green.line, min(_MESSAGES_AT_ONCE, line - self._green.line)):
                self._green.apply(entry.id, self._log.body(entry.arrival), entry.view)
            self._write(only_full=True)
        self._write(only_full=False)

    def skip_revisions(self, count: int) -> None:
        """Has the revisions of what follows begin this much later; returns when that is on disk."""
        self._tree.load()
        self._log.update(partial(self._tree.skip_revisions, count=count))

    def _write(self, only_full: bool) -> None:
        while (checkpoint := self._green.take_checkpoint(self._green.line, only_full)) is not None:
            self._log.update(partial(self._tree.write, checkpoint=checkpoint))
            self._green.written(checkpoint)
