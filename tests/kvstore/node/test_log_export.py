"""The rows of a log on disk: all messages in their order, with their colours and outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from corel.disk_errors import DiskError, Truncated
from kvstore.log_schema import FIRST_DIGEST
from kvstore.node import LogExport, Row
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.store import Checkpoint, Fate, Increment, Outcome, RevisionIs, Verdict, Write, encode_write
from kvstore.store.write_codec import encode_batch
from tests.kvstore.node.busy_logs import truncate_apart
from tests.kvstore.node.made_logs import GENERATION, MadeLog, body_of, made_log


def rows_of(directory: Path, first: int = 0, revision: int = 0, digest: bytes = FIRST_DIGEST) -> list[Row]:
    log = LogExport(directory)
    try:
        return list(log.rows(first, revision, digest))
    finally:
        log.close()


def test_every_message_is_a_row_with_its_colour_in_its_place(tmp_path: Path) -> None:
    log = MadeLog(tmp_path)
    log.add([body_of(n) for n in range(5)])
    log.turn_green(3)
    log.turn_green(2, is_checkpointed=False)
    log.add([body_of(n) for n in range(5, 8)])
    log.decide_yellow(2)
    log.add([b"not a batch"])
    log.close()
    rows = rows_of(tmp_path)
    assert [row["position"] for row in rows] == list(range(9))
    assert [row["color"] for row in rows] == ["green"] * 5 + ["yellow"] * 2 + ["red"] * 2
    assert [row["id"] for row in rows] == [f"a.1.{n + 1}" for n in range(9)]
    assert [row["revision"] for row in rows] == [1, 2, 3] + [None] * 6
    assert [row["writes"] and row["writes"][0]["outcome"] for row in rows] == ["applied"] * 3 + [None] * 6
    export = LogExport(tmp_path)
    assert (export.final, export.lines.green, export.yellow, export.length) == (3, 5, 7, 9)
    assert (export.cluster, export.node, export.disk) == ("test", "a", log.uuid)
    assert (export.generation, export.lines.committed, export.lines.attempted) == (GENERATION, 1, 2)
    export.close()


def test_a_log_that_was_cut_is_exported_from_its_cut_on_as_if_it_were_whole(tmp_path: Path) -> None:
    log = MadeLog(tmp_path)
    for _ in range(8):
        log.add([body_of(n) for n in range(5)])
        log.turn_green(5)
    whole = rows_of(log.closed())
    log = MadeLog(tmp_path)
    log.truncate(20)
    export = LogExport(log.closed())
    line, digest, revision = export.beginning()
    assert (line, digest, revision) == (20, whole[19]["digest"], whole[19]["revision"])
    assert list(export.rows(line, revision, digest)) == whole[20:]
    with pytest.raises(DiskError, match="20"):
        list(export.rows(19, 0, whole[18]["digest"]))
    export.close()


def test_what_a_running_node_truncates_meanwhile_is_not_taken_for_damage(tmp_path: Path) -> None:
    log = MadeLog(tmp_path)
    for _ in range(8):
        log.add([body_of(n) for n in range(5)])
        log.turn_green(5)
    export = LogExport(log.closed())
    rows = export.rows(0, 0, FIRST_DIGEST)
    assert next(rows)["position"] == 0
    truncate_apart(tmp_path, 20)  # the next message is in memory already, and what became of it is not
    with pytest.raises(Truncated) as truncated:
        next(rows)
    assert truncated.value.first == 20
    export.close()


def test_digests_are_those_of_a_naive_reading(tmp_path: Path) -> None:
    records = made_log(tmp_path, 250, batch=7)
    digest = bytes(32)
    expected = []
    for record in records:
        name = f"{record.id.stream.name}.{record.id.stream.incarnation}.{record.id.sequence}"
        digest = sha256(digest + name.encode() + sha256(record.body).digest()).digest()
        expected.append((name, digest))
    rows = rows_of(tmp_path)
    assert [(row["id"], row["digest"]) for row in rows] == expected
    assert rows_of(tmp_path, 100, rows[99]["revision"], rows[99]["digest"]) == rows[100:]


def test_outcomes_and_revisions_are_those_of_the_state(tmp_path: Path) -> None:
    log = MadeLog(tmp_path)
    never, counted = Write((Increment("k", 1),), (RevisionIs("k", 99),)), Write((Increment("k", 1),))
    log.add([encode_batch([encode_write(one) for one in (counted, never, counted)], 500)] * 3)
    log.add([encode_batch([encode_write(never)], 500)])
    records = log.turn_green(4)
    log.close()
    rows = rows_of(tmp_path)
    assert [row["revision"] for row in rows] == [2, 4, 6, 6]
    for record, row in zip(records, rows, strict=True):
        told = [(one["outcome"], one["revision"]) for one in row["writes"]]
        assert told == [(str(one.verdict), one.revision) for one in log.outcomes[record.id]]


def test_an_empty_log_has_no_rows(tmp_path: Path) -> None:
    MadeLog(tmp_path).close()
    assert rows_of(tmp_path) == []
    export = LogExport(tmp_path)
    assert (export.final, export.length, export.generation) == (0, 0, bytes(16))
    export.close()


def change_state(log: MadeLog, checkpoint: Checkpoint) -> None:
    log._log.update(partial(LmdbTree(log._log).write, checkpoint=checkpoint))


def forget(log: MadeLog) -> None:
    fates = log._log.table("fates")
    log._log.update(lambda transaction: transaction.drop(fates, delete=False))


def contradict(log: MadeLog) -> None:
    log._lines = replace(log._lines, green_digest=bytes(16))
    log.add([b"any"])


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (contradict, "the order at 3 is not the one that became green"),
        (forget, r"what became of a\.1\.1 at 0 is missing"),
        (lambda log: change_state(log, Checkpoint(3, 7)), "lead to revision 3, and the state is at 7"),
    ],
)
def test_a_state_that_contradicts_the_log_is_damage(
    tmp_path: Path, damage: Callable[[MadeLog], object], why: str
) -> None:
    log = MadeLog(tmp_path)
    log.add([body_of(n) for n in range(4)])
    log.turn_green(3)
    damage(log)
    log.close()
    with pytest.raises(DiskError, match=rf"data\.mdb is damaged .*{why}"):
        rows_of(tmp_path)


def test_outcomes_of_other_writes_are_damage(tmp_path: Path) -> None:
    log = MadeLog(tmp_path)
    [record] = log.add([body_of(1, writes=2)])
    log.turn_green(1)
    one = Fate(0, (Outcome(Verdict.APPLIED, 2),))
    change_state(log, Checkpoint(1, 2, fates={record.id: one}))
    log.close()
    with pytest.raises(DiskError, match=r"what became of the writes of a\.1\.1 is not of those writes"):
        rows_of(tmp_path)
