"""What a record of the journal can say, as data: `schema.json` is what the writer, `docs/journal.md` and the
readers share.

All events have their fields in one table of columns, so that one flat structure with nullable columns reads every
journal. The version changes when a field changes its type or meaning, or is removed; new fields and new events do
not change it, and a reader ignores those that it does not know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

__all__ = ["SCHEMA", "Event", "Field", "Schema"]


class Field(NamedTuple):
    """A column. `type` is `string`, `long`, `double`, or an array of the first two, as Spark spells them."""

    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Event:
    """A kind of record. Each of its fields may be absent, which means null."""

    layer: str
    """Which layer of a node tells it."""
    fields: tuple[str, ...]
    meaning: str
    is_packet_level: bool = False
    """Whether it is written only with `transport.journal_packets`."""


@dataclass(frozen=True, slots=True)
class Schema:
    version: int
    fields: Mapping[str, Field]
    common: tuple[str, ...]
    """The fields that every record has."""
    events: Mapping[str, Event]


def _load() -> Schema:
    content = json.loads(resources.files(__name__).joinpath("schema.json").read_text())
    return Schema(
        content["version"],
        {name: Field(*field) for name, field in content["fields"].items()},
        tuple(content["common"]),
        {name: Event(**{**event, "fields": tuple(event["fields"])}) for name, event in content["events"].items()},
    )


SCHEMA = _load()
