"""The smaller cases, to their ends: nothing forbidden can be reached."""

from __future__ import annotations

import pytest

from tests.exploration.cases import CASES
from tests.exploration.explorer import explore

SMALL = {
    "three-crash": 100,
    "three-suspicion": 500,
    "two": 3_000,
    "two-crash": 3_000,
    "merge-small-crash": 50_000,
}
"""Cases, and how many states there are at the least: fewer would mean that something was not tried."""


@pytest.mark.parametrize("name", SMALL)
def test_every_interleaving_is_safe(name: str) -> None:
    [case] = [case for case in CASES if case.name == name]
    for world in case.worlds():
        found = explore(world, case.depth_max)
        assert not found.offence, "\n".join([found.offence, *found.trace])
        assert found.is_complete
        assert found.states >= SMALL[name]
