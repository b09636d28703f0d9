"""Generates `docs/export.md` from the schema: `python -m kvstore.log_schema.document > docs/export.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvstore.log_schema import FIELDS, SEGMENT_POSITIONS, VERSION


def render_markdown() -> str:
    """Returns the text of `docs/export.md`."""
    return "\n".join([_INTRODUCTION, *_render_layout(), _RUNS, *_render_columns(), "", *_render_manifest(), ""])


_INTRODUCTION = """# Exported logs

<!-- Generated: `python -m kvstore.log_schema.document > docs/export.md`. The source of the columns is
kvstore/log_schema/schema.json. -->

    corelkv export data/a data/b data/c --out logs

writes the log of each node as Parquet files, one row for each message of the queue. Together with the
[journals](journal.md) these are the replication logs that `spark/` analyses. It needs pyarrow
(`pip install 'corelkv[spark]'`).

The nodes may run, or be stopped; the directory of a stopped one may be on a file system that is mounted read-only.
The export reads LMDB as another process, registered as a reader, in short transactions: the node never waits for
it. It has to be run as a user who may write in the node's directory (LMDB's table of readers is there).
[performance.md](performance.md) has what it costs.

While it reads it checks the node's own checksums and digests of the order. A log that is damaged is not exported;
the message says what to do. `corelkv verify` finds more, because it also reads what is not part of the log.

`--no-bodies` leaves out the bodies of messages, and with them the values of keys. Keys remain, and digests do.
"""

_LAYOUT: Mapping[str, str] = {
    "log/segment=<n>/part-<first>-<last>.parquet": "the final rows of positions `first` to `last`, in order; `n` "
    f"is the position divided by {SEGMENT_POSITIONS:,}. These files never change; later runs add files",
    "tail/export=<number>/part-<first>-<last>.parquet": "all other messages as they were in that run: green ones "
    "whose outcomes were not on the node's disk yet, then yellow, then red ones. Positions go on. Absent if there "
    "were none",
    "exports/<number>.json": "the manifest of a run that has ended, written last",
}

_RUNS = """
A row is final if the node's state on disk has the writes of its message: then their outcomes are known, and the
row will never change. A node brings its state on disk up to date every second (`store.checkpoint_ms`), and when it
stops.

A directory `cluster=NAME` above `OUT/<node>` (`--out logs/cluster=NAME`) tells Spark to which cluster the logs
belong. Every row group says which positions it has, so a range of them is read without the rest.

## Again, and after an interruption

A second export to the same directory adds the final rows that are new, the tail as it is now, and a manifest. It
is refused if the log is not the one that was exported before: if cluster, node, disk or generation differ, if the
log has fewer green messages, or if the digest of the green order where the last export ended differs. Green
messages never change, so the last two mean an older copy of the directory, or a broken promise. Export such a log
to another directory: both can be audited.

A node deletes what is beyond `log.messages_kept` and `log.bytes_kept`. A first export begins where the log begins
(`first` of the manifest); if the node deletes what comes next before it is read, the export begins again, at most
five times. A later export continues the earlier ones without a gap, and is refused if what is between them has
been deleted: export to another directory then, and in future more often.

An export that is interrupted or killed, or that finds no room, is continued by the same command. At most one
segment is lost. Files that are being written have a `_` before their names, which Spark skips. A tail without a
manifest is of a run that was killed, and the next run removes it. Two exports to one directory at the same time
are refused. Manifests and tails of earlier runs stay, and may be deleted; the last manifest is needed to go on.
"""

_MANIFEST: Mapping[str, str] = {
    "version": "of the schema",
    "number": "counts the runs that have ended, from 1",
    "exported_ms": "when the log was read, by the wall clock, in milliseconds since 1970",
    "cluster": "the name of the cluster",
    "node": "the name of the node",
    "disk": "the uuid of the node's disk: a replaced disk has another",
    "generation": "the generation of the cluster, in hexadecimal; zeros before the node's first primary component",
    "first": "the position of the first row: 0, or where the log was cut when it was first exported",
    "first_digest": "the digest before it, in hexadecimal",
    "final": "how many rows are final: the rows of `log/` that were there when the run ended",
    "final_digest": "the digest of the last of them, in hexadecimal. Two nodes, or two exports months apart, of "
    "which `final` and `final_digest` are equal, have the same messages in the same order",
    "green": "the green line: how many messages were green",
    "yellow": "the yellow line",
    "length": "how many messages the queue had",
    "green_digest": "the digest of the order at the green line, in hexadecimal",
    "committed": "the last primary component that the node has committed to",
    "attempted": "the last one that it has attempted to establish",
    "revision": "the revision of the state after the final rows",
    "bodies": "whether the rows of this run have bodies",
}


def _render_layout() -> Iterator[str]:
    yield "## Layout\n\n| path in `OUT/<node>` | content |"
    yield "|---|---|"
    for path, content in _LAYOUT.items():
        yield f"| `{path}` | {content} |"


def _render_columns() -> Iterator[str]:
    yield f"## Columns\n\nVersion {VERSION}. Columns that a reader does not know are to be ignored.\n"
    yield "| column | type | what it is |"
    yield "|---|---|---|"
    for name, column in FIELDS.items():
        yield f"| `{name}` | `{column.type}` | {column.meaning} |"


def _render_manifest() -> Iterator[str]:
    yield "## The manifest\n\nA JSON object. Fields that a reader does not know are to be ignored.\n"
    yield "| field | what it is |"
    yield "|---|---|"
    for name, meaning in _MANIFEST.items():
        yield f"| `{name}` | {meaning} |"


if __name__ == "__main__":
    print(render_markdown(), end="")
