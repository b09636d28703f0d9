"""What each level of reading promises. A green read shows the state at some place of the one order, and that place
never goes back at a node while it runs; `min_revision` is reached. A red read shows everything that the node has
acknowledged, and nothing twice, which is checked with keys that are only ever appended to. What has an idempotency
key may be missing, if it has expired in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from corel.messages import Color, MessageId
from kvstore.store.operations import Append
from kvstore.store.replies import Accepted, Done
from kvstore.store.state import Verdict
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
        self._acknowledged: dict[tuple[str, str], dict[bytes, str]] = {}
        """The parts of each key that each node has acknowledged, with the id of the write if it may expire."""
        self._missing: list[tuple[Read, bytes, str]] = []
        """What red reads did not show, and should have unless this write expires."""

    def answered(self, request: Request, attempt: Attempt) -> None:
        answer = attempt.answer
        if not isinstance(answer, (Done, Accepted)):
            return
        if isinstance(answer, Done) and answer.applied.outcome.verdict is Verdict.EXPIRED:
            return
        may_expire = isinstance(answer, Accepted) and request.write.idempotency_key is not None
        for one in request.write.then:
            if isinstance(one, Append) and one.key.startswith(APPENDED):
                parts = self._acknowledged.setdefault((attempt.node, one.key), {})
                part = one.value.rstrip(SEPARATOR)
                parts[part] = answer.write_id if may_expire and parts.get(part) != "" else ""

    def disk_replaced(self, node: str, lost: Collection[MessageId]) -> None:
        for name, key in list(self._acknowledged):
            if name == node:
                del self._acknowledged[name, key]
        # Whether a write that went with the disk had expired, nobody will know.
        names = {str(message_id) for message_id in lost}
        self._missing = [one for one in self._missing if one[2].rpartition(".")[0] not in names]

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
        acknowledged = self._acknowledged.get((read.node, read.key), {})
        missing = [part for part in acknowledged if part not in parts]
        self._missing += [(read, part, write_id) for part in missing if (write_id := acknowledged[part])]
        if lost := [part for part in missing if not acknowledged[part]]:
            raise Violation(f"{read.node} does not show {sorted(lost)[:3]} of {read.key}, and acknowledged it")
        if twice := [part for part, count in parts.items() if count > 1]:
            raise Violation(f"{read.node} shows {twice[:3]} of {read.key} more than once")

    def finished(self, stores: Mapping[str, Store]) -> None:
        for read, part, write_id in self._missing:
            placed = self.history.replay.by_id.get(write_id)
            if placed is None or placed.outcome.verdict is not Verdict.EXPIRED:
                outcome = None if placed is None else placed.outcome
                raise Violation(f"{read.node} does not show {part!r} of {read.key}, and {write_id} is {outcome}")
        for read in self.history.reads:
            if read.color is Color.GREEN:
                expected = self.history.replay.item(read.key, read.revision)
                if read.item != expected:
                    raise Violation(
                        f"{read.node} showed {read.item} as {read.key} at revision {read.revision} "
                        f"({read.level}), where it is {expected}"
                    )
