"""What an exported log is like, as data: `schema.json` and the names below are what `corelkv export`,
`docs/export.md` and the readers share. `docs/export.md` describes the layout of an export.

The version changes when a field changes its type or meaning, or is removed; new fields do not change it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

__all__ = ["DIGEST_BYTES", "FIELDS", "FIRST_DIGEST", "SEGMENT_POSITIONS", "VERSION", "Column"]

SEGMENT_POSITIONS = 65_536
"""How many positions a directory of the export has. Readers that want a range of positions read only its
directories, and whatever needs neighbours in the order looks at one of them at a time."""

DIGEST_BYTES = 32
FIRST_DIGEST = bytes(DIGEST_BYTES)
"""The digest of an order without messages."""


class Column(NamedTuple):
    """A column. `type` is as Spark spells it."""

    type: str
    meaning: str


def _load() -> tuple[int, Mapping[str, Column]]:
    content = json.loads(resources.files(__name__).joinpath("schema.json").read_text())
    return content["version"], {name: Column(*column) for name, column in content["fields"].items()}


VERSION, FIELDS = _load()
