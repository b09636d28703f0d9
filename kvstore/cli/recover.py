"""`corelkv recover`: half of the votes or more are lost for good, so there will be no primary component any more.

It makes a backup from the best disk that is left, from which a new cluster is restored. No disk is changed. What
is final on two disks has to be the same; if it is not, nothing is written: choosing is left to a person, who gives
only the directories that are to count."""

from __future__ import annotations

import itertools
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

_COPY = "incoming"
"""Where a copy is, in a data directory, that a node takes over from another."""

_SHOWN_IDS_MAX = 5
"""How many ids a sentence has at most. Those of all messages that are lost are in the file of `--lost`."""


def recover(directories: Sequence[Path], out: Path, is_agreed: bool, lost: Path | None = None) -> int:
    """Shows what is left, asks, writes the file, and returns the exit status. `lost` gets the ids of all messages
    that are lost, before it asks."""
    try:
        with _locked(directories):
            survivors = [_surveyed(directory) for directory in directories]
            _check_one_cluster(survivors)
            survivors = _with_orders(survivors)
            _check_one_order(survivors)
            chosen = best(survivors)
            _show(survivors, chosen)
            if lost is not None:
                _write_ids(lost, lost_ids(survivors, chosen))
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
                locks.extend(lock_directory(place) for place in _places(directory))
            except OSError as error:
                raise BackupFailed(
                    f"{directory} cannot be locked: {error.strerror}. Copy it to a disk that can be written."
                ) from None
        yield
    finally:
        for lock in locks:
            os.close(lock)


def _places(directory: Path) -> list[Path]:
    """Returns where the disk of a node may be: a node that starts there puts a copy that is whole into its
    place."""
    copy = directory / _COPY
    return [directory, copy] if (copy / "data.mdb").exists() else [directory]


def _surveyed(directory: Path) -> Survivor:
    """Reads a disk whole, since damage must be known before it is chosen."""

    def work(tell: Tell) -> None:
        found = survey(directory)
        verify(Path(found.directory), lambda done, total: tell(done=done, total=total))
        tell(survivor=found._asdict())

    return Survivor(**read_apart(directory, "records", work)["survivor"])


def _with_orders(survivors: Sequence[Survivor]) -> list[Survivor]:
    """Reads what is to be compared: of each disk the digests at the lines that it has in common with the others,
    and what is green there beyond the best."""
    chosen = best(survivors)
    lines: dict[str, list[int]] = {survivor.directory: [] for survivor in survivors}
    for one, other in itertools.combinations(survivors, 2):
        if (line := one.common_line(other)) is not None:
            lines[one.directory].append(line)
            lines[other.directory].append(line)
    return [
        _with_order(survivor, lines[survivor.directory], survivor.green if survivor is chosen else chosen.green)
        for survivor in survivors
    ]


def _with_order(survivor: Survivor, lines: Sequence[int], first: int) -> Survivor:
    def work(tell: Tell) -> None:
        found = survivor.with_order(lines, first, lambda done, total: tell(done=done, total=total))
        tell(survivor=found._asdict())

    return Survivor(**read_apart(Path(survivor.directory), "messages", work)["survivor"])


def _check_one_order(survivors: Sequence[Survivor]) -> None:
    for one, other in itertools.combinations(survivors, 2):
        if (line := one.contradicts(other)) is not None:
            raise BackupFailed(
                f"the first {line:,} messages on the disks in {one.directory} and {other.directory} are final on "
                "both, and are not the same. One of them is an older copy that was used again, or has another "
                "history; nothing here can tell which. Nothing was written. Keep both: `corelkv export` both, and "
                "`corelkv analyze` names the first message that differs. To begin with one of them all the same, "
                "give it without the other."
            )


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
    found += [
        f"{survivor.directory} is the disk of {survivor.node}: a copy of another's, whole, with its own messages "
        "that are not green. Its node would have begun with it."
        for survivor in survivors
        if Path(survivor.directory).name == _COPY
    ]
    for other in survivors:
        found += [] if other is chosen else _told_of(other, chosen)
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


def _told_of(other: Survivor, chosen: Survivor) -> list[str]:
    """Returns what another disk has and the chosen one has not, in sentences."""
    found = []
    more = chosen.difference(other)
    if other.green and chosen.common_line(other) is None:
        found.append(
            f"The disks of {other.node} and {chosen.node} keep no part of the order in common: whether they agree "
            "CANNOT be compared."
        )
    if more.final:
        found.append(
            f"{len(more.final):,} messages are FINAL on the disk of {other.node}, and not on that of "
            f"{chosen.node}: they are LOST ({_some(more.final)})."
        )
    if more.moved:
        found.append(
            f"{len(more.moved):,} messages are FINAL on the disk of {other.node}, and get ANOTHER PLACE in the "
            f"new cluster ({_some(more.moved)})."
        )
    if more.unnamed:
        found.append(
            f"The disk of {other.node} had {more.unnamed:,} more final messages, which are no longer in its log: "
            f"those that the disk of {chosen.node} does not have are LOST, and cannot be listed."
        )
    if more.open:
        found.append(
            f"{len(more.open):,} messages on the disk of {other.node} are not green, and not on that of "
            f"{chosen.node}: they are LOST ({_some(more.open)})."
        )
    return found


def _some(ids: Sequence[str]) -> str:
    """Returns a few ids, and how many more there are."""
    more = len(ids) - _SHOWN_IDS_MAX
    return ", ".join(ids[:_SHOWN_IDS_MAX]) + (f" and {more:,} more" if more > 0 else "")


def lost_ids(survivors: Sequence[Survivor], chosen: Survivor) -> list[str]:
    """Returns the ids of all messages that other survivors have and the chosen one does not have, once each."""
    others = (other for other in survivors if other is not chosen)
    return list(dict.fromkeys(one for other in others for one in chosen.difference(other).lost))


def _write_ids(path: Path, ids: Sequence[str]) -> None:
    try:
        path.write_text("".join(f"{one}\n" for one in ids), encoding="utf-8")
    except OSError as error:
        raise BackupFailed(f"{path} cannot be written: {error.strerror}. Mend that, and do it again.") from None
    print(f"{path} has the ids of the {len(ids):,} messages that are known to be lost.")


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
