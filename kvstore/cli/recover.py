"""`corelkv recover`: half of the votes or more are lost for good, so there will be no primary component any more.

It makes a backup from the best disk that is left, from which a new cluster is restored. No disk is changed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from corel import Record
from corel.disk_errors import DiskError
from corel.lmdb_log import lock_directory
from corel.read_only_log import ReadOnlyLog
from corel.verification import verify
from kvstore.cli.backup_file import BackupFailed, BackupWriter, written
from kvstore.cli.output import Exit, UsageError, fail
from kvstore.cli.progress import progress as shown
from kvstore.cli.reading_process import ReadingFailed, Tell, read_apart
from kvstore.cli.tables import print_table
from kvstore.node import (
    DamagedSnapshot,
    Kind,
    SnapshotProgress,
    SnapshotSource,
    Survivor,
    batches,
    best,
    grouped,
    messages_to_bytes,
    survey,
)

_SHOWN_IDS_MAX = 5


def recover(directories: Sequence[Path], out: Path, is_agreed: bool) -> int:
    """Shows what is left, asks, writes the file, and returns the exit status."""
    try:
        with _locked(directories):
            survivors = [_surveyed(directory) for directory in directories]
            _check_one_cluster(survivors)
            chosen = best(survivors)
            _show(survivors, chosen)
            if not is_agreed and not _asks(out):
                return fail("nothing was written", Exit.FAILED)
            _write(chosen, out)
    except (BackupFailed, DamagedSnapshot, DiskError, ReadingFailed) as error:
        return fail(error, Exit.FAILED)
    print(
        f"{out} has what is left. Restore every node of the cluster from it (`corelkv restore`), each to an empty "
        "directory, and start them all. Keep the old directories until the new cluster is what you want, and do "
        "not start nodes on them again."
    )
    return Exit.OK


@contextmanager
def _locked(directories: Sequence[Path]) -> Iterator[None]:
    """Keeps nodes from starting there meanwhile. Raises `DiskError` if one runs."""
    locks: list[int] = []
    try:
        for directory in directories:
            if not (directory / "data.mdb").exists():
                raise UsageError(f"{directory} has no data.mdb: give the --data directory of a node.")
            try:
                locks.append(lock_directory(directory))
            except OSError as error:
                raise BackupFailed(
                    f"{directory} cannot be locked: {error.strerror}. Copy it to a disk that can be written."
                ) from None
        yield
    finally:
        for lock in locks:
            os.close(lock)


def _surveyed(directory: Path) -> Survivor:
    """Reads a disk whole, since damage must be known before it is chosen."""

    def work(tell: Tell) -> None:
        verify(directory, lambda done, total: tell(done=done, total=total))
        tell(survivor=survey(directory)._asdict())

    return Survivor(**read_apart(directory, "records", work)["survivor"])


def _check_one_cluster(survivors: Sequence[Survivor]) -> None:
    if len({survivor.node for survivor in survivors}) < len(survivors):
        raise UsageError("two of the directories are of the same node: give each node's last one.")
    if len({survivor.cluster for survivor in survivors}) > 1:
        raise UsageError("the directories are of nodes of different clusters: give those of one.")
    if len({survivor.generation for survivor in survivors} - {""}) > 1:
        raise UsageError(
            "the directories are of different generations of the cluster: one of them was left over when the "
            "cluster was begun anew. Give those of the last one."
        )


# What is left


def _show(survivors: Sequence[Survivor], chosen: Survivor) -> None:
    rows = [
        [
            survivor.node + (" *" if survivor is chosen else ""),
            survivor.directory,
            _primary(survivor),
            f"{survivor.green:,}",
            f"{survivor.yellow:,}",
            f"{survivor.red:,}",
        ]
        for survivor in sorted(survivors, key=lambda survivor: survivor.knowledge, reverse=True)
    ]
    print_table(["node", "directory", "last primary component", "green", "yellow", "red"], rows)
    print()
    for sentence in told(survivors, chosen):
        print(f"- {sentence}")
    print()


def _primary(survivor: Survivor) -> str:
    if not survivor.committed:
        return "none"
    return f"{survivor.committed:,}" + (" (heard of)" if survivor.is_learned else "")


def told(survivors: Sequence[Survivor], chosen: Survivor) -> list[str]:
    """Returns, in sentences, what the new cluster has and what may be lost."""
    found = [
        f"The disk of {chosen.node} knows most. The new cluster begins with its {chosen.green:,} green messages."
    ]
    if chosen.yellow:
        found.append(
            f"Its {chosen.yellow:,} yellow messages may be final on disks that are lost: they become final in "
            "their order."
        )
    if chosen.red:
        found.append(f"Its {chosen.red:,} red messages are taken over, and get their places in the new cluster.")
    for other in survivors:
        if other is not chosen and (lacking := chosen.lacks(other)):
            some = ", ".join(lacking[:_SHOWN_IDS_MAX]) + (", …" if len(lacking) > _SHOWN_IDS_MAX else "")
            found.append(
                f"{len(lacking):,} messages on the disk of {other.node} are not green, and not on that disk: they "
                f"are LOST ({some})."
            )
    if chosen.is_learned or not chosen.committed:
        found.append(
            f"The disk of {chosen.node} was not in the last primary component that it knows of: what became green "
            "there may be LOST."
        )
    found.append(
        f"Writes that became green without the disk of {chosen.node}, in a later primary component, are LOST. "
        "Nothing here can tell whether there are any."
    )
    found.append("If the lost disks may come back, wait for them instead: nothing is lost then.")
    return found


def _asks(out: Path) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked here. Read what may be lost, and say --yes if you want that.")
    return input(f"Write {out} for a new cluster? [y/N] ").strip().lower() in ("y", "yes")


# The file


def _write(chosen: Survivor, out: Path) -> None:
    reason = f"recovered from the disk of node {chosen.node}, when too many others were lost"
    with (
        closing(ReadOnlyLog(Path(chosen.directory))) as log,
        closing(SnapshotSource(log, int(time.time() * 1_000.0), reason)) as source,
        written(out) as writer,
    ):
        progress = _write_snapshot(source, writer)
        yellow, red = source.open_messages()
        for batch in batches(yellow, progress.lines):
            content = batch.to_bytes()
            progress, _ = progress.with_batch(content)
            writer.add(Kind.BATCH, content)
        _write_red(red, writer)


def _write_snapshot(source: SnapshotSource, writer: BackupWriter) -> SnapshotProgress:
    progress = SnapshotProgress.begun(source.header_bytes)
    writer.add(Kind.HEADER, source.header_bytes)
    with shown("records", progress.header.records) as advance:
        while (table := progress.position.table) is not None:
            content = source.chunk(table, progress.position.after).to_bytes(source.id)
            progress, _ = progress.with_chunk(content)
            writer.add(Kind.CHUNK, content)
            advance(progress.records)
    while not progress.is_whole:
        content = source.batch(progress.position.line).to_bytes()
        progress, _ = progress.with_batch(content)
        writer.add(Kind.BATCH, content)
    return progress


def _write_red(red: Sequence[Record], writer: BackupWriter) -> None:
    for group in grouped(red):
        writer.add(Kind.OPEN, messages_to_bytes(group))
