"""A message of the log as a row of an exported log: the columns of `kvstore/log_schema/schema.json`.

This is a function of what a log has of the message, so that every log can be exported, also one that is not on a
disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from corel import Color, Record
from kvstore.store import (
    Append,
    Batch,
    Increment,
    Operation,
    Outcome,
    Put,
    Verdict,
    Write,
    WriteError,
    decode_batch,
    decode_write,
)

Row: TypeAlias = dict[str, Any]
"""The value of each column by its name."""


def exported_row(
    position: int,
    record: Record,
    color: Color,
    outcomes: Sequence[Outcome] | None,
    revision: int | None,
    previous_digest: bytes,
    with_body: bool = True,
) -> Row:
    """Returns the row of a message. `outcomes` is what became of its writes, None if that is not final;
    `revision` is that of the green state after it (`revision_after`), None in the same case. `previous_digest` is
    the digest of the row before it, or `FIRST_DIGEST`. Raises `ValueError` if there are more or fewer outcomes
    than writes."""
    (sender, incarnation), sequence = record.id
    name, body_digest = str(record.id), sha256(record.body).digest()
    return {
        "position": position,
        "id": name,
        "sender": sender,
        "incarnation": incarnation,
        "sequence": sequence,
        "clock": record.clock,
        "view": str(record.view),
        "primary": record.primary,
        "color": str(color),
        "arrival": record.arrival,
        "body": record.body if with_body else None,
        "body_bytes": len(record.body),
        "body_sha256": body_digest,
        "digest": sha256(previous_digest + name.encode() + body_digest).digest(),
        **_content(record.body, outcomes),
        "revision": revision,
    }


def revision_after(revision: int, outcomes: Iterable[Outcome]) -> int:
    """Returns the revision of the green state after a message with these outcomes, if it was `revision` before."""
    for outcome in outcomes:
        if outcome.verdict is Verdict.APPLIED and outcome.revision is not None:
            revision = outcome.revision
    return revision


def _content(body: bytes, outcomes: Sequence[Outcome] | None) -> Row:
    """Returns the columns that tell what is in a body: all null if it is not a batch of writes."""
    try:
        batch = decode_batch(body)
        writes = [decode_write(data) for data in batch.writes]
    except WriteError:
        names = ("accepted_ms", "expires", "basis_line", "basis_revision", "basis_known", "writes")
        return dict.fromkeys(names)
    known = [None] * len(writes) if outcomes is None else outcomes
    return {
        "accepted_ms": batch.accepted_ms,
        "expires": batch.expires,
        **_basis(batch),
        "writes": [_write(write, outcome) for write, outcome in zip(writes, known, strict=True)],
    }


def _basis(batch: Batch) -> Row:
    if batch.basis is None:
        return {"basis_line": None, "basis_revision": None, "basis_known": None}
    revision, known, line = batch.basis
    return {"basis_line": line, "basis_revision": revision, "basis_known": dict(known)}


def _write(write: Write, outcome: Outcome | None) -> Row:
    row: Row = {
        "operations": [_operation(one) for one in write.then],
        "otherwise": None if write.otherwise is None else [_operation(one) for one in write.otherwise],
        "conditions": len(write.conditions),
        "idempotency_key": write.idempotency_key,
        "merge": str(write.merge),
        "outcome": None,
        "revision": None,
        "reason": None,
        "first": None,
    }
    if outcome is not None:
        row["outcome"], row["revision"] = str(outcome.verdict), outcome.revision
        row["reason"], row["first"] = str(outcome.why) or None, outcome.first_id or None
    return row


def _operation(operation: Operation) -> Row:
    return {
        "kind": type(operation).__name__.lower(),
        "key": operation.key,
        "value_bytes": len(operation.value) if isinstance(operation, (Put, Append)) else None,
        "by": operation.by if isinstance(operation, Increment) else None,
    }
