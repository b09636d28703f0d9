"""Finds what nodes and load tests have written, below any directories, on any file system that Hadoop knows.

It goes through Hadoop's `FileSystem` in the JVM of the session, one directory at a time, at most `DEPTH_MAX`
levels deep. Spark's other processes must see the files under the same paths as this one does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

DEPTH_MAX = 8
"""How many levels below a given directory are looked at."""

_DATA = (".jsonl", ".parquet")
_FINISHED = re.compile(r"journal-.*\.jsonl")
_UNFINISHED = re.compile(r"_journal-.*\.jsonl")
_MANIFEST = re.compile(r"\d+\.json")
_CLUSTER = re.compile(r"/cluster=([^/]*)(?=/)")
_TAIL = re.compile(r"/tail/export=(\d+)/[^/]+$")
_FINAL = re.compile(r"/log/segment=\d+/[^/]+$")


class SourceError(Exception):
    """A directory that was given cannot be read; the text says which, and why."""


class Found(NamedTuple):
    """A file."""

    path: str
    bytes: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(slots=True)
class ExportFiles:
    """The files of one exported log."""

    manifests: list[str] = field(default_factory=list)
    final: list[str] = field(default_factory=list)
    tails: dict[int, list[str]] = field(default_factory=dict)
    """By the number of the run that wrote them."""


@dataclass(slots=True)
class Sources:
    """Everything that was found. All paths are URIs."""

    journals: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    """Journal files that are being written, or were when their node was killed."""
    exports: dict[str, ExportFiles] = field(default_factory=dict)
    """By directory."""
    told: list[str] = field(default_factory=list)
    """Records of load tests."""
    bytes: int = 0
    """Of all journals, exports and records together."""

    @property
    def is_empty(self) -> bool:
        return not (self.journals or self.unfinished or self.exports or self.told)


def find(spark: SparkSession, directories: Iterable[str]) -> Sources:
    """Raises `SourceError` if a directory is not there or cannot be read."""
    sources = Sources()
    seen: set[str] = set()
    for directory in directories:
        for one in _walk(spark, directory):
            if one.path not in seen:
                seen.add(one.path)
                _sort_in(one, sources)
                sources.bytes += one.bytes if one.name.endswith(_DATA) else 0
    finished = set(sources.journals)
    sources.unfinished = [path for path in sources.unfinished if finished_name(path) not in finished]
    sources.exports = {root: files for root, files in sources.exports.items() if files.manifests or files.final}
    return sources


def finished_name(unfinished: str) -> str:
    """Returns the path that an unfinished journal file gets when it is finished."""
    directory, _, name = unfinished.rpartition("/")
    return f"{directory}/{name.removeprefix('_')}"


def cluster_of(path: str) -> str:
    """Returns the name of the cluster that a file belongs to, by the nearest directory that says so; "" if none
    does."""
    names = _CLUSTER.findall(path)
    return names[-1] if names else ""


def is_local(path: str) -> bool:
    return path.startswith("file:")


def _sort_in(one: Found, sources: Sources) -> None:
    if _FINISHED.fullmatch(one.name):
        sources.journals.append(one.path)
    elif _UNFINISHED.fullmatch(one.name):
        sources.unfinished.append(one.path)
    elif one.directory.endswith("/exports") and _MANIFEST.fullmatch(one.name):
        _export(one.directory.rpartition("/")[0], sources).manifests.append(one.path)
    elif one.name.startswith(("_", ".")):
        return
    elif one.name.endswith(".parquet") and (tail := _TAIL.search(one.path)):
        _export(one.path[: tail.start()], sources).tails.setdefault(int(tail[1]), []).append(one.path)
    elif one.name.endswith(".parquet") and (final := _FINAL.search(one.path)):
        _export(one.path[: final.start()], sources).final.append(one.path)
    elif one.directory.endswith("/record") and one.name.endswith(".jsonl"):
        sources.told.append(one.path)


def _export(root: str, sources: Sources) -> ExportFiles:
    return sources.exports.setdefault(root, ExportFiles())


def _walk(spark: SparkSession, directory: str) -> Iterator[Found]:
    """Yields all files, in the order of their paths."""
    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark._jsparkSession.sessionState().newHadoopConf()
    path: Any = jvm.org.apache.hadoop.fs.Path(directory)
    try:
        system: Any = path.getFileSystem(hadoop)
        start: Any = system.getFileStatus(path)
        yield from _below(system, start, DEPTH_MAX)
    except Exception as error:
        raise SourceError(f"cannot read {directory}: {_reason(error)}") from error


def _below(system: Any, status: Any, depth: int) -> Iterator[Found]:
    if not status.isDirectory():
        yield Found(status.getPath().toString(), int(status.getLen()))
        return
    if depth < 0:
        return
    for one in sorted(system.listStatus(status.getPath()), key=lambda each: str(each.getPath().getName())):
        if not (one.isDirectory() and one.getPath().getName().startswith((".", "_"))):
            yield from _below(system, one, depth - 1)


def _reason(error: Exception) -> str:
    """Returns the first line of what went wrong, without the JVM's stack."""
    cause = getattr(error, "java_exception", None)
    text = cause.getMessage() if cause is not None else str(error)
    return str(text).partition("\n")[0]
