"""Some seeds of the membership layer in every test run, and those that found bugs. Campaigns: `make simulate`."""

from __future__ import annotations

import pytest

from tests.simulator.membership_layer import MembershipRun
from tests.simulator.membership_plan import draw_membership_plan
from tests.simulator.runner import run_seeds

REGRESSIONS = {
    14: "two views took turns at attempting to join, each deaf to the other's attempts",
    16: "a control message of the next view was judged by the data of the last",
    33: "a machine that had declared another faulty went on inviting it",
    76: "a message that follows an accusation its sender had not acted upon could never enter",
}


@pytest.mark.parametrize("first", range(101, 161, 10))
def test_seeds_pass(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    failures = run_seeds("membership", range(first, first + 10), (3, 6), jobs=1)
    assert failures == 0, capsys.readouterr().out


@pytest.mark.parametrize("seed", REGRESSIONS, ids=REGRESSIONS.get)
def test_what_went_wrong_once(seed: int) -> None:
    MembershipRun(draw_membership_plan(seed, 3, 9)).run()
