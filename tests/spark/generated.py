"""Synthetic logs for tests, made once for all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spark.generator import shape_of

SHAPE = shape_of(8_000, seed=7)


def journal(root: Path, node: str) -> list[dict[str, Any]]:
    """The records of a node, in the order of its files."""
    files = sorted((root / "data" / node / "journal").glob("journal-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def green_order(records: list[dict[str, Any]]) -> dict[int, str]:
    """The green messages of a journal by position; one position must not have two."""
    order: dict[int, str] = {}
    for record in records:
        if record["event"] == "green":
            for position, message_id in enumerate(record["ids"], record["position"]):
                assert order.setdefault(position, message_id) == message_id
    return order
