"""A log and a tree on disk, written step by step, and everything that can be read from them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from corel.lmdb_log import LmdbLog
from corel.messages import MessageId
from corel.storage import Lines, LogWrite, Record
from kvstore.node.fate_ages import ALL
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.store import Checkpoint, Item
from transport.messages import Machine, ViewId

A = Machine("a", 1)
MAP_BYTES = 4 * 1024**2
PAGE_BYTES = 4_096
GREEN_BEHIND = 3
"""How many of the last messages are not green."""


class Content(NamedTuple):
    """What the disk holds: the messages in the order of their arrival, and the items."""

    bodies: tuple[bytes, ...] = ()
    items: dict[str, Item] = {}  # noqa: RUF012

    @property
    def green(self) -> list[MessageId]:
        return [MessageId(A, arrival + 1) for arrival in range(max(0, len(self.bodies) - GREEN_BEHIND))]


def opened(directory: Path) -> tuple[LmdbLog, LmdbTree]:
    log = LmdbLog(directory, "test", "a", is_new_cluster=True, map_bytes=MAP_BYTES)
    return log, LmdbTree(log, ALL)


def written(directory: Path, writes: int, random: Random) -> Iterator[Content]:
    """Writes messages and checkpoints of many sizes, and yields what the disk holds after each write."""
    log, tree = opened(directory)
    content = Content()
    yield content
    for number in range(writes):
        new = [random.randbytes(random.choice((10, 100, 3_000, 9_000))) for _ in range(random.randint(1, 4))]
        first, before = len(content.bodies), len(content.green)
        changed = {
            f"key {random.randrange(60)}": Item(
                random.randbytes(random.choice((5, 900))), "a/b", number + 1, "a.1.1"
            )
            for _ in range(5)
        }
        content = Content((*content.bodies, *new), content.items | changed)
        green = len(content.green)
        records = [
            Record(first + i, MessageId(A, first + i + 1), 10 + first + i, ViewId(3, "a", 1), 0, body)
            for i, body in enumerate(new)
        ]
        lines = Lines(
            is_voter=True,
            green=green,
            streams=((A, green),) if green else (),
            next_arrival=first + len(new),
            open_from=green,
        )
        checkpoint = Checkpoint(green, number + 1, dict(changed))
        write = LogWrite(tuple(records), tuple(range(before, green)), None, lines)
        log.write(write, partial(tree.write, checkpoint=checkpoint))
        yield content
    log.close()


def read(directory: Path, keys: int = 60) -> Content:
    """Reads everything. Raises `DiskError`."""
    log, tree = opened(directory)
    try:
        image = log.load()
        arrivals = range(image.lines.next_arrival)
        items = {key: item for number in range(keys) if (item := tree.item(key := f"key {number}")) is not None}
        content = Content(tuple(log.body(arrival) for arrival in arrivals), items)
        green = [entry.id for entry in log.green(0, len(arrivals))]
        red = [entry.id for entry in image.queue]
        if green != content.green or [*green, *red] != [MessageId(A, arrival + 1) for arrival in arrivals]:
            raise AssertionError(f"the order is wrong: {green} {red}")
        return content
    finally:
        log.close()
