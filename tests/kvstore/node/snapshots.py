"""Disks to take snapshots of, and what tests do with snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from corel import LogWrite, MessageId, Record
from corel.lmdb_log import LmdbLog
from corel.message_queue import chained
from kvstore.node.fate_ages import ALL
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.snapshot_format import SNAPSHOT_TABLES
from kvstore.node.snapshot_source import SnapshotSource
from kvstore.node.snapshot_target import SnapshotTarget
from kvstore.store import Delete, Put, Write, encode_write
from kvstore.store.green_state import GreenState
from kvstore.store.write_codec import encode_batch
from transport import Machine, ViewId

CLUSTER = "test"
MAP_BYTES = 256 * 2**20
VIEW = ViewId(3, "a", 1)
GENERATION = b"a generation ..."


class WorkingDisk:
    """The disk of a node that is in a primary component: writes become green one after the other."""

    def __init__(self, directory: Path, node: str = "a") -> None:
        self.directory = directory
        self.log = LmdbLog(directory, CLUSTER, node, is_new_cluster=True, map_bytes=MAP_BYTES)
        self.tree = LmdbTree(self.log, ALL)
        self.state = GreenState(self.tree)
        self.stream = Machine(node, 1)
        self.sent = 0
        self.lines = replace(self.log.load().lines, committed=2, attempted=2, generation=GENERATION, established=2)

    def close(self) -> None:
        self.log.close()

    def green(self, *writes: Write, is_checkpointed: bool = True) -> None:
        """Logs messages of one write each, turns them green and applies them; the state goes to disk, or stays
        behind."""
        records = self.logged(*writes)
        lines, last = self.lines, records[-1]
        self.lines = replace(
            lines,
            green=lines.green + len(records),
            green_digest=chained(lines.green_digest, [record.entry() for record in records]),
            streams=((self.stream, last.id.sequence),),
            open_from=last.arrival + 1,
        )
        self.log.write(LogWrite((), tuple(record.arrival for record in records), None, self.lines))
        for record in records:
            self.state.apply(record.id, record.body, record.view)
        if is_checkpointed:
            self.checkpoint()

    def logged(self, *writes: Write) -> list[Record]:
        """Logs red messages of one write each."""
        records: list[Record] = []
        for write in writes:
            self.sent += 1
            body = encode_batch([encode_write(write)], 10**9, accepted_ms=self.sent)
            arrival = self.lines.next_arrival + len(records)
            records.append(Record(arrival, MessageId(self.stream, self.sent), 10 + self.sent, VIEW, 0, body))
        self.lines = replace(self.lines, next_arrival=self.lines.next_arrival + len(records), clock=10 + self.sent)
        self.log.write(LogWrite(tuple(records), (), None, self.lines))
        return records

    def checkpoint(self) -> None:
        while (checkpoint := self.state.take_checkpoint(self.lines.green, only_full=False)) is not None:
            self.log.update(partial(self.tree.write, checkpoint=checkpoint))
            self.state.written(checkpoint)

    def source(self) -> SnapshotSource:
        return SnapshotSource(self.log, created_ms=1_000)


def filled(directory: Path, count: int = 30) -> WorkingDisk:
    """A disk with items, memories, tombstones and fates, whose state on disk is two messages behind its log."""
    disk = WorkingDisk(directory)
    puts = [
        Write((Put(f"key {number:05}", b"value %d" % number),), idempotency_key=f"once {number}")
        for number in range(count)
    ]
    disk.green(*puts, Write((Delete("key 00003"),)))
    disk.green(Write((Put("late", b"1"),)), Write((Put("later", b"2"),)), is_checkpointed=False)
    return disk


def target_in(directory: Path, node: str = "b") -> SnapshotTarget:
    return SnapshotTarget(directory, CLUSTER, node, MAP_BYTES)


def chunks(source: SnapshotSource, bytes_max: int = 200) -> Iterator[bytes]:
    """All chunks of a snapshot, small ones."""
    for table in SNAPSHOT_TABLES:
        after, is_last = b"", False
        while not is_last:
            chunk = source.chunk(table, after, bytes_max)
            after, is_last = chunk.records[-1][0] if chunk.records else after, chunk.is_last
            yield chunk.to_bytes(source.id)


def put_rest(target: SnapshotTarget, source: SnapshotSource, bytes_max: int = 200) -> None:
    """Puts everything that a snapshot has after the target's position."""
    while (table := target.position.table) is not None:
        target.put_chunk(source.chunk(table, target.position.after, bytes_max).to_bytes(source.id))
    while target.position.line < source.header.lines.green:
        target.put_batch(source.batch(target.position.line, bytes_max).to_bytes())


@contextmanager
def opened(directory: Path, node: str = "b") -> Iterator[tuple[LmdbLog, LmdbTree]]:
    """A disk as its node opens it."""
    with closing(LmdbLog(directory, CLUSTER, node, map_bytes=MAP_BYTES)) as log:
        yield log, LmdbTree(log, ALL)


def content(log: LmdbLog, tables: tuple[str, ...] = SNAPSHOT_TABLES) -> dict[str, list[tuple[bytes, bytes]]]:
    """Everything in these tables, but for the beginning of the past."""
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    for name in tables:
        table = log.table(name)
        with log.read(table) as transaction:
            found[name] = [(bytes(key), bytes(value)) for key, value in transaction.cursor() if key != b"past"]
    return found
