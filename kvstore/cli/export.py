"""`corelkv export`: the logs of nodes, which may be running, to Parquet files for Spark.

`docs/export.md` describes what is written."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corel.disk_errors import Truncated
from kvstore.cli.output import Exit, UsageError, fail, print_json_line
from kvstore.cli.reading_process import ReadingFailed, Tell, read_apart
from kvstore.log_schema import DIGEST_BYTES
from kvstore.node import LogExport, Row

if TYPE_CHECKING:
    from kvstore.cli.export_writer import ExportWriter

_PROGRESS_STEP = 1_000
"""After how many messages progress is told."""

ATTEMPTS_MAX = 5
"""How often an export begins when the node truncates what was to be read next. A node truncates with its
checkpoints, about once a second, so the next attempt has nearly a second for what the first had a moment for. Each
begins where the log begins by then, if nothing was exported before."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


def export(directories: Sequence[Path], out: Path, bodies: bool, as_json: bool) -> int:
    """Exports the logs one after the other, prints a line for each, and returns the exit status. A log that cannot
    be exported does not keep the others from it."""
    if find_spec("pyarrow") is None:
        return fail("to export, pyarrow is needed: pip install 'corelkv[spark]'", Exit.FAILED)
    status = Exit.OK
    for directory in directories:
        began = time.monotonic()
        try:
            found = read_apart(directory, "messages", partial(_export, directory, out, bodies))
        except UsageError as error:
            status = fail(error, Exit.USAGE)
        except ReadingFailed as error:
            status = fail(error, Exit.FAILED)
        else:
            _print(found | {"seconds": round(time.monotonic() - began, 3)}, as_json)
    return status


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json_line(found)
        return
    print(
        "{node}: final {final:,} ({new_final:,} new), green {green:,}, length {length:,} messages; "
        "{bytes:,} bytes in {seconds:.1f} s, in {directory}".format(**found),
        flush=True,
    )


# In a process of its own


def _export(directory: Path, out: Path, bodies: bool, tell: Tell) -> None:
    for _ in range(ATTEMPTS_MAX):
        try:
            return _export_once(directory, out, bodies, tell)
        except Truncated as error:
            first = error.first
    raise ReadingFailed(
        f"the node of {directory} truncates its log, up to {first:,} by now, sooner than it is read here: "
        f"{ATTEMPTS_MAX} attempts were overtaken. Give the node more log.messages_kept and log.bytes_kept, or "
        "export when less is written."
    )


def _export_once(directory: Path, out: Path, bodies: bool, tell: Tell) -> None:
    """Exports the log as it is now. Raises `Truncated` if the node deletes what is to be read next. The finished
    files of an attempt that ends like that stay, and the next one has to follow them without a gap."""
    from kvstore.cli.export_writer import ExportRefused, ExportWriter, Place, Source  # which need pyarrow

    read_ms = time.time_ns() // 1_000_000
    log = LogExport(directory)
    try:
        source = Source(log.cluster, log.node, log.disk, log.generation.hex())
        line, digest, revision = log.beginning()
        with ExportWriter(out, source, bodies, Place(line, digest.hex(), revision)) as writer:
            _check_continues(log, writer, directory)
            _write(log, writer, bodies, read_ms, tell)
    except ExportRefused as error:
        raise ReadingFailed(error) from None
    except OSError as error:
        raise ReadingFailed(_explained(error, out)) from None
    finally:
        log.close()


def _write(log: LogExport, writer: ExportWriter, bodies: bool, read_ms: int, tell: Tell) -> None:
    from kvstore.cli.export_writer import Figures

    first, lines = writer.line, log.lines
    rows = _counted(log.rows(first, writer.revision, writer.digest, bodies), log.length - first, tell)
    for row in islice(rows, log.final - first):
        writer.add(row)
    figures = Figures(lines.green, log.yellow, log.length, lines.green_digest, lines.committed, lines.attempted)
    manifest = writer.finish(figures, rows, read_ms)
    tell(
        **asdict(manifest),
        directory=str(writer.directory),
        new_final=manifest.final - first,
        bytes=writer.bytes_written,
    )


def _counted(rows: Iterable[Row], total: int, tell: Tell) -> Iterable[Row]:
    """Yields the rows, and tells how many there have been."""
    for done, row in enumerate(rows):
        if done % _PROGRESS_STEP == 0:
            tell(done=done, total=total)
        yield row


def _check_continues(log: LogExport, writer: ExportWriter, directory: Path) -> None:
    """Raises if the log does not continue what was exported before: green messages never change."""
    cut = log.lines.cut
    if writer.line < cut:
        raise ReadingFailed(
            f"{directory} begins at message {cut:,} by now, and {writer.directory} ends at {writer.line:,}: what "
            "is between them has been truncated here. Export this log to another directory, and in future more "
            "often than log.messages_kept messages."
        )
    known = [(writer.line, writer.digest)]
    if writer.earlier is not None and len(writer.earlier.green_digest) == 2 * DIGEST_BYTES:
        known.append((writer.earlier.green, bytes.fromhex(writer.earlier.green_digest)))
    for line, digest in known:
        if line < cut:
            continue  # it was compared when it was exported, and cannot be now
        if line > log.lines.green or writer.line > log.final:
            raise ReadingFailed(
                f"{directory} has {log.lines.green:,} green messages, and {line:,} of this disk are in "
                f"{writer.directory}: it is an older copy. Export the node's own directory, or this one to "
                "another directory."
            )
        if line and not log.has_order(line, digest):
            raise ReadingFailed(
                f"the first {line:,} green messages of {directory} are not those that were exported to "
                f"{writer.directory} before, and green messages never change. Keep both, and export this one "
                "to another directory: `corelkv analyze` compares them."
            )


def _explained(error: OSError, out: Path) -> str:
    what = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _FULL:
        return f"no room in {out}: {what}. Make room and export again: it goes on where it was."
    return f"{out} cannot be written: {what}. Mend that and export again: it goes on where it was."
