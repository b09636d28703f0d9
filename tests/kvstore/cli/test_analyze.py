"""`corelkv analyze`: what it says before Spark is started. What it does is in `tests/spark/test_analysis.py`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

import spark
from kvstore.cli import main
from kvstore.cli.file_commands import ANALYSES
from kvstore.cli.output import Exit


def test_the_jobs_that_can_be_chosen_are_those_of_spark() -> None:
    assert ANALYSES == spark.JOBS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["data"], "--out is needed"),
        (["data", "--follow"], "--checkpoint is needed"),
        (["data", "--out", "x", "--once"], "--once goes with --follow"),
        (["data", "--follow", "--checkpoint", "x", "--out", "y"], "--out goes without --follow"),
        (["data", "--out", "x", "--conf", "spark.ui"], "--conf takes NAME=VALUE, not 'spark.ui'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", *arguments]) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr("kvstore.cli.analyze.find_spec", lambda name: None if name == "plotly" else found(name))
    assert main(["analyze", "data", "--out", "x"]) == Exit.FAILED
    assert "plotly are needed: pip install 'corelkv[spark]'" in capsys.readouterr().err
