"""Which response an error becomes."""

from __future__ import annotations

from api.problems import problem_of
from corel.disk_errors import DiskError, UnusableLog


def test_a_log_that_will_be_opened_again_is_worth_another_try() -> None:
    problem = problem_of(UnusableLog("/data/a cannot be used now. The node opens it again by itself."))
    assert (problem.status, problem.code, problem.headers) == (503, "away", {"Retry-After": "1"})
    assert "opens it again by itself. Nothing was accepted. Try again" in str(problem)


def test_a_damaged_log_is_not() -> None:
    problem = problem_of(DiskError("data.mdb is damaged"))
    assert (problem.status, problem.code, problem.headers) == (500, "damaged", {})
