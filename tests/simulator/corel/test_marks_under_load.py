"""Marks are not held back by data: where nothing is lost, the next tick sends a mark, and it is heard after one
trip over the network."""

from __future__ import annotations

import pytest

from tests.simulator.corel.marks_under_load import DELAY_MS, Load, LoadedCluster


@pytest.mark.parametrize("load", [Load(8, 100, 0.0), Load(8, 1_300, 0.0), Load(8, 100, 1.0, 0.3)], ids=str)
def test_marks_take_one_trip_under_load(load: Load) -> None:
    cluster = LoadedCluster(load)
    cluster.run(100.0)
    assert len(cluster.heard_after_ms) > 300
    assert max(cluster.heard_after_ms) < load.turn_ms + DELAY_MS + 0.001
    assert cluster.unheard() == 0
