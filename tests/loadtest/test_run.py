"""Real runs of Locust against real clusters. Locust has a process of its own: to import it would change this
one."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from loadtest.record import read_lines
from tests.ports import broadcast_port, free_ports


def command(output: Path, *flags: str) -> list[str]:
    ports = ("--http-port", str(free_ports(3)), "--udp-port", str(broadcast_port()))
    return [sys.executable, "-m", "loadtest", "run", "--output", str(output), *ports, *flags]


def test_a_short_run_with_a_partition_and_a_kill_ends_well(tmp_path: Path) -> None:
    output = tmp_path / "out"
    patience = ("--level", "error_rate=0.3", "--level", "p99_ms=20000", "--sample", "50")
    load = ("--duration", "12", "--users", "12", "--workers", "1", "--chaos", *patience)
    result = subprocess.run(
        command(output, *load, "--", "--fault-seconds", "4", "--records", "200"),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert result.returncode == 0, result.stdout + result.stderr + (output / "locust.log").read_text()[-2_000:]
    summary = json.loads((output / "summary.json").read_text())
    assert summary["verdict"] == "good"
    assert [fault["kind"] for fault in summary["faults"]] == ["partition", "heal", "kill"]
    assert summary["writes"]["acknowledged"] > 100
    assert summary["writes"]["red_at_first"] > 0
    assert {"PUT put", "PATCH increment", "PUT swap", "POST txn", "PUT red"} <= set(summary["statistics"]["rows"])
    kinds = {line["kind"] for line in read_lines(output / "record" / "worker-0.jsonl")}
    assert kinds == {"begin", "write", "feed", "delay", "end"}
    assert 'id="corelkv"' in (output / "report.html").read_text()
    assert processes_of(str(output)) == []


def test_a_spike_has_figures_for_each_number_of_users(tmp_path: Path) -> None:
    output = tmp_path / "out"
    load = ("--shape", "spike", "--duration", "10", "--users", "10", "--sample", "10")
    patience = ("--level", "error_rate=0.3", "--level", "p99_ms=20000")
    result = subprocess.run(
        command(output, *load, *patience, "--", "--records", "100"), capture_output=True, text=True, timeout=200
    )
    assert result.returncode == 0, result.stdout + result.stderr + (output / "locust.log").read_text()[-2_000:]
    statistics = json.loads((output / "summary.json").read_text())["statistics"]
    phases = statistics["phases"]
    assert [phase["users"] for phase in phases] == [1, 10, 1]
    assert sum(phase["requests"] for phase in phases) == statistics["rows"]["all requests"]["requests"]
    assert phases[1]["requests_per_second"] > phases[0]["requests_per_second"]
    assert "10 users for 2 s" in result.stdout
    assert "Phases" in (output / "report.html").read_text()


def test_an_interrupted_run_leaves_no_process_behind(tmp_path: Path) -> None:
    output = tmp_path / "out"
    process = subprocess.Popen(
        command(output, "--duration", "120", "--users", "5"), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        end = time.monotonic() + 60
        while not (output / "progress.json").exists():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        data = first.split()[-1]
        assert processes_of(data)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        assert processes_of(data) == processes_of(str(output)) == []
        assert not Path(data).exists()
    finally:
        process.kill()
        process.communicate()


def processes_of(path: str) -> list[str]:
    """The command lines in which a path is named."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if path in line]
