"""The README's tour, line by line, against a real cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.ports import free_ports

README = Path(__file__).parent.parent / "README.md"
READY_SECONDS = 60.0


def steps() -> list[tuple[str, str]]:
    """Every command of the tour with what it prints."""
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line:
            found[-1][1].append(line)
    return [(command, "\n".join(expected)) for command, expected in found]


@pytest.fixture
def cluster(tmp_path: Path, broadcast_port: int) -> Iterator[int]:
    """As `make run` starts it, on other ports. Yields the first HTTP port."""
    port = free_ports(3)
    command = [sys.executable, "-m", "kvstore", "cluster", "--http-port", str(port), "--port", str(broadcast_port)]
    process = subprocess.Popen([*command, "--data", str(tmp_path / "data")])
    try:
        _wait_until_primary([port, port + 1, port + 2])
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20.0)


def test_the_tour_of_the_readme_goes_as_it_says(cluster: int) -> None:
    assert len(steps()) >= 12
    environment = {**os.environ, "CORELKV_URL": f"http://127.0.0.1:{cluster}"}
    incarnations = {name: _incarnation(cluster + place) for place, name in enumerate("abc")}
    for command, expected in steps():
        command, expected = (
            re.sub(r"\b([abc])\.1794953000123\b", lambda id_: f"{id_[1]}.{incarnations[id_[1]]}", text)
            for text in (command, expected)
        )
        for place in range(3):
            command = command.replace(f":{8001 + place}/", f":{cluster + place}/")
        command = command.replace(".venv/bin/corelkv", f"{sys.executable} -m kvstore")
        run = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=60.0
        )
        assert run.returncode == 0, f"{command}: {run.stderr}"
        pattern = re.escape(expected).replace(r"\.\.\.", ".*")
        shown = "\n".join(line.rstrip() for line in run.stdout.splitlines())
        assert re.fullmatch(pattern, shown, re.DOTALL), f"{command} printed:\n{shown}\nnot:\n{expected}"


def _incarnation(port: int) -> int:
    """The number in the ids of a node's writes: in the README, that of a node which started long ago."""
    with urlopen(f"http://127.0.0.1:{port}/v1/status") as answer:
        return int(json.load(answer)["incarnation"])


def _wait_until_primary(ports: list[int]) -> None:
    end = time.monotonic() + READY_SECONDS
    for port in ports:
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{port}/readyz?need=primary", timeout=2.0):
                    break
            except OSError:
                assert time.monotonic() < end, "the cluster is not up"
                time.sleep(0.1)
