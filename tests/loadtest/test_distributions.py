from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from loadtest.distributions import DISTRIBUTIONS, Latest, ScrambledZipfian, Uniform, Zipfian

DRAWS = 50_000
ITEMS = 1_000


def frequencies(distribution: Uniform | Zipfian | ScrambledZipfian | Latest, items: int = ITEMS) -> Counter[int]:
    return Counter(distribution.draw(items) for _ in range(DRAWS))


@pytest.mark.parametrize("rank", [0, 1, 9, 99])
def test_a_rank_is_drawn_as_often_as_zipfs_law_says(rank: int) -> None:
    seen = Counter(min(r, 100) for r in frequencies(Zipfian(Random(1))).elements())
    zeta = sum(1.0 / place**0.99 for place in range(1, ITEMS + 1))
    expected = DRAWS / (rank + 1) ** 0.99 / zeta
    assert seen[rank] == pytest.approx(expected, rel=0.25)


def test_items_that_are_added_change_the_law_as_if_they_had_always_been_there() -> None:
    grown, fresh = Zipfian(Random(2)), Zipfian(Random(3))
    for items in range(1, ITEMS):
        grown.draw(items)
    assert frequencies(grown)[0] == pytest.approx(frequencies(fresh)[0], rel=0.1)


def test_scrambled_keys_are_as_skewed_and_not_neighbours() -> None:
    common = [key for key, _ in frequencies(ScrambledZipfian(Random(4))).most_common(5)]
    assert max(frequencies(ScrambledZipfian(Random(4))).values()) > DRAWS / 12
    assert all(abs(one - other) > 1 for one in common for other in common if one != other)


def test_latest_prefers_what_was_added_last() -> None:
    seen = frequencies(Latest(Random(5)))
    assert seen.most_common(1)[0][0] == ITEMS - 1
    assert sum(count for key, count in seen.items() if key >= ITEMS - 10) > DRAWS / 4


def test_uniform_prefers_nothing() -> None:
    seen = frequencies(Uniform(Random(6)), 10)
    assert max(seen.values()) < 1.1 * min(seen.values())


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("items", [1, 2, 3, 7])
def test_a_few_items_are_all_that_is_drawn(name: str, items: int) -> None:
    distribution = DISTRIBUTIONS[name](Random(7))
    assert {distribution.draw(items) for _ in range(1_000)} <= set(range(items))
