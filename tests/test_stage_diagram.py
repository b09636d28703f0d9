"""The state diagrams in docs/architecture.md are those of the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

import corel.stages
import membership.stages

ARCHITECTURE = Path(__file__).parent.parent / "docs" / "architecture.md"


@pytest.mark.parametrize(
    ("place", "stages", "transitions"),
    [
        (0, membership.stages.Stage, membership.stages.TRANSITIONS),
        (1, corel.stages.Stage, corel.stages.TRANSITIONS),
    ],
    ids=["membership", "log"],
)
def test_the_drawn_stages_are_the_stages_there_are(
    place: int, stages: type[StrEnum], transitions: Mapping[StrEnum, tuple[StrEnum, ...]]
) -> None:
    diagram = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", ARCHITECTURE.read_text(), re.DOTALL)[place]
    drawn = set(re.findall(r"^ +(\w+) --> (\w+):", diagram, re.MULTILINE))
    assert drawn == {(str(before), str(after)) for before, afters in transitions.items() for after in afters}
    assert set(transitions) == set(stages)
