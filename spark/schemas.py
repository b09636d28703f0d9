"""The columns of every frame that is read, and of every frame that others are made from.

What is read has the columns of `kvstore.journal_schema` and `kvstore.log_schema`, and before them `cluster`, so
that one job can go through the logs of many clusters at once. It is the name after `cluster=` in a file's path, as
Spark and Hive name directories; files of a path without it belong to the cluster that has no name (""). The
journal's own field of that name, which only `started` has, is `cluster_name` here."""

from __future__ import annotations

from kvstore.journal_schema import SCHEMA
from kvstore.log_schema import FIELDS


class Columns(dict[str, str]):
    """Names of nullable columns in order, with their types as Spark spells them."""

    @property
    def ddl(self) -> str:
        """The structure as Spark takes it where it asks for a schema."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.items())


def columns(**types: str) -> Columns:
    return Columns(types)


CORRUPT = "corrupt"
"""The column that has the text of a line which is no JSON object."""

JOURNAL_LINES = columns(**{name: field.type for name, field in SCHEMA.fields.items()}, **{CORRUPT: "string"})
"""The lines of journals, as Spark's reader of JSON gives them."""

RECORDS = columns(
    cluster="string",
    **{"cluster_name" if name == "cluster" else name: field.type for name, field in SCHEMA.fields.items()},
)
"""The records of journals: one step of a node each."""

LOG_ROWS = columns(**{name: field.type for name, field in FIELDS.items()})
"""The rows of exported logs, as they are in the files."""

LOGS = columns(
    cluster="string",
    node="string",
    export="string",
    run="long",
    is_final="boolean",
    file="string",
    **{name: field.type for name, field in FIELDS.items()},
)
"""The messages of exported logs. `export` is the directory they were exported to, and `is_final` says whether the
row is one that a later export to the same directory keeps. Otherwise it is of the tail as the run of this number
found it; `run` is null for final rows. `file` is the file that has the row."""

LOG_FILES = columns(
    file="string", cluster="string", node="string", export="string", run="long", is_final="boolean"
)
"""The files of exported logs."""

MANIFESTS = columns(
    cluster="string",
    export="string",
    file="string",
    version="long",
    number="long",
    exported_ms="long",
    cluster_name="string",
    node="string",
    disk="string",
    generation="string",
    first="long",
    first_digest="string",
    final="long",
    final_digest="string",
    green="long",
    yellow="long",
    length="long",
    green_digest="string",
    committed="long",
    attempted="long",
    revision="long",
    bodies="boolean",
)
"""What each finished run of an export says of itself (docs/export.md). The manifest's own field `cluster` is
`cluster_name` here."""

MANIFEST_LINES = columns(
    **{
        "cluster" if name == "cluster_name" else name: kind
        for name, kind in MANIFESTS.items()
        if name not in ("cluster", "export", "file")
    }
)
"""Manifests, as they are in the files."""

MESSAGE_EVENTS = columns(
    cluster="string",
    node="string",
    incarnation="long",
    event="string",
    monotonic_ms="double",
    wall_ms="double",
    view="string",
    reason="string",
    id="string",
    clock="long",
    bytes="long",
    color="string",
    position="long",
    length="long",
    writes="long",
    revision="long",
)
"""One event of one message: `sent`, `received`, `recovered`, `logged`, `yellow`, `green`, `applied`, `demoted` and
`copies_sent` records, a row for each of their `ids`. `length` is that of the whole queue after the record."""

ANSWERS = columns(
    cluster="string",
    node="string",
    incarnation="long",
    monotonic_ms="double",
    wall_ms="double",
    id="string",
    color="string",
    first="long",
    count="long",
    outcome="string",
    revision="long",
)
"""What clients were told of a run of writes of one message: `acknowledged` records, a row for each run."""

TOLD = columns(
    cluster="string",
    worker="string",
    url="string",
    operation="string",
    key="string",
    time_ms="double",
    duration_ms="double",
    status="int",
    certainty="string",
    id="string",
    color="string",
    outcome="string",
    revision="long",
    error="string",
    idempotency_key="string",
    duplicate_outcome="string",
)
"""The writes of the load test's record (docs/loadtest.md), a row for each attempt; `id` is of the write. `url` is
the node that was asked, which the record calls `node`."""

TOLD_LINES = columns(
    kind="string",
    schema="long",
    lines="long",
    **{"node" if name == "url" else name: kind for name, kind in TOLD.items() if name != "cluster"},
    **{CORRUPT: "string"},
)
"""The lines of load tests' records, as Spark's reader of JSON gives them."""

SKIPPED = columns(cluster="string", file="string", what="string", count="long")
"""What was found and not read, and how many lines, rows or files of it there are."""

VIOLATIONS = columns(
    cluster="string",
    rule="string",
    position="long",
    id="string",
    nodes="array<string>",
    detail="string",
)
"""What the audit found: the rule that is broken, where, and at which nodes."""
