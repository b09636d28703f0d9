"""A message of the log as a row: every column, from what the log has of it."""

from __future__ import annotations

from hashlib import sha256

import pytest

from corel import Color, MessageId, Record
from kvstore.log_schema import FIELDS, FIRST_DIGEST
from kvstore.node import exported_row, revision_after
from kvstore.store import (
    Append,
    Basis,
    Delete,
    Get,
    Increment,
    Merge,
    Operation,
    Outcome,
    Put,
    RevisionIs,
    Verdict,
    Why,
    Write,
    encode_write,
)
from kvstore.store.write_codec import encode_batch
from transport import Machine, ViewId


def record(body: bytes) -> Record:
    return Record(7, MessageId(Machine("b", 12), 3), 99, ViewId(5, "a", 1), 4, body)


def batch(*writes: Write) -> bytes:
    return encode_batch([encode_write(write) for write in writes], 500, 1_234, Basis(6, {"a.1": 8}, 9))


def test_a_row_has_every_column_of_the_schema() -> None:
    row = exported_row(2, record(batch()), Color.YELLOW, None, None, FIRST_DIGEST)
    assert list(row) == list(FIELDS)
    expected = {
        "position": 2,
        "id": "b.12.3",
        "sender": "b",
        "incarnation": 12,
        "sequence": 3,
        "clock": 99,
        "view": "5.a.1",
        "primary": 4,
        "color": "yellow",
        "arrival": 7,
        "accepted_ms": 1_234,
        "expires": 500,
        "basis_line": 9,
        "basis_revision": 6,
        "basis_known": {"a.1": 8},
        "writes": [],
        "revision": None,
    }
    assert {name: row[name] for name in expected} == expected


def test_the_digest_covers_the_order_before_the_id_and_the_body() -> None:
    before, body = bytes(range(32)), batch()
    row = exported_row(2, record(body), Color.GREEN, (), 5, before)
    assert (row["body"], row["body_bytes"], row["body_sha256"]) == (body, len(body), sha256(body).digest())
    assert row["digest"] == sha256(before + b"b.12.3" + sha256(body).digest()).digest()
    without = exported_row(2, record(body), Color.GREEN, (), 5, before, with_body=False)
    assert without == {**row, "body": None}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (Put("k", b"four"), ("put", 4, None)),
        (Append("k", b""), ("append", 0, None)),
        (Increment("k", -3), ("increment", None, -3)),
        (Delete("k"), ("delete", None, None)),
        (Get("k"), ("get", None, None)),
    ],
)
def test_operations_are_told_without_their_values(
    operation: Operation, expected: tuple[str, int | None, int | None]
) -> None:
    write = Write((operation,), (RevisionIs("k", 3),), (operation, operation), "once", Merge.KEEP_GREEN)
    row = exported_row(0, record(batch(write)), Color.RED, None, None, FIRST_DIGEST)["writes"][0]
    kind, value_bytes, by = expected
    told = {"kind": kind, "key": "k", "value_bytes": value_bytes, "by": by}
    assert (row["operations"], row["otherwise"]) == ([told], [told, told])
    assert (row["conditions"], row["idempotency_key"], row["merge"]) == (1, "once", "keep_green")
    assert (row["outcome"], row["revision"], row["reason"], row["first"]) == (None, None, None, None)


def test_what_became_of_writes_is_told() -> None:
    outcomes = (
        Outcome(Verdict.APPLIED, 11),
        Outcome(Verdict.REJECTED, 4, Why.CONDITION_FAILED, "k", False),
        Outcome(Verdict.DUPLICATE, 2, first_id="a.1.1.0"),
        Outcome(Verdict.APPLIED, None),
    )
    writes = [Write((Delete("k"),))] * len(outcomes)
    row = exported_row(0, record(batch(*writes)), Color.GREEN, outcomes, 11, FIRST_DIGEST)
    told = [(one["outcome"], one["revision"], one["reason"], one["first"]) for one in row["writes"]]
    assert told == [
        ("applied", 11, None, None),
        ("rejected", 4, "condition_failed", None),
        ("duplicate", 2, None, "a.1.1.0"),
        ("applied", None, None, None),
    ]
    assert row["writes"][0]["otherwise"] is None
    with pytest.raises(ValueError, match="shorter"):
        exported_row(0, record(batch(*writes)), Color.GREEN, outcomes[1:], 11, FIRST_DIGEST)


def test_a_body_that_is_no_batch_of_writes_is_told_as_bytes_only() -> None:
    row = exported_row(0, record(b"something"), Color.RED, None, None, FIRST_DIGEST)
    names = ("accepted_ms", "expires", "basis_line", "basis_revision", "basis_known", "writes")
    assert [row[name] for name in names] == [None] * len(names)
    assert list(row) == list(FIELDS)
    assert row["body"] == b"something"


def test_the_revision_is_that_of_the_last_change() -> None:
    rejected, unchanged = Outcome(Verdict.REJECTED, 4), Outcome(Verdict.APPLIED, None)
    duplicate = Outcome(Verdict.DUPLICATE, 2)
    assert revision_after(7, (rejected, unchanged, duplicate)) == 7
    assert revision_after(7, (Outcome(Verdict.APPLIED, 8), Outcome(Verdict.APPLIED, 9), duplicate)) == 9
