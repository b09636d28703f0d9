"""Some seeds of the corel layer in every test run. Campaigns: `make simulate LAYER=corel`."""

from __future__ import annotations

import pytest

from tests.simulator.runner import run_seeds


@pytest.mark.parametrize("first", range(1, 61, 10))
def test_seeds_pass(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    failures = run_seeds("corel", range(first, first + 10), (3, 6), jobs=1)
    assert failures == 0, capsys.readouterr().out


def test_what_a_foreign_machine_requires_of_a_suspect_is_not_taken_in_once_that_machine_is_suspected() -> None:
    assert run_seeds("corel", [8446], (3, 9), jobs=1) == 0


@pytest.mark.parametrize("seed", [803, 10035])
def test_nodes_of_two_generations_that_meet_are_kept_apart(seed: int) -> None:
    assert run_seeds("corel", [seed], (3, 9), jobs=1) == 0


def test_what_a_node_remembers_of_another_cluster_does_not_keep_this_one_without_a_primary_component() -> None:
    assert run_seeds("corel", [4013], (3, 9), jobs=1) == 0


def test_of_two_processes_that_started_in_the_same_millisecond_the_one_that_is_alone_stops() -> None:
    assert run_seeds("corel", [5972], (3, 9), jobs=1) == 0


def test_an_empty_disk_may_bring_to_its_cluster_what_a_node_that_was_left_over_and_bound_to_none_gave_it() -> None:
    assert run_seeds("corel", [6375], (3, 9), jobs=1) == 0
