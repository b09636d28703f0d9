"""The smaller cases, explored completely: no forbidden state can be reached."""

from __future__ import annotations

import re
import sys

import pytest

from membership.protocol import MembershipProtocol
from tests.exploration.__main__ import main
from tests.exploration.cases import CASES
from tests.exploration.explorer import explore

SMALL = {
    "three-crash": 100,
    "three-suspicion": 500,
    "two": 3_000,
    "two-crash": 3_000,
    "merge-small-crash": 50_000,
}
"""Cases of which the last part is explored, and the least number of states in it: fewer would mean that something
was not tried."""


@pytest.mark.parametrize("name", SMALL)
def test_every_interleaving_is_safe(name: str) -> None:
    [case] = [case for case in CASES if case.name == name]
    found = explore(case.start(case.parts[-1]))
    assert not found.offence, "\n".join([found.offence, *found.trace])
    assert found.is_complete
    assert found.states >= SMALL[name]


def test_the_command_line_counts_and_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["exploration", "three-crash"])
    assert main() == 0
    assert re.search(r"three-crash +171 +273 +7 +31 +0 +yes ", capsys.readouterr().out)
    monkeypatch.setattr(MembershipProtocol, "awaited", lambda self: frozenset())
    assert main() == 1
    shown = capsys.readouterr().out
    assert "OFFENCE" in shown
    assert re.search("^ +[abc] crash$", shown, re.MULTILINE)


def test_bounds_end_it_between_depths(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["exploration", "two", "--depth-max", "5"])
    assert main() == 0
    assert re.search(r"two +\S+ +\S+ +5 +\S+ +\S+ +no ", capsys.readouterr().out)
