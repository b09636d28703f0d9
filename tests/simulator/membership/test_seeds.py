"""Some seeds of the membership layer in every test run, and seeds that campaigns found. Campaigns: `make
simulate`.

Seeds go other ways as the protocol changes: what keeps most bugs from coming back are directed tests and mutants,
which `docs/bugs.md` names."""

from __future__ import annotations

import pytest

from tests.simulator.membership.plan import draw_membership_plan
from tests.simulator.membership.run import MembershipRun
from tests.simulator.runner import NODES_MAX, NODES_MIN, run_seeds

REGRESSIONS = {
    1286: "a node came back with a view numbered below its last one",
}


@pytest.mark.parametrize("first", range(101, 161, 10))
def test_seeds_pass(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    failures = run_seeds("membership", range(first, first + 10), (3, 6), jobs=1)
    assert failures == 0, capsys.readouterr().out


@pytest.mark.parametrize("seed", REGRESSIONS, ids=REGRESSIONS.get)
def test_what_went_wrong_once(seed: int) -> None:
    MembershipRun(draw_membership_plan(seed, NODES_MIN, NODES_MAX)).run()
