"""What each level of reading promises. A green read shows the state at some place of the one order, and that place
never goes back at a node while it runs; `min_revision` is reached. A red read shows everything that the node has
acknowledged, and nothing twice, which is checked with keys that are only ever appended to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from corel.messages import Color, MessageId
from kvstore.store.operations import Append
from kvstore.store.replies import Accepted, Done
from kvstore.store.store import Store
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import Attempt, Level, Read, Request, StoreChecker, StoreHistory

APPENDED = "log"
"""The prefix of the keys that are only appended to, a part and a separator at a time."""
SEPARATOR = b","


class ReadLevels(StoreChecker):
    def __init__(self, history: StoreHistory) -> None:
        super().__init__(history)
        self._reached: dict[tuple[str, int], int] = {}
        """The highest revision that each start of each node has shown."""
        self._acknowledged: dict[tuple[str, str], set[bytes]] = {}
        """The parts of each key that each node has acknowledged."""

    def answered(self, request: Request, attempt: Attempt) -> None:
        if isinstance(attempt.answer, (Done, Accepted)):
            for one in request.write.then:
                if isinstance(one, Append) and one.key.startswith(APPENDED):
                    parts = self._acknowledged.setdefault((attempt.node, one.key), set())
                    parts.add(one.value.rstrip(SEPARATOR))

    def disk_replaced(self, node: str, lost: Collection[MessageId]) -> None:
        for name, key in list(self._acknowledged):
            if name == node:
                del self._acknowledged[name, key]

    def read(self, read: Read) -> None:
        reached = self._reached.get((read.node, read.starts), 0)
        if read.revision < reached:
            raise Violation(f"{read.node} shows revision {read.revision}, and was at {reached}")
        self._reached[read.node, read.starts] = read.revision
        if read.revision < read.min_revision:
            raise Violation(f"{read.node} shows revision {read.revision}, asked for {read.min_revision}")
        if read.level is Level.RED:
            self._check_red(read)

    def _check_red(self, read: Read) -> None:
        if not read.key.startswith(APPENDED):
            return
        parts = Counter((read.item.value if read.item is not None else b"").split(SEPARATOR)[:-1])
        missing = self._acknowledged.get((read.node, read.key), set()) - set(parts)
        if missing:
            raise Violation(f"{read.node} does not show {sorted(missing)[:3]} of {read.key}, and acknowledged it")
        if twice := [part for part, count in parts.items() if count > 1]:
            raise Violation(f"{read.node} shows {twice[:3]} of {read.key} more than once")

    def finished(self, stores: Mapping[str, Store]) -> None:
        for read in self.history.reads:
            if read.color is Color.GREEN:
                expected = self.history.replay.item(read.key, read.revision)
                if read.item != expected:
                    raise Violation(
                        f"{read.node} showed {read.item} as {read.key} at revision {read.revision} "
                        f"({read.level}), where it is {expected}"
                    )
