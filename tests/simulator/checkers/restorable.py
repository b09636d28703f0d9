"""Whatever the disk holds after any write, a node that restarts from it keeps the invariants."""

from __future__ import annotations

from corel.invariants import Invariants
from corel.storage import Image
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.log import History
from tests.simulator.checkers.yellow_kept import YellowKept


class Restorable:
    def __init__(self, history: History, yellow_kept: YellowKept) -> None:
        self._history = history
        self._yellow_kept = yellow_kept

    def check(self, node: str, image: Image) -> None:
        """Checks the image of a node's disk."""
        queue = image.queue
        Invariants(queue).check(queue)
        known = image.lines.committed - image.lines.is_learned
        self._yellow_kept.check(f"{node}'s disk", known, queue)
        for entry in queue:
            if self._history.positions.get(entry.id, queue.green) < queue.green:
                raise Violation(f"{node}'s disk has {entry.id} open, which is green before {queue.green}")
