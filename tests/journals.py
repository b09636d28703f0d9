"""Journals in tests: to write one, and to read all files of a node as the reader's contract says
(docs/journal.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvstore.journal_schema import SCHEMA
from kvstore.node.journal import JournalWriter
from kvstore.node.journal_files import JournalFiles

Record = dict[str, Any]


def journal_in(
    directory: Path,
    bytes_max: int = 1 << 29,
    file_bytes_max: int = 1 << 24,
    file_s: float = 60.0,
    queue_messages_max: int = 1 << 18,
) -> JournalWriter:
    return JournalWriter(JournalFiles(directory, bytes_max, file_bytes_max, file_s), queue_messages_max)


@dataclass(slots=True)
class JournalRead:
    """All records of a directory, in order, and how many torn lines were skipped."""

    records: list[Record] = field(default_factory=list)
    torn: int = 0

    def of(self, *events: str) -> list[Record]:
        return [record for record in self.records if record["event"] in events]


def read_journal(directory: Path) -> JournalRead:
    """Reads the finished files, and the one that is being written. Only the last line of a file may be torn."""
    found = JournalRead()
    for file in sorted(directory.glob("*journal-*.jsonl"), key=lambda path: path.name.removeprefix("_")):
        *lines, rest = file.read_bytes().split(b"\n")
        found.records += map(json.loads, lines)
        found.torn += bool(rest)
    return found


def faults_of(record: Record) -> Iterator[str]:
    """Says what of a record is not as the schema has it."""
    missing = [name for name in SCHEMA.common if name not in record]
    event = SCHEMA.events.get(record.get("event", ""))
    if missing or event is None:
        yield f"{record} lacks {missing}, or is of an unknown event"
        return
    for name, value in record.items():
        if name not in (*SCHEMA.common, *event.fields):
            yield f"{record['event']} has no field {name}"
        elif value is not None and not _is_of(SCHEMA.fields[name].type, value):
            yield f"{record['event']}.{name} is {value!r}, not {SCHEMA.fields[name].type}"
    if record["version"] != SCHEMA.version:
        yield f"version {record['version']}"


def _is_of(kind: str, value: object) -> bool:
    if kind.startswith("array<"):
        element = kind.removeprefix("array<").removesuffix(">")
        return isinstance(value, list) and all(one is None or _is_of(element, one) for one in value)
    return type(value) is {"string": str, "long": int, "double": float}[kind]
