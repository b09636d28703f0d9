"""`corelkv verify` says whether a data directory is whole."""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path
from random import Random

import pytest

from kvstore.cli.main import main
from kvstore.cli.output import Exit
from tests.corel.disk_images import written


@pytest.fixture
def data(tmp_path: Path) -> Path:
    list(written(tmp_path, 5, Random(1)))
    return tmp_path


def test_a_whole_directory_is_said_to_be_whole(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(data)]) == Exit.OK
    assert "is whole: " in capfd.readouterr().out


def test_a_damaged_one_is_named_with_what_to_do(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = data / "data.mdb"
    path.write_bytes(path.read_bytes().replace(b"key 1", b"kez 1"))
    assert main(["verify", str(data)]) == Exit.FAILED
    assert "data.mdb is damaged" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("by", "sentence"),
    [
        (signal.SIGBUS, "data.mdb is damaged (reading it ended with SIGBUS). Move the directory away"),
        (signal.SIGKILL, "was ended by SIGKILL. Do it again.\n"),
    ],
)
def test_a_page_that_ends_the_process_is_damage_and_a_killer_is_not(
    data: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, by: int, sentence: str
) -> None:
    def end(*_: object) -> None:
        faulthandler.disable()  # of pytest, which would print where it ended
        os.kill(os.getpid(), by)

    monkeypatch.setattr("kvstore.cli.verify.verify", end)
    assert main(["verify", str(data)]) == Exit.FAILED
    assert sentence in capfd.readouterr().err


def test_a_directory_without_data_is_a_mistake(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == Exit.USAGE
    assert "has no data.mdb" in capfd.readouterr().err


def test_a_mistake_of_ours_ends_the_reader_and_is_no_success(
    data: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvstore.cli.verify.verify", lambda *_: 1 // 0)
    assert main(["verify", str(data)]) == Exit.FAILED
    printed = capfd.readouterr().err
    assert "ZeroDivisionError" in printed
    assert printed.endswith("corelkv: reading it failed: see above\n")
