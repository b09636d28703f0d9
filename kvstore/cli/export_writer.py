"""The directory of an exported log, and one run that adds to it. `docs/export.md` describes the layout.

A run takes the directory for itself, finds out where the one before it ended (also one that was killed: files
that it finished stay), takes the final rows from there on, then the tail, and writes its manifest last. It does
not know where rows come from."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from kvstore.cli.export_files import RowFile, make_directory, metadata_of, write_whole
from kvstore.log_schema import FIRST_DIGEST, SEGMENT_POSITIONS, VERSION
from kvstore.node import Row

_METADATA = b"corelkv"
_PART = re.compile(r"part-(\d{12})-(\d{12})\.parquet")
_NODE = re.compile(r"[A-Za-z0-9_-]+")
_UNBOUND = re.compile(r"0*")


class ExportRefused(Exception):
    """The export cannot go on in this directory. The message says what to do."""


class Source(NamedTuple):
    """Which log is exported."""

    cluster: str
    node: str
    disk: str
    """The uuid of the node's disk."""
    generation: str
    """The generation of the cluster that the node is bound to, in hexadecimal; zeros if it is not yet."""


class Figures(NamedTuple):
    """Where the log was when it was read. A line is a number of messages from the start of the queue."""

    green: int
    yellow: int
    length: int
    green_digest: bytes
    """The node's own digest of its green order."""
    committed: int
    attempted: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one run of the export found. `docs/export.md` describes the fields."""

    version: int
    number: int
    exported_ms: int
    cluster: str
    node: str
    disk: str
    generation: str
    first: int
    first_digest: str
    final: int
    final_digest: str
    green: int
    yellow: int
    length: int
    green_digest: str
    committed: int
    attempted: int
    revision: int
    bodies: bool


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the order, and what is known of the order before it."""

    line: int = 0
    digest: str = FIRST_DIGEST.hex()
    """The digest of the last row before it."""
    revision: int = 0
    """The revision of the state after it."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Place:
        """Reads a place; what else earlier versions wrote of it is ignored."""
        return cls(content["line"], content["digest"], content["revision"])


class ExportWriter:
    """One run of the export of one log, as a context manager. `place` says where it goes on: `add` takes the rows
    of the positions from there on, and `finish` the rest. Raises `ExportRefused` if what is there is not of the
    same log, and `OSError` if it cannot be written; the next run goes on then."""

    def __init__(self, out: Path, source: Source, bodies: bool = True, beginning: Place | None = None) -> None:
        """`beginning` is where the log begins; an export that is continued may have begun earlier."""
        if not _NODE.fullmatch(source.node):
            raise ExportRefused(f"a node cannot be called {source.node!r}.")
        self.directory = out / source.node
        self._source = source
        self._bodies = bodies
        self._file: RowFile | None = None
        self._first = 0
        """The position of the first row in `_file`."""
        self.rows = self.bytes_written = 0
        """How many rows this run has written, and how many bytes in finished files."""
        make_directory(self.directory)
        self._lock = _locked(self.directory)
        try:
            self.earlier = _last_manifest(self.directory)
            """The manifest of the run before, if there is one."""
            self._beginning = beginning or Place()
            self._remove_left_over()
            self._begin_at(self._last_place())
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> ExportWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.abandon()
        os.close(self._lock)

    # Where it goes on

    def _begin_at(self, place: Place) -> None:
        self.place = place
        self.digest = bytes.fromhex(place.digest)
        """The digest of the last final row."""
        self.revision = place.revision
        self.line = place.line
        """How many final rows there are."""

    @property
    def _number(self) -> int:
        return 1 if self.earlier is None else self.earlier.number + 1

    def _remove_left_over(self) -> None:
        """Removes what a run that was killed had not finished, and the tails that have no manifest."""
        for pattern in ("exports/_*", "log/*/_*", "tail/*/_*"):
            for path in self.directory.glob(pattern):
                path.unlink()
        for path in self.directory.glob("tail/export=*"):
            if int(path.name.partition("=")[2]) >= self._number:
                shutil.rmtree(path)

    def _last_place(self) -> Place:
        """Returns where the finished files end. Checks that they are all there, and of the same log."""
        parts = sorted(self._parts())
        if parts:
            self._beginning = self._read(parts[0][2], "beginning")
        elif (earlier := self.earlier) is not None:  # which had no final rows: the next ones must follow it, too
            self._beginning = Place(earlier.first, earlier.first_digest, earlier.revision)
        end, last = self._beginning.line, None
        for first, after, path in parts:
            if first != end:
                raise ExportRefused(_not_whole(self.directory, f"positions {end} to {first - 1} are missing"))
            end, last = after, path
        place = self._beginning if last is None else self._read(last, "place")
        if place.line != end:
            raise ExportRefused(_not_whole(self.directory, f"{last} says that it ends at {place.line}"))
        if self.earlier is not None:
            self._check_source(Source(*(getattr(self.earlier, name) for name in Source._fields)))
            if self.earlier.final > end:
                missing = f"positions {end} to {self.earlier.final - 1} are missing"
                raise ExportRefused(_not_whole(self.directory, missing))
            if self.earlier.final == end and self.earlier.final_digest != place.digest:
                raise ExportRefused(_not_whole(self.directory, f"{last} is not the file that was written"))
        return place

    def _parts(self) -> Iterator[tuple[int, int, Path]]:
        """Yields the first position of each finished file of final rows, the one after its last, and its path."""
        for path in self.directory.glob("log/segment=*/part-*.parquet"):
            if found := _PART.fullmatch(path.name):
                yield int(found[1]), int(found[2]) + 1, path

    def _read(self, part: Path, what: str) -> Place:
        """Reads a place from the metadata of a file."""
        try:
            content = json.loads(metadata_of(part)[_METADATA])
            source, place = Source(*content["source"]), Place.of(content.get(what) or asdict(Place()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ExportRefused(_not_whole(self.directory, f"{part} cannot be read: {error}")) from None
        self._check_source(source)
        return place

    def _check_source(self, earlier: Source) -> None:
        """Raises if the rows that are there are of another log. A generation that was not known yet may be."""
        if _UNBOUND.fullmatch(earlier.generation):
            earlier = earlier._replace(generation=self._source.generation)
        for name, before, now in zip(Source._fields, earlier, self._source, strict=True):
            if before != now:
                raise ExportRefused(
                    f"{self.directory} has the log of {name} {before}, and this one is of {name} {now}. Export it "
                    "to another directory; both can be analysed together."
                )

    # Rows

    def add(self, row: Row) -> None:
        """Adds the next final row."""
        if row["position"] != self.line:
            raise ValueError(f"position {row['position']} cannot follow {self.line - 1}")
        if self._file is None:
            self._first = self.line
            self._file = RowFile(self._segment(self.line) / f"_part-{self._first:012}.parquet")
        self._file.add(self._without_body(row))
        self.line += 1
        self.digest, self.revision = row["digest"], row["revision"]
        self.rows += 1
        if self.line % SEGMENT_POSITIONS == 0:
            self._finish_part()

    def _segment(self, position: int) -> Path:
        return self.directory / "log" / f"segment={position // SEGMENT_POSITIONS}"

    def _without_body(self, row: Row) -> Row:
        return row if self._bodies else {**row, "body": None}

    def _finish_part(self) -> None:
        if self._file is None:
            return
        last = self.line - 1
        path = self._segment(last) / f"part-{self._first:012}-{last:012}.parquet"
        place = Place(self.line, self.digest.hex(), self.revision)
        metadata = self._metadata(place=asdict(place), beginning=asdict(self._beginning))
        self.bytes_written += self._file.finish(path, metadata)
        self._file = None

    def _metadata(self, **more: Any) -> dict[bytes, bytes]:
        return {_METADATA: json.dumps({"version": VERSION, "source": list(self._source), **more}).encode()}

    # The end

    def finish(self, figures: Figures, tail: Iterable[Row], read_ms: int | None = None) -> Manifest:
        """Writes the rows after the final ones, and the manifest. Returns the manifest. `read_ms` is when the log
        was as it was exported: just now if it is not given."""
        self._finish_part()
        self._write_tail(tail)
        manifest = Manifest(
            version=VERSION,
            number=self._number,
            exported_ms=time.time_ns() // 1_000_000 if read_ms is None else read_ms,
            **self._source._asdict(),
            first=self._beginning.line,
            first_digest=self._beginning.digest,
            final=self.line,
            final_digest=self.digest.hex(),
            **{**figures._asdict(), "green_digest": figures.green_digest.hex()},
            revision=self.revision,
            bodies=self._bodies,
        )
        path = self.directory / "exports" / f"{manifest.number:06}.json"
        write_whole(path, json.dumps(asdict(manifest), indent=2) + "\n")
        return manifest

    def _write_tail(self, tail: Iterable[Row]) -> None:
        directory = self.directory / "tail" / f"export={self._number:06}"
        end = self.line
        for row in tail:
            if row["position"] != end:
                raise ValueError(f"position {row['position']} cannot follow {end - 1}")
            self._file = self._file or RowFile(directory / f"_part-{self.line:012}.parquet")
            self._file.add(self._without_body(row))
            end += 1
            self.rows += 1
        if self._file is not None:
            path = directory / f"part-{self.line:012}-{end - 1:012}.parquet"
            self.bytes_written += self._file.finish(path, self._metadata())
            self._file = None


def _locked(directory: Path) -> int:
    descriptor = os.open(directory / "_lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ExportRefused(f"another export to {directory} is under way. Wait for it to end.") from None
    return descriptor


def _last_manifest(directory: Path) -> Manifest | None:
    paths = sorted(directory.glob("exports/[0-9]*.json"))
    if not paths:
        return None
    try:
        content = json.loads(paths[-1].read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise ExportRefused(
                f"{paths[-1]} is of version {content['version']}, and this version of corelkv writes {VERSION}. "
                "Export to another directory."
            )
        return Manifest(**{field.name: content[field.name] for field in fields(Manifest)})
    except (ValueError, KeyError, TypeError) as error:
        raise ExportRefused(_not_whole(directory, f"{paths[-1]} cannot be read: {error}")) from None


def _not_whole(directory: Path, why: str) -> str:
    return f"{directory} is not as the export left it: {why}. Export to another directory."
