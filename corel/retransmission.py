"""Retransmission in bounded batches: cutting what is to be sent, and merging what several members send (step
7)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from corel.codec import COPY_OVERHEAD_BYTES
from corel.messages import Copy
from transport import Machine, Timestamp


def batches(copies: Iterable[Copy], bytes_max: int) -> Iterator[tuple[Copy, ...]]:
    """Yields as many copies at a time as fit into `bytes_max`, and at least one."""
    batch: list[Copy] = []
    room = bytes_max
    for copy in copies:
        size = COPY_OVERHEAD_BYTES + len(copy.body or b"")
        if batch and size > room:
            yield tuple(batch)
            batch, room = [], bytes_max
        batch.append(copy)
        room -= size
    if batch:
        yield tuple(batch)


class Merged(NamedTuple):
    """A copy whose turn has come, and its sender. `carrier` is the sequence of the message that brought it, if it
    is the last copy of that message, and 0 otherwise."""

    sender: Machine
    copy: Copy
    carrier: int


class Merge:
    """Merges copies from several senders, each in timestamp order, into one timestamp order."""

    def __init__(self, senders: Iterable[Machine]) -> None:
        self._waiting: dict[Machine, deque[Merged]] = {sender: deque() for sender in senders}
        self._unfinished = set(self._waiting)

    def expects(self, sender: Machine) -> bool:
        return sender in self._unfinished

    def add(self, sender: Machine, copies: Sequence[Copy], carrier: int, is_last: bool) -> list[Merged]:
        """Adds copies of a sender. Returns the copies whose turn has come."""
        waiting = self._waiting[sender]
        waiting.extend(Merged(sender, copy, 0) for copy in copies[:-1])
        waiting.extend(Merged(sender, copy, carrier) for copy in copies[-1:])
        if is_last:
            self._unfinished.discard(sender)
        merged: list[Merged] = []
        while all(self._waiting[sender] for sender in self._unfinished):
            heads = [queue[0] for queue in self._waiting.values() if queue]
            if not heads:
                break
            first = min(heads, key=_timestamp)
            merged.append(self._waiting[first.sender].popleft())
        return merged

    def is_done(self) -> bool:
        return not self._unfinished and not any(self._waiting.values())


def _timestamp(merged: Merged) -> Timestamp:
    return Timestamp(merged.copy.clock, *merged.copy.id.stream)
