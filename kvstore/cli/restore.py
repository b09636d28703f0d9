"""`corelkv restore`: the disk of a node of a new cluster, made from a backup. `corelkv verify FILE`: whether a
backup is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from corel import CorelConfig, Lines
from corel.disk_errors import DiskError, DiskFull
from corel.lmdb_log import lock_directory
from kvstore.cli.backup_file import BackupContent, BackupFailed, read_backup, unusable
from kvstore.cli.output import Exit, UsageError, fail
from kvstore.cli.progress import progress as shown
from kvstore.cli.settings import NAME, NUMBER
from kvstore.node import (
    DamagedSnapshot,
    Header,
    Kind,
    SnapshotProgress,
    SnapshotTarget,
    begin_after,
    discard,
    settle,
)

_INCOMING = "incoming"

_LEFT_OVER = frozenset({_INCOMING, "incarnation", "incarnation.new", "lock"})
"""What a restore that was interrupted leaves, in the order in which it makes them."""

_NOT_OURS = frozenset({"lost+found"})
"""What a new file system has: its root is a data directory like any other."""

_MAP_SHARE = 4
"""How many times as large as what is in a backup the map of a disk is that is made from it. Address space costs
nothing, and pages that are half full take it twice."""

_MAP_STEP = 2**20
"""A map is a multiple of this, and so of the pages of every machine."""


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


def restore(path: Path, data: Path, node: str, cluster: str | None, map_bytes: str | None = None) -> int:
    """Makes the disk of a node, prints what is on it, and returns the exit status."""
    _check_name(node)
    given = None if map_bytes is None else _parsed_map_bytes(map_bytes)
    try:
        with _writing(data, given):
            _check_empty(data)
            discard(data)
            try:
                found, needed = _restored(path, data, node, cluster, given)
            except BaseException:
                with suppress(DiskError):  # what it was before says more
                    discard(data)
                raise
    except (BackupFailed, DiskError) as error:
        return fail(error, Exit.FAILED)
    print(f"{data} is the disk of node {node} of a new cluster: {_described(found)}")
    if needed > CorelConfig().map_bytes:
        print(f"It was made with a map of {needed:,} bytes: set log.map_bytes of every node to at least that.")
    print(
        "Restore every node of the cluster from this file, each with its own name, and start them without "
        "bootstrap."
    )
    return Exit.OK


def _restored(
    path: Path, data: Path, node: str, cluster: str | None, map_bytes: int | None
) -> tuple[BackupContent, int]:
    """Makes the disk; returns what was in the backup, and how large the map had to be."""
    target: SnapshotTarget | None = None
    name, size = "", 0

    def take(kind: bytes, content: bytes, progress: SnapshotProgress) -> None:
        nonlocal target, name, size
        if kind == Kind.HEADER:
            name, size = cluster or progress.header.cluster, map_bytes or _map_bytes(path, progress.header)
            target = SnapshotTarget(data, name, node, size)
            target.begin(content)
        elif target is not None and kind == Kind.CHUNK:
            target.put_chunk(content)
        elif target is not None:
            target.put_batch(content)
        advance(progress.records)

    try:
        with shown("records", None) as advance:
            found = read_backup(path, take)
        begin_after(data, node, _known(found))  # first: a node may start as soon as the disk is whole
        if target is not None:
            target.finish_new_cluster(found.open_messages)
    except DamagedSnapshot as error:
        raise unusable(path, error) from None
    finally:
        if target is not None:
            target.close()
    settle(data, name, node, size)
    return found, size


def _known(found: BackupContent) -> Lines:
    """Returns the lines of the source as if its messages that are not green were: their incarnations count,
    too."""
    more = {message.id.stream: message.id.sequence for message in found.open_messages}
    lines = found.progress.lines
    return replace(lines, streams=(*lines.streams, *more.items()))


@contextmanager
def _writing(data: Path, map_bytes: int | None) -> Iterator[None]:
    """Says of errors of the disk what to do about them here, where no node runs."""
    try:
        yield
    except OSError as error:
        raise BackupFailed(
            f"{data} cannot be written: {error.strerror}. It has to be a directory in which the user who runs the "
            "node, and who restores, may write. Mend that, and do it again."
        ) from None
    except DiskFull as error:
        if "log.map_bytes" not in str(error):  # it is the file system that is full
            raise
        raise BackupFailed(
            f"{data} has no room: the map is full{'' if map_bytes is None else f' with {map_bytes:,} bytes'}. "
            "Restore with more --map-bytes, and set log.map_bytes of every node to at least that."
        ) from None


# What is given


def _check_name(node: str) -> None:
    try:
        NAME.parse(node)
    except ValueError as error:
        raise UsageError(f"--node is {node!r}: {error}") from None


def _parsed_map_bytes(text: str) -> int:
    try:
        found: int = NUMBER.parse(text)
        CorelConfig(map_bytes=found)  # which knows how small it may be
    except ValueError as error:
        raise UsageError(f"--map-bytes is {text!r}: {error}") from None
    return found


def _map_bytes(path: Path, header: Header) -> int:
    """Returns how large a map has room for what is in a backup, and for a node that goes on with it. The header
    says how large the tables were on the source's disk, and the messages after them are in the file."""
    size = sum(table.bytes for table in header.tables) + path.stat().st_size
    return max(CorelConfig().map_bytes, (_MAP_SHARE * size // _MAP_STEP + 1) * _MAP_STEP)


def _check_empty(data: Path) -> None:
    """Raises unless there is nothing in a directory but what an interrupted restore has left. Raises `DiskError`
    if a restore to it is under way."""
    if not data.exists():
        return
    if not data.is_dir() or {path.name for path in data.iterdir()} - _LEFT_OVER - _NOT_OURS:
        raise UsageError(
            f"{data} is not empty, and nothing in it has been changed. Restore to a new directory; if you mean to "
            "replace what this node had, move that away first."
        )
    for directory in (data, data / _INCOMING):
        if (directory / "lock").exists():
            os.close(lock_directory(directory))


def _described(found: BackupContent) -> str:
    progress, header = found.progress, found.progress.header
    made = datetime.fromtimestamp(header.created_ms / 1_000.0, UTC)
    more = f", and {len(found.open_messages):,} that are not green" if found.open_messages else ""
    return (
        f"the first {progress.lines.green:,} messages of cluster {header.cluster}{more}, {progress.records:,} "
        f"records, as node {header.node} had them on {made:%Y-%m-%d %H:%M:%S} UTC"
    )
