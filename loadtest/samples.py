"""Looks at every node once a second during a run: its lines, its state, and what its process takes."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from loadtest.cluster import node_pids
from loadtest.nodes import Nodes
from loadtest.record import wall_ms

SECONDS = 1.0
_STATUS_SECONDS = 0.8
_SAMPLES_LEAST = 10
"""Fewer samples than this say nothing of growth."""


class Sampler:
    """Writes a JSON line for each node and second, from a thread of its own. `supervisor` is the process whose
    children are the nodes; without it, memory and file descriptors are not known."""

    def __init__(self, urls: Sequence[str], path: Path, supervisor: int | None) -> None:
        self._urls = urls
        self._path = path
        self._supervisor = supervisor
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.latest: dict[str, dict[str, Any]] = {}
        """The last sample of each node, by name."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        nodes = Nodes(self._urls)
        names: dict[str, str] = {}
        due = time.monotonic()
        with contextlib.closing(nodes), open(self._path, "a", buffering=1) as file:
            while not self._stopped.is_set():
                pids = node_pids(self._supervisor) if self._supervisor else {}
                for url in self._urls:
                    status = nodes.status(url, _STATUS_SECONDS)
                    name = names[url] = names.get(url, url) if status is None else status["node"]
                    self.latest[name] = sample = {**sample_of(name, status), **usage_of(pids.get(name))}
                    file.write(json.dumps(sample) + "\n")
                due += SECONDS
                self._stopped.wait(max(0.0, due - time.monotonic()))


def sample_of(name: str, status: Any | None) -> dict[str, Any]:
    sample: dict[str, Any] = {"time_ms": wall_ms(), "node": name}
    if status is None:
        return {**sample, "state": "down"}
    return {
        **sample,
        "state": status["state"],
        "green": status["green"]["line"],
        "yellow": status["yellow"]["line"] - status["green"]["line"],
        "red": status["red"],
        "revision": status["green"]["revision"],
    }


def usage_of(pid: int | None) -> dict[str, Any]:
    """What a process takes. Anonymous memory is its own; the rest of its resident memory are pages of its files,
    LMDB's map above all, which the kernel keeps as long as nobody else needs the room."""
    if pid is None:
        return {}
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return {
            "pid": pid,
            "anonymous_bytes": int(fields["RssAnon"].split()[0]) * 1024,
            "resident_bytes": int(fields["VmRSS"].split()[0]) * 1024,
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        }
    return {}


def read_samples(path: Path) -> list[dict[str, Any]]:
    with open(path) as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def slopes(samples: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns by node how its process grew over the second half of the run. A node that was restarted there is
    judged by the process that lived longest, which is still growing to its usual size."""
    known = [sample for sample in samples if "pid" in sample]
    if not known:
        return {}
    middle = (known[0]["time_ms"] + known[-1]["time_ms"]) / 2
    found: dict[str, dict[str, Any]] = {}
    for name in sorted({sample["node"] for sample in known}):
        lives: dict[int, list[dict[str, Any]]] = {}
        for sample in known:
            if sample["node"] == name and sample["time_ms"] >= middle:
                lives.setdefault(sample["pid"], []).append(sample)
        longest = max(lives.values(), key=len, default=[])
        if len(longest) >= _SAMPLES_LEAST:
            found[name] = _slope(longest)
    return found


def _slope(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    minutes = [(sample["time_ms"] - samples[0]["time_ms"]) / 60_000 for sample in samples]
    return {
        "seconds": round(minutes[-1] * 60),
        "anonymous_bytes": samples[-1]["anonymous_bytes"],
        "anonymous_bytes_per_minute": round(_fit(minutes, [sample["anonymous_bytes"] for sample in samples])),
        "resident_bytes_per_minute": round(_fit(minutes, [sample["resident_bytes"] for sample in samples])),
        "descriptors": samples[-1]["descriptors"],
        "descriptors_per_minute": round(_fit(minutes, [sample["descriptors"] for sample in samples]), 2),
    }


def _fit(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of the straight line with the least squares."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0
