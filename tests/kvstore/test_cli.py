"""The `corelkv` command, as a user runs it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvstore.cli import main


def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvstore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_a_cluster_shows_one_green_order_at_every_node_and_stops_on_interrupt(broadcast_port: int) -> None:
    command = [sys.executable, "-m", "kvstore", "cluster", "--port", str(broadcast_port), "--every-ms", "20"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    orders: dict[str, list[str]] = {name: [] for name in "abc"}
    for line in process.stdout:
        if match := re.match(r"([abc])  green +(\d+) (\S+)", line):
            node, position, message = match.groups()
            assert int(position) == len(orders[node])
            orders[node].append(message)
        if min(map(len, orders.values())) >= 12:
            break
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=20)
    assert process.returncode == 0, rest
    assert "stopped" in rest
    assert orders["a"][:12] == orders["b"][:12] == orders["c"][:12]


def test_a_node_started_again_is_another_incarnation(tmp_path: Path, broadcast_port: int) -> None:
    (tmp_path / "incarnation").write_text("3\n")
    command = [sys.executable, "-m", "kvstore", "serve", "--node", "a", "--roster", "a", "--data", str(tmp_path)]
    command += ["--broadcast", f"127.255.255.255:{broadcast_port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any(" as a.4, " in process.stdout.readline() for _ in range(5))
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_damaged_clock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "clock").write_text("12")
    result = run(["serve", "--node", "a", "--roster", "a", "--data", str(tmp_path)])
    assert result.returncode == 1
    assert "clock is damaged" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--node", "x", "--roster", "a,b"], "--node x is not in --roster"),
        (["--node", "a", "--roster", "a,b", "--broadcast", "nonsense"], "expected HOST:PORT"),
        (["--node", "a", "--roster", "a,b", "--peers", "127.0.0.1:1"], "--peers needs --bind"),
        (["--node", "a", "--roster", "a,a,b"], "distinct names"),
    ],
)
def test_wrong_arguments_are_explained(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--data", str(tmp_path / "data"), *arguments]) == 1
    assert sentence in capsys.readouterr().err


def test_help_names_the_commands() -> None:
    result = run(["--help"])
    assert result.returncode == 0
    assert "cluster" in result.stdout
    assert "serve" in result.stdout
