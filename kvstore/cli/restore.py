"""`corelkv restore`: the disk of a node of a new cluster, made from a backup. `corelkv verify FILE`: whether a
backup is whole."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from corel import CorelConfig
from corel.disk_errors import DiskError
from kvstore.cli.backup_file import BackupContent, BackupFailed, read_backup
from kvstore.cli.output import Exit, UsageError, fail
from kvstore.cli.progress import progress as shown
from kvstore.cli.settings import NAME
from kvstore.node import Kind, SnapshotProgress, SnapshotTarget, begin_after, discard, settle

_LEFT_OVER = frozenset({"incoming", "incarnation"})
"""What a restore that was interrupted leaves."""


def verify_file(path: Path) -> int:
    """Prints whether a backup is whole, and returns the exit status."""
    total = path.stat().st_size
    done = 0

    def take(kind: bytes, content: bytes, progress: SnapshotProgress) -> None:
        nonlocal done
        done += len(content)
        advance(done)

    try:
        with shown("bytes", total) as advance:
            found = read_backup(path, take)
    except BackupFailed as error:
        return fail(error, Exit.FAILED)
    print(f"{path} is whole: {_described(found)}")
    return Exit.OK


def restore(path: Path, data: Path, node: str, cluster: str | None) -> int:
    """Makes the disk of a node, prints what is on it, and returns the exit status."""
    _check_name(node)
    _check_empty(data)
    target: SnapshotTarget | None = None
    map_bytes = CorelConfig().map_bytes

    def take(kind: bytes, content: bytes, progress: SnapshotProgress) -> None:
        nonlocal target
        if kind == Kind.HEADER:
            target = SnapshotTarget(data, cluster or progress.header.cluster, node, map_bytes)
            target.begin(content)
        elif target is not None and kind == Kind.CHUNK:
            target.put_chunk(content)
        elif target is not None:
            target.put_batch(content)
        advance(progress.records)

    try:
        with shown("records", None) as advance:
            found = read_backup(path, take)
        if target is not None:
            lines = target.finish_new_cluster(found.open_messages)
            target.close()
            begin_after(data, node, lines)
        settle(data, cluster or found.progress.header.cluster, node, map_bytes)
    except (BackupFailed, DiskError) as error:
        if target is not None:
            target.close()
        discard(data)
        return fail(error, Exit.FAILED)
    print(f"{data} is the disk of node {node} of a new cluster: {_described(found)}")
    print(
        "Restore every node of the cluster from this file, each with its own name, and start them without "
        "bootstrap."
    )
    return Exit.OK


def _check_name(node: str) -> None:
    try:
        NAME.parse(node)
    except ValueError as error:
        raise UsageError(f"--node is {node!r}: {error}") from None


def _check_empty(data: Path) -> None:
    if data.exists() and (not data.is_dir() or {path.name for path in data.iterdir()} - _LEFT_OVER):
        raise UsageError(
            f"{data} is not empty, and nothing in it has been changed. Restore to a new directory; if you mean to "
            "replace what this node had, move that away first."
        )
    discard(data)


def _described(found: BackupContent) -> str:
    progress, header = found.progress, found.progress.header
    made = datetime.fromtimestamp(header.created_ms / 1_000.0, UTC)
    more = f", and {len(found.open_messages):,} that are not green" if found.open_messages else ""
    return (
        f"the first {progress.lines.green:,} messages of cluster {header.cluster}{more}, {progress.records:,} "
        f"records, as node {header.node} had them on {made:%Y-%m-%d %H:%M:%S} UTC"
    )
