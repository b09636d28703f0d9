from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from loadtest.distributions import Latest
from loadtest.workloads import MIXES, Keys, lateness_ms, record_key, value_of


@pytest.mark.parametrize("name", MIXES)
def test_a_mix_draws_its_shares(name: str) -> None:
    mix, rng = MIXES[name], Random(1)
    seen = Counter(mix.draw(rng) for _ in range(10_000))
    assert sum(mix.shares.values()) == 100
    assert {action: pytest.approx(share, abs=2) for action, share in mix.shares.items()} == {
        action: seen[action] / 100 for action in mix.shares
    }


def test_inserted_keys_are_drawn_and_belong_to_one_worker() -> None:
    keys, others = Keys(10, "one"), Keys(10, "two")
    inserted = [keys.insert() for _ in range(90)]
    distribution = Latest(Random(2))
    drawn = Counter(keys.draw(distribution) for _ in range(1_000))
    assert drawn.most_common(1)[0][0] == inserted[-1]
    assert len(set(inserted)) == 90
    assert others.insert() not in inserted
    assert keys.name(3) == others.name(3) == record_key(3)


def test_a_value_says_when_it_was_made() -> None:
    value = value_of(Random(3), 100)
    assert len(value) == 100
    late = lateness_ms(value)
    assert late is not None
    assert 0 <= late < 5_000
    assert lateness_ms("hello") is None
