"""A bit that has flipped anywhere in the file: every read returns the right bytes, or an error that says what to
do. A key that a damaged page hides is found by `verify`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import lmdb
import pytest

from corel.disk_errors import DiskError
from corel.verification import verify
from tests.corel.disk_images import opened, written

FLIPS = 150


def test_no_flipped_bit_leads_to_a_wrong_answer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.corel.rot_worker", str(tmp_path), "7", str(FLIPS)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    outcomes = {}
    for line in printed.splitlines():
        times, reading, verification = line.replace("; ", "\t").split("\t")
        outcomes[reading, verification] = int(times)
    assert sum(outcomes.values()) == FLIPS
    for reading, verification in outcomes:
        assert reading in ("right", "explained", "items missing") or reading.startswith("signal "), outcomes
        assert reading == "right" or verification != "not found", outcomes
    assert sum(times for (reading, _), times in outcomes.items() if reading == "explained") > FLIPS // 4


def test_a_whole_log_is_verified_and_its_records_are_counted(tmp_path: Path) -> None:
    *_, content = written(tmp_path, 5, Random(1))
    log, _ = opened(tmp_path)
    with log.read(log._order) as transaction:
        orders = transaction.stat(log._order)["entries"]
    log.close()
    in_meta, batches, state_lines = 3, 5, 2
    assert verify(tmp_path) == in_meta + batches + orders + len(content.items) + state_lines


def test_a_value_in_the_place_of_another_is_damage() -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory)
        *_, content = written(path, 5, Random(1))
        log, tree = opened(path)
        one, other = sorted(content.items)[:2]
        items = log.table("items")
        log.update(
            lambda transaction: transaction.put(one.encode(), transaction.get(other.encode(), db=items), db=items)
        )
        with pytest.raises(DiskError, match=rf"key {one} has a wrong checksum"):
            tree.item(one)
        assert tree.item(other) == content.items[other]
        log.close()
        with pytest.raises(DiskError, match=r"data.mdb is damaged .*Move the directory away"):
            verify(path)


def test_messages_that_are_missing_are_noticed_at_the_start() -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory)
        *_, content = written(path, 6, Random(2))
        log, _ = opened(path)
        last = len(content.bodies) - 1

        def remove(transaction: Any) -> None:
            with transaction.cursor(db=log._messages) as cursor:
                cursor.last()
                cursor.delete()

        log.update(remove)
        with pytest.raises(DiskError, match=rf"messages from {len(content.green)} to {last} are not all there"):
            log.load()
        log.close()


def test_a_gap_in_the_order_is_noticed() -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory)
        *_, content = written(path, 6, Random(2))
        log, _ = opened(path)

        def remove(transaction: Any) -> None:
            with transaction.cursor(db=log._order) as cursor:
                cursor.first()
                cursor.next()
                cursor.delete()

        log.update(remove)
        with pytest.raises(DiskError, match="the order goes from"):
            log.green(0, len(content.bodies))
        log.close()


def test_what_lmdb_finds_wrong_with_a_page_is_explained() -> None:
    with TemporaryDirectory() as directory:
        log, _ = opened(Path(directory))
        with (
            pytest.raises(DiskError, match=r"data.mdb is damaged .*Move the directory away"),
            log.read(log._order),
        ):
            raise lmdb.CorruptedError("mdb_cursor_get")
        log.close()


def test_a_log_whose_identity_is_hidden_is_damaged_and_not_begun_anew() -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory)
        *_, content = written(path, 6, Random(2))
        log, _ = opened(path)
        log.update(lambda transaction: transaction.delete(b"identity", db=log._meta))
        log.close()
        with pytest.raises(DiskError, match="identity is missing"):
            opened(path)
        assert verify(path) > len(content.items), "nothing has been overwritten"
