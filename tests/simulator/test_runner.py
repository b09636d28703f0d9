"""A seed means the same everywhere, failures are reported so that they can be replayed, and a batch passes."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator import runner
from tests.simulator.__main__ import main
from tests.simulator.checkers import Violation
from tests.simulator.runner import LAYERS, replay, run_seeds
from tests.simulator.transport.plan import draw_plan
from tests.simulator.transport.run import TransportRun

ROOT = Path(__file__).parents[2]
SMALL = (3, 4)


class Planted(TransportRun):
    """Two seeds that fail: one by a violation, one by an exception in a machine."""

    def run(self) -> None:
        self.world.run_until(12.5)
        if self.plan.seed == 2:
            raise Violation("planted")
        if self.plan.seed == 4:
            raise KeyError("unexpected")


def trace_of(seed: int) -> list[str]:
    lines: list[str] = []
    assert replay("transport", seed, SMALL, lines.append)
    return lines


def simulator(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tests.simulator", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=120, check=False)


def simulator_here(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["simulator", *arguments])
    return main()


def test_a_seed_has_one_plan_and_one_trace() -> None:
    assert draw_plan(5) == draw_plan(5) != draw_plan(6)
    trace = trace_of(5)
    assert trace == trace_of(5)
    assert trace != trace_of(6)


@pytest.mark.parametrize("seed", [4, 20, 43])
def test_a_trace_does_not_depend_on_the_interpreters_hash_seed(seed: int) -> None:
    replays = [
        simulator("replay", "--layer", "transport", "--seed", str(seed), hash_seed=hash_seed)
        for hash_seed in ("1", "2")
    ]
    assert [run.returncode for run in replays] == [0, 0], replays[0].stderr
    assert replays[0].stdout.count(b"\n") > 100
    assert len({hashlib.sha256(run.stdout).hexdigest() for run in replays}) == 1


def test_run_ends_with_a_summary_and_status_0() -> None:
    run = simulator("run", "--seeds", "1-6", "--nodes", "3-4", "--jobs", "2")
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.match(r"6 seeds, 0 failures, \d+x real time", run.stdout.decode().splitlines()[-1])


def test_a_failure_is_printed_with_its_seed_and_replay_command_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(LAYERS, "transport", LAYERS["transport"]._replace(run=Planted))
    status = simulator_here(monkeypatch, "run", "--seeds", "1-5", "--nodes", "3-4", "--jobs", "1")
    *failures, summary = capsys.readouterr().out.splitlines()
    assert status == 1
    assert failures == [
        "seed 2 failed at 12.500 ms: planted",
        "  replay: python -m tests.simulator replay --layer transport --seed 2 --nodes 3-4",
        "seed 4 failed at 12.500 ms: KeyError: 'unexpected'",
        "  replay: python -m tests.simulator replay --layer transport --seed 4 --nodes 3-4",
    ]
    assert re.match(r"5 seeds, 2 failures, \d+x real time", summary)


def test_the_replay_command_replays_the_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(LAYERS, "transport", LAYERS["transport"]._replace(run=Planted))
    command = runner.replay_command("transport", 2, SMALL)
    assert simulator_here(monkeypatch, *command.split()[3:]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == f"# {draw_plan(2, *SMALL)}"
    assert last == "# violation at 12.500 ms: planted"


def test_the_replay_command_names_the_nodes_only_where_they_are_not_the_default() -> None:
    default = (runner.NODES_MIN, runner.NODES_MAX)
    assert runner.replay_command("transport", 7, default).endswith("--layer transport --seed 7")


@pytest.mark.parametrize("seeds", ["0-3", "5-2", "0", "x", "1-x", "1-2-3", ""])
def test_bad_seeds_are_refused_with_the_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seeds: str
) -> None:
    with pytest.raises(SystemExit) as refusal:
        simulator_here(monkeypatch, "run", "--seeds", seeds)
    assert refusal.value.code == 2
    assert f"argument --seeds: {seeds!r} is" in capsys.readouterr().err


def test_a_layer_that_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        simulator_here(monkeypatch, "replay", "--layer", "sessions", "--seed", "1")
    assert "argument --layer: invalid choice: 'sessions'" in capsys.readouterr().err


def test_a_batch_of_seeds_passes(capsys: pytest.CaptureFixture[str]) -> None:
    failures = run_seeds("transport", range(1, 61), (3, 5), jobs=1)
    assert not failures, capsys.readouterr().out
