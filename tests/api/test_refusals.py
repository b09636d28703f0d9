"""Real processes that die or only stop: the others learn of a death from its host, and of nothing else."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.cluster import Cluster

SILENCE_MS = 25_000.0
"""So long may a node be silent here: a view without it that comes much sooner is due to what its host refused."""
_BOUNDS = {"suspect_after_ms": SILENCE_MS, "suspect_after_ms_max": SILENCE_MS, "mute_after_ms": 4.0 * SILENCE_MS}


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Cluster]:
    flags = [flag for name, bound in _BOUNDS.items() for flag in ("--set", f"membership.{name}={bound}")]
    with Cluster("abc", tmp_path, flags) as started:
        yield started.start()


def test_a_killed_process_is_noticed_long_before_its_silence_would_be(patient: Cluster, key: str) -> None:
    assert patient["c"].put(key, "before").status == 200
    killed_at = time.monotonic()
    patient["c"].kill()
    patient.await_views("ab")
    assert patient["a"].put(key, "after").status == 200
    assert time.monotonic() - killed_at < SILENCE_MS / 2_000.0


def test_a_stopped_process_whose_heartbeats_are_overdue_stays_a_member(patient: Cluster) -> None:
    time.sleep(1.0)  # until it has acknowledged everything: a member that others wait for is stuck after a second
    views = [node.status()["view"] for node in patient]
    patient["c"].signal(signal.SIGSTOP)
    time.sleep(2.0)  # heartbeats are overdue after a tenth of it
    assert patient["a"].status()["view"] == views[0]
    patient["c"].signal(signal.SIGCONT)
    time.sleep(0.5)
    assert [node.status()["view"] for node in patient] == views
