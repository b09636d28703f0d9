"""A change in the middle of a change, at every single step of it (trap 3)."""

from __future__ import annotations

import pytest

from tests.corel.cascades import STORIES, cases, points, run

CHUNKS = 8
"""The parts into which a story's cases are split, so that test workers can share it."""

TRIED = [
    # story, urgency, steps after which its view is cut, cases
    ("merge of a primary", "last_first", 243, 994),
    ("faults in a primary", "disks_last", 115, 876),
    ("forgetful disk", "in_step", 241, 980),
    ("halves", "one_by_one", 149, 609),
    ("three and one", "delivery_last", 132, 540),
]


def test_no_story_is_forgotten() -> None:
    assert {story for story, *_ in TRIED} == set(STORIES)


@pytest.mark.parametrize(("story", "urgency", "point_count", "case_count"), TRIED)
def test_the_enumeration_does_not_shrink(story: str, urgency: str, point_count: int, case_count: int) -> None:
    assert len(points(story, urgency)) >= point_count
    assert len(list(cases(story, urgency))) >= case_count


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize(("story", "urgency"), [tried[:2] for tried in TRIED])
def test_a_cut_after_any_step_loses_nothing_and_disorders_nothing(story: str, urgency: str, chunk: int) -> None:
    for case in list(cases(story, urgency))[chunk::CHUNKS]:
        try:
            run(case)
        except Exception as error:
            raise AssertionError(f"tests.corel.cascades.run({case})") from error
