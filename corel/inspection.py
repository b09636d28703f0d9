"""Inspection of the queue: for operators, readers of the journal, and `/v1/log`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from corel.corel import Corel
from corel.messages import Color, Entry, MessageId
from corel.storage import LogReader
from transport import Machine, Timestamp, ViewId


class Inspected(NamedTuple):
    """One message of the queue, and what this node knows of it."""

    position: int
    """Its place from the start of the queue: final if it is green, otherwise the current one."""
    id: MessageId
    timestamp: Timestamp
    color: Color
    view: ViewId
    """The view in which it was first sent."""
    size_bytes: int
    entry: Entry
    acknowledged: tuple[Machine, ...]
    """The members of the current view known to have it on disk. Empty if it is green, or of another view."""


def inspect(corel: Corel, log: LogReader, first: int, limit: int) -> list[Inspected]:
    """Returns at most `limit` messages, from this position on."""
    return list(islice(_entries(corel, log, first, limit), limit))


def _entries(corel: Corel, log: LogReader, first: int, limit: int) -> Iterator[Inspected]:
    queue = corel.queue
    unwritten = corel.unwritten_greens
    written = queue.green - len(unwritten)
    for position, entry in enumerate(log.green(first, min(limit, max(0, written - first))), first):
        yield _inspected(corel, position, entry, Color.GREEN)
    for position, entry in enumerate(unwritten, written):
        if position >= first:
            yield _inspected(corel, position, entry, Color.GREEN)
    for position, entry in enumerate(queue, queue.green):
        if position >= first:
            color = Color.YELLOW if position < queue.yellow_line else Color.RED
            yield _inspected(corel, position, entry, color)


def _inspected(corel: Corel, position: int, entry: Entry, color: Color) -> Inspected:
    acknowledged = () if color is Color.GREEN else corel.acknowledged(entry)
    return Inspected(position, entry.id, entry.timestamp, color, entry.view, entry.size, entry, acknowledged)
