"""The invariants of section 3.4, as far as one node can see them, as executable checks.

**Causal** and **No Changes in Green** are checked here, after every step where `debug_invariants` is on. **Agreed
Green** and **Yellow** concern several nodes: they are always checked when states are exchanged
(`recovery_plan.make_plan`), and by the simulator's checkers after every step of any node."""

from __future__ import annotations

from operator import lt
from typing import TypeAlias

from corel.message_queue import MessageQueue, chained
from corel.messages import Entry, Stream, Vector
from transport import BrokenInvariant

_Shape: TypeAlias = tuple[int, int, list[Entry], list[Entry], dict[Stream, int], Vector]

UNCHANGED_MAX = 50
"""After so many steps in which the queue seemed unchanged it is checked all the same, in case a message in it has
changed."""


class Invariants:
    """Checks one queue, step by step."""

    def __init__(self, queue: MessageQueue) -> None:
        self._green = queue.green
        self._digest = queue.green_digest
        self._turned: list[Entry] = []
        self._shape: _Shape | None = None
        """What the queue was like when all of it was checked last."""
        self._unchanged = 0
        """How many steps ago that was."""

    def turned_green(self, entries: list[Entry]) -> None:
        self._turned += entries

    def check(self, queue: MessageQueue) -> None:
        """Raises `BrokenInvariant` if the queue breaks an invariant that one node can see. Most steps leave the
        queue as it was, and finding that out costs a fraction of a check."""
        self._check_green(queue)
        shape = (queue.base, queue.green, queue.yellow, queue.red, queue.green_last, queue.have())
        if shape == self._shape and self._unchanged < UNCHANGED_MAX:
            self._unchanged += 1
            return
        self._check_causal(queue)
        self._check_zones(queue)
        base, green, yellow, red, green_last, have = shape
        self._shape = (base, green, list(yellow), list(red), dict(green_last), have)
        self._unchanged = 0

    def _check_green(self, queue: MessageQueue) -> None:
        """Checks that new green messages were appended, and that nothing else in the green prefix changed."""
        if queue.green != self._green + len(self._turned):
            raise BrokenInvariant(
                f"{len(self._turned)} messages took the green line from {self._green} to {queue.green}"
            )
        self._digest = chained(self._digest, self._turned)
        self._green = queue.green
        self._turned = []
        if self._digest != queue.green_digest:
            raise BrokenInvariant("the green order has changed (No Changes in Green)")

    def _check_causal(self, queue: MessageQueue) -> None:
        """Checks that before each message there is every earlier one of its sender."""
        last: dict[Stream, int] = {}
        green_last = queue.green_last
        for entry in queue:
            stream, sequence = entry.id
            before = last[stream] if stream in last else green_last.get(stream, 0)
            if sequence != before + 1:
                raise BrokenInvariant(f"{entry.id} comes after {stream}.{before} (Causal)")
            last[stream] = sequence
        if last != dict(queue.have()):
            raise BrokenInvariant(f"{dict(queue.have())} is not what is in the queue, {last}")

    def _check_zones(self, queue: MessageQueue) -> None:
        for zone in (queue.tail(), queue.red):
            timestamps = [entry.timestamp for entry in zone]
            if not all(map(lt, timestamps, timestamps[1:])):
                raise BrokenInvariant("messages are not in the order of their timestamps")
        if queue.base > queue.yellow_line:
            raise BrokenInvariant(f"what was committed to, {queue.base}, is not yellow beyond {queue.yellow_line}")
