"""The incarnation on disk: it only ever rises, and damage is an error that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from transport.incarnation import IncarnationError, next_incarnation


def test_every_start_has_its_own_number(tmp_path: Path) -> None:
    assert [next_incarnation(tmp_path / "data") for _ in range(3)] == [1, 2, 3]


def test_a_crash_while_writing_does_not_lose_the_last_number(tmp_path: Path) -> None:
    next_incarnation(tmp_path)
    (tmp_path / "incarnation.new").write_bytes(b"")  # the crash left an unfinished file behind
    assert next_incarnation(tmp_path) == 2


@pytest.mark.parametrize("damage", [b"", b"7", b"-1\n", b"seven\n", b"0\n", b"99999999999999999999\n"])
def test_a_damaged_file_is_refused_with_the_way_out(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "incarnation").write_bytes(damage)
    with pytest.raises(IncarnationError, match="write a higher number"):
        next_incarnation(tmp_path)
    assert (tmp_path / "incarnation").read_bytes() == damage
