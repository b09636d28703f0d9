"""When the audit and the simulator agree."""

from __future__ import annotations

import pytest

from tests.simulator.corel.plan import draw_corel_plan
from tests.simulator.corel.run import CorelRun
from tests.simulator.mutation import planted
from tests.simulator.recording.cases import Case, Recorded, first_checker, mutant_of
from tests.simulator.recording.comparison import Verdict, compare, disagreements, table

CLEAN = Recorded(Case("corel", 1), ("corel-1", "corel-1-g2"), None)
BUG = Recorded(Case("corel", 2, "half is a majority"), ("corel-2-half-is-a-majority",), "primaries")
SLOW = Recorded(Case("corel", 3, "a log is not opened again"), ("corel-3",), "corel.run")


@pytest.mark.parametrize(
    ("recorded", "found", "verdict"),
    [
        (CLEAN, {}, Verdict.AGREED_CLEAN),
        (CLEAN, {"corel-1-g2": {"yellow": 2}}, Verdict.ONLY_AUDIT),
        (BUG, {"corel-1": {"yellow": 2}}, Verdict.ONLY_SIMULATOR),
        (BUG, {"corel-2-half-is-a-majority": {"agreed_green": 1}}, Verdict.AGREED_CONVICTED),
        (SLOW, {}, Verdict.NOT_VISIBLE),
        (SLOW, {"corel-3": {"yellow": 1}}, Verdict.AGREED_CONVICTED),
    ],
)
def test_verdicts(recorded: Recorded, found: dict[str, dict[str, int]], verdict: Verdict) -> None:
    (comparison,) = compare([recorded], found)
    assert comparison.verdict is verdict


def test_the_table_shows_what_anybody_convicts() -> None:
    found = {"corel-1": {"yellow": 2}}
    lines = table(compare([CLEAN, BUG, SLOW, Recorded(Case("store", 9), ("store-9",), None)], found))
    assert "| corel 1 |  | clean | yellow (2) | convicted by the audit only |" in lines
    assert any(line.startswith("| corel 2 | half is a majority | primaries | clean |") for line in lines)
    assert not any(line.startswith("| store 9") for line in lines)
    assert lines[-1] == "4 runs, 2 disagreements"


def test_a_bug_that_is_convicted_in_another_run_is_no_disagreement() -> None:
    again = BUG._replace(case=BUG.case._replace(seed=5), clusters=("again",))
    assert disagreements(compare([BUG, again], {"again": {"yellow": 1}})) == []
    assert len(disagreements(compare([BUG, again], {}))) == 1


def test_a_checker_that_asks_another_one_is_the_one_that_notices() -> None:
    case = Case("corel", 1, "that a message is yellow is not on disk")
    with planted(mutant_of(case.layer, case.mutant)):
        assert first_checker(CorelRun(draw_corel_plan(case.seed, 3, 5)).run) == "restorable"
