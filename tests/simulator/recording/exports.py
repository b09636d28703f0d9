"""Exports of simulated disks, with the rows and the files of `corelkv export`.

What is final is what the tree on the same disk has applied. A log without a store has no tree: all of its green
messages are final, and have no outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corel.messages import NO_IDENTITY, Color, is_bound
from corel.storage import Image, Record
from kvstore.cli.export_writer import ExportWriter, Figures, Place, Source
from kvstore.node.exported_rows import Row, exported_row, revision_after
from kvstore.store.state import Outcome
from tests.simulator.corel.memory_log import MemoryLog
from tests.simulator.store.memory_tree import MemoryTree


class NotExportable(Exception):
    """What is on the disk is not what a log and a tree hold. Only a planted bug can lead to that."""


def export_disk(
    log: MemoryLog, tree: MemoryTree | None, out: Path, cluster: str, node: str, exported_ms: int
) -> None:
    """Exports what is on a disk to `out`, to which earlier exports of the same disk may have been made. Raises
    `DiskError` if the disk cannot be read, and `NotExportable`."""
    image = _image(log)
    source = Source(cluster, node, log.disk.hex(), generation_of(log).hex())
    final = log.lines.green if tree is None else min(tree.line, log.lines.green)
    beginning = _beginning(log, tree, final)
    with ExportWriter(out, source, beginning=beginning) as writer:
        if writer.line < log.lines.cut:  # what is in between is truncated: an operator takes another directory
            export_disk(log, tree, out / f"from-{log.lines.cut}", cluster, node, exported_ms)
            return
        digest, revision = writer.digest, writer.revision
        for position in range(writer.line, final):
            record = log.messages[log.order[position]]
            outcomes = () if tree is None else _outcomes(tree, record)
            revision = revision_after(revision, outcomes)
            try:
                row = exported_row(position, record, Color.GREEN, outcomes, revision, digest)
            except ValueError as error:
                raise NotExportable(f"{record.id}: {error}") from error
            digest = row["digest"]
            writer.add(row)
        writer.finish(_figures(image), _tail(log, image, final, digest), exported_ms)


def _beginning(log: MemoryLog, tree: MemoryTree | None, final: int) -> Place:
    """Returns where the log begins, and the digest and the revision there, as `LogExport.beginning` finds them."""
    cut, revision = log.lines.cut, 0
    if cut and tree is not None:
        records = (log.messages[log.order[position]] for position in range(cut, final))
        changed = (revision_after(0, [outcome]) for record in records for outcome in _outcomes(tree, record))
        revision = next(filter(None, changed), tree.revision + 1) - 1
    return Place(cut, log.green_digest(cut).hex(), revision)


def _image(log: MemoryLog) -> Image:
    """Reads all of the disk, so that whatever cannot be read is noticed before anything is exported."""
    try:
        log.green(log.lines.cut, log.lines.green - log.lines.cut)
        return log.load()
    except LookupError as error:
        raise NotExportable(f"the log cannot be restored: {error!r}") from error


def generation_of(log: MemoryLog) -> bytes:
    """The generation of the cluster that the disk is bound to; zeros if it is bound to none."""
    lines = log.lines
    is_final = is_bound(lines.committed, lines.generation, lines.attempted_view)
    return lines.generation if is_final else NO_IDENTITY


def _outcomes(tree: MemoryTree, record: Record) -> tuple[Outcome, ...]:
    fate = tree.fates.get(record.id)
    if fate is None:
        raise NotExportable(f"nothing is known of {record.id}")
    return fate.outcomes


def _figures(image: Image) -> Figures:
    queue, lines = image.queue, image.lines
    return Figures(
        queue.green, queue.yellow_line, len(queue), queue.green_digest, lines.committed, lines.attempted
    )


def _tail(log: MemoryLog, image: Image, final: int, digest: bytes) -> Iterator[Row]:
    for position, (record, color) in enumerate(_not_final(log, image, final), final):
        row = exported_row(position, record, color, None, None, digest)
        digest = row["digest"]
        yield row


def _not_final(log: MemoryLog, image: Image, final: int) -> Iterator[tuple[Record, Color]]:
    for arrival in log.order[final : log.lines.green]:
        yield log.messages[arrival], Color.GREEN
    for entry in image.queue.yellow:
        yield log.messages[entry.arrival], Color.YELLOW
    for entry in image.queue.red:
        yield log.messages[entry.arrival], Color.RED
