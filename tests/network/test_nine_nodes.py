"""Nine nodes on a LAN become one primary component: after all were killed and started at once, and after a storm
of one-way cuts. `nine_campaign` repeats this with longer storms."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.network.log_lan import Replicas, running
from tests.network.storm import FIRST_MS_MAX, PAUSE_MS, draw_storm

NINE = "abcdefghi"
MESSAGES_PER_SECOND = 10.0
"""Few: nine processes share the cores of one machine."""
SHORT_STORM_MS = 3_000.0


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with running(tmp_path, MESSAGES_PER_SECOND, NINE) as made:
        yield made


def start_again_at_once(replicas: Replicas) -> None:
    replicas.kill(NINE)
    replicas.restart(NINE)
    replicas.expect(primary=NINE)


def heal_after_storm(replicas: Replicas, seed: int, storm_ms: float) -> None:
    replicas.storm(seed, storm_ms)
    replicas.expect(primary=NINE)


def test_nine_nodes_start_at_once_and_heal_after_a_storm(replicas: Replicas) -> None:
    start_again_at_once(replicas)
    heal_after_storm(replicas, 1, SHORT_STORM_MS)


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_storm_is_what_its_seed_says(seed: int) -> None:
    storm_ms = 10_000.0
    changes = list(draw_storm(NINE, seed, storm_ms))
    assert changes == list(draw_storm(NINE, seed, storm_ms)) != list(draw_storm(NINE, seed + 1, storm_ms))
    times = [change.at_ms for change in changes]
    assert 0.0 <= times[0] <= FIRST_MS_MAX
    assert times[-1] < storm_ms <= times[-1] + PAUSE_MS[1]
    assert all(PAUSE_MS[0] <= later - time <= PAUSE_MS[1] for time, later in pairwise(times))
    assert any((target, source) not in cut for _, cut in changes for source, target in cut)
    assert changes[-1].cut


def test_storms_are_healed_on_the_way() -> None:
    assert any(not cut for seed in range(1, 11) for _, cut in draw_storm(NINE, seed, 10_000.0))
